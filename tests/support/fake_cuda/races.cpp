#include "races.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "state_internal.h"

namespace fake_cuda {
namespace {

struct Mark {
  int strand = -1, name = 0;
  std::uint64_t time = 0;
};
/// Of bytes that had the same fate.
struct Piece {
  std::uintptr_t end = 0;
  Mark write;
  std::vector<Mark> reads;  ///< since then, one per strand
};

struct Known {
  int strands = 1;  ///< the first is the host's
  Clock host;
  std::map<std::pair<int, int>, int> captured;
  std::map<std::uintptr_t, Piece> pieces;
  std::vector<std::string> names;
  std::map<std::string, int> ids;
  std::set<std::pair<int, int>> said;
  std::string races;
};
Known& known() {
  static Known* k = new Known;
  return *k;
}

thread_local Access declared;

int id_of(const std::string& name) {
  auto [at, fresh] = known().ids.try_emplace(name, static_cast<int>(known().names.size()));
  if (fresh) known().names.push_back(name);
  return at->second;
}

bool before(const Mark& m, const Clock& clock) { return m.strand < 0 || (static_cast<std::size_t>(m.strand) < clock.size() && clock[static_cast<std::size_t>(m.strand)] >= m.time); }

void report(const Mark& mine, const char* does, const Mark& other, const char* did, std::uintptr_t at) {
  if (!known().said.emplace(mine.name, other.name).second) return;
  std::uintptr_t start = 0;
  const Block* block = block_of(at, &start);
  const std::string where = !block ? "memory" : !block->context ? "the host's pinned memory" : "the memory of GPU " + std::to_string(block->context->device);
  std::string text = "race: '" + known().names[static_cast<std::size_t>(mine.name)] + "' " + does + " byte " + std::to_string(at - start) + " of a block in " + where + ", and '" +
                     known().names[static_cast<std::size_t>(other.name)] + "' " + did + " it: nothing orders the two\n";
  std::fputs(("fake_cuda: " + text).c_str(), stderr);
  known().races += text;
}

/// The first piece at or behind `at`, after cutting one that holds it.
std::map<std::uintptr_t, Piece>::iterator cut(std::uintptr_t at) {
  auto& pieces = known().pieces;
  auto p = pieces.upper_bound(at);
  if (p == pieces.begin()) return p;
  auto holds = std::prev(p);
  if (holds->first == at) return holds;
  if (holds->second.end <= at) return p;
  Piece rest = holds->second;
  holds->second.end = at;
  return pieces.emplace(at, std::move(rest)).first;
}

void read(std::uintptr_t at, std::uintptr_t end, const Mark& mine, const Clock& clock) {
  auto& pieces = known().pieces;
  cut(end);
  auto p = cut(at);
  while (at < end) {
    if (p == pieces.end() || p->first > at) p = pieces.emplace_hint(p, at, Piece{p == pieces.end() ? end : std::min(end, p->first), {}, {}});
    Piece& piece = p->second;
    if (!before(piece.write, clock)) report(mine, "reads", piece.write, "writes", at);
    auto own = std::find_if(piece.reads.begin(), piece.reads.end(), [&](const Mark& m) { return m.strand == mine.strand; });
    if (own == piece.reads.end()) piece.reads.push_back(mine);
    else *own = mine;
    at = piece.end;
    ++p;
  }
}

void write(std::uintptr_t at, std::uintptr_t end, const Mark& mine, const Clock& clock) {
  auto& pieces = known().pieces;
  cut(end);
  auto p = cut(at);
  while (p != pieces.end() && p->first < end) {
    if (!before(p->second.write, clock)) report(mine, "writes", p->second.write, "writes", p->first);
    for (const Mark& m : p->second.reads)
      if (!before(m, clock)) report(mine, "writes", m, "reads", p->first);
    p = pieces.erase(p);
  }
  pieces.emplace(at, Piece{end, mine, {}});
}

}  // namespace

void join(Clock& to, const Clock& from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}

int new_strand() { return known().strands++; }

int strand_of(int launched, int captured) {
  int& strand = known().captured[{launched, captured}];
  if (!strand) strand = new_strand();
  return strand;
}

Access take_declared() { return std::exchange(declared, {}); }

void begin_step(Clock& clock, int strand, const Access& access) {
  if (clock.size() <= static_cast<std::size_t>(strand)) clock.resize(static_cast<std::size_t>(strand) + 1);
  const Mark mine{strand, access.ranges.empty() ? 0 : id_of(access.name), ++clock[static_cast<std::size_t>(strand)]};
  for (bool writes : {false, true})
    for (const Touched& t : access.ranges) {
      const auto at = reinterpret_cast<std::uintptr_t>(t.at);
      if (t.writes == writes && t.bytes && block_of(at)) (writes ? write : read)(at, at + t.bytes, mine, clock);
    }
}

void host_saw(const Clock& clock) { join(known().host, clock); }
const Clock& host_clock() { return known().host; }

void forget(std::uintptr_t at, std::size_t bytes) {
  cut(at + bytes);
  auto p = cut(at);
  while (p != known().pieces.end() && p->first < at + bytes) p = known().pieces.erase(p);
}

void forget_races() { known() = {}; }

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

void fake_cuda_declare(const char* name, const Touched* ranges, std::size_t count) { declared = {name, {ranges, ranges + count}, true}; }

void fake_cuda_host(const char* name, const Touched* ranges, std::size_t count) {
  std::lock_guard lock(state().mutex);
  begin_step(known().host, 0, {name, {ranges, ranges + count}, false});
}

const char* fake_cuda_races() {
  static std::string text;
  std::lock_guard lock(state().mutex);
  text = known().races;
  return text.c_str();
}

}  // extern "C"
