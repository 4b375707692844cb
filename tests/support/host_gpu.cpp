#include "host_gpu.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <link.h>
#include <setjmp.h>
#include <ucontext.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <utility>

#include <belfry/ops/cuda/nvrtc_internal.h>

#include "accesses.h"

namespace belfry::test {

namespace {

/// As the shim has it.
struct Three { unsigned x, y, z; };
struct HostThread {
  Three thread, block, block_size, grid;
  char (*values)[32];
  unsigned turn;
  void (*wait)(int threads, int line);
  void (*touched)(const void* at, unsigned long bytes, int how);
  void (*copies)(int groups);
};
/// Where a library's variables are: those of its kernels are what a block shares.
struct Library {
  HostThread* thread = nullptr;
  std::uintptr_t constants = 0, variables = 0, end = 0;
};

constexpr std::size_t kMost = 256, kStack = 64 * 1024;

/// Of a warp, or of the block.
struct Meeting {
  std::size_t arrived = 0, ended = 0;  ///< threads
  unsigned times = 0;                  ///< that all have arrived
  unsigned ordered = 0;                ///< of these, not to exchange values alone
  int line = 0;                        ///< where the first waits
};

void body();

/// The threads of one block, each with a stack of its own; one runs until it waits. A context begins a stack; from then on it is left and entered by jumps, which make no call of the system.
struct Block {
  std::array<jmp_buf, kMost> left;
  jmp_buf back;
  std::vector<char> stacks = std::vector<char>(kMost * kStack);
  std::array<bool, kMost> begun{}, done{};
  Meeting whole;
  std::array<Meeting, kMost / 32> warps;
  alignas(16) char values[2 * kMost][32];
  std::size_t current = 0;
  Accesses accesses;
  bool together = false, misplaced = false;
  const Library* library = nullptr;
  HostThread* state = nullptr;
  void (*run)(const void*) = nullptr;
  const void* words = nullptr;

  void resume(std::size_t t) {
    current = t;
    state->thread.x = static_cast<unsigned>(t);
    state->turn = warps[t / 32].times % 2;
    if (_setjmp(back) != 0) return;
    if (std::exchange(begun[t], true)) _longjmp(left[t], 1);
    ucontext_t first;
    getcontext(&first);
    first.uc_stack.ss_sp = stacks.data() + t * kStack;
    first.uc_stack.ss_size = kStack;
    first.uc_link = nullptr;
    makecontext(&first, body, 0);
    setcontext(&first);
  }
  void leave() {
    if (_setjmp(left[current]) == 0) _longjmp(back, 1);
  }
};
Block& block() {
  static Block b;
  return b;
}

/// What a stack runs: its thread of one block after the other.
void body() {
  for (Block& b = block();; b.leave()) {
    b.run(b.words);
    b.done[b.current] = true;
    ++b.whole.ended;
    ++b.warps[b.current / 32].ended;
  }
}

/// Until every thread of the warp (or block) has come as often. A thread that has ended never comes: the test would not end, so it is an error.
void wait_for(int threads, int line) {
  Block& b = block();
  const std::size_t me = b.current;
  Meeting& m = threads == 32 ? b.warps[me / 32] : b.whole;
  if (m.arrived == 0) m.line = line;
  else if (m.line != line) b.misplaced = true;
  if (++m.arrived == (threads == 32 ? 32 : b.state->block_size.x)) {
    m.arrived = 0;
    ++m.times;
    if (line > 0) ++m.ordered;
    b.state->turn = b.warps[me / 32].times % 2;
    return;
  }
  for (const unsigned before = m.times; m.times == before;) {
    if (m.ended > 0) {
      std::fprintf(stderr, "a thread of the kernel ended where others wait for it\n");
      std::abort();
    }
    b.leave();
  }
}

Standing standing() {
  Block& b = block();
  const unsigned thread = b.state->thread.x;
  return {b.state->block.x, thread, b.whole.ordered, b.warps[thread / 32].ordered, b.warps[thread / 32].times};
}

void touched(const void* p, unsigned long bytes, int how) {
  Block& b = block();
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  const Library& l = *b.library;
  if (at >= l.constants && at < l.variables) return;
  const auto thread = reinterpret_cast<std::uintptr_t>(l.thread);
  if (at >= thread && at < thread + sizeof *l.thread) return;
  const auto stack = b.together ? reinterpret_cast<std::uintptr_t>(b.stacks.data()) : reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (b.together ? at >= stack && at < stack + b.stacks.size() : at >= stack && at < stack + kStack) return;
  const bool shared = at >= l.variables && at < l.end;
#ifdef __SANITIZE_ADDRESS__
  if (!shared && __asan_region_is_poisoned(const_cast<void*>(p), bytes)) return b.accesses.outside(standing(), p, bytes);
#endif
  if (how == 0) b.accesses.read(standing(), const_cast<void*>(p), bytes, shared);
  else if (how == 1) b.accesses.write(standing(), p, bytes, shared);
  else b.accesses.write_later(standing(), p, bytes, shared);
}

void copies(int groups) {
  Block& b = block();
  if (groups == -1) b.accesses.close_group(b.state->thread.x);
  else if (groups == -2) b.accesses.await_all(standing());
  else b.accesses.await_groups(standing(), static_cast<unsigned>(groups));
}

void run_block_together(unsigned threads) {
  Block& b = block();
  b.done.fill(false);
  b.whole = {};
  b.warps.fill({});
  for (bool left = true; left;) {
    left = false;
    for (std::size_t t = 0; t < threads; ++t)
      if (!b.done[t]) b.resume(t), left = true;
  }
}

Library library_of(void* opened) {
  Library out{.thread = static_cast<HostThread*>(dlsym(opened, "belfry_thread"))};
  struct Looking { link_map* map; Library* out; } looking{nullptr, &out};
  dlinfo(opened, RTLD_DI_LINKMAP, &looking.map);
  dl_iterate_phdr([](dl_phdr_info* info, std::size_t, void* given) {
    auto& [map, found] = *static_cast<Looking*>(given);
    if (info->dlpi_addr != map->l_addr) return 0;
    found->constants = map->l_addr;
    std::uintptr_t relocated = 0;  // constants that the loader wrote, tables of addresses for one
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& part = info->dlpi_phdr[i];
      const std::uintptr_t from = map->l_addr + part.p_vaddr;
      if (part.p_type == PT_LOAD && (part.p_flags & PF_W)) found->variables = from, found->end = from + part.p_memsz;
      else if (part.p_type == PT_GNU_RELRO) relocated = from + part.p_memsz;
    }
    found->variables = std::max(found->variables, relocated);
    return 1;
  }, &looking);
  return out;
}
std::map<void (*)(const void*), Library>& libraries() {
  static std::map<void (*)(const void*), Library> all;
  return all;
}

}  // namespace

struct HostGpu::Function : GpuFunction {
  Function(HostGpu& host, std::shared_ptr<Entry> e) : host(host), entry(std::move(e)) {}
  void load() override {
    std::lock_guard lock(host.mutex_);
    loaded = true;
  }
  void launch(Grid grid, std::span<const std::uint64_t> words, void*) override {
    std::lock_guard lock(host.mutex_);
    if (host.strict && !loaded) throw std::logic_error("'" + entry->name + "' is launched before it is loaded");
    if (!entry->run) host.build();
    if (words.size() != entry->words) throw std::runtime_error("a kernel takes other words");
    Block& b = block();
    b.library = &libraries().at(entry->run);
    HostThread& state = *b.library->thread;
    auto threads = static_cast<unsigned>(grid.threads);
    const bool watched = entry->watched && (entry->launches < 2 || entry->launches % 4 == 0);
    state = {{0, 0, 0}, {0, 0, 0}, {threads, 1, 1}, {static_cast<unsigned>(grid.blocks), 1, 1}, b.values, 0, wait_for, watched ? touched : nullptr, watched ? copies : nullptr};
    b.state = &state;
    b.together = entry->together;
    b.accesses.begin_launch();
    b.run = entry->run;
    b.words = words.data();
    const bool backwards = entry->launches++ % 2 != 0;  // no kernel may count on an order of blocks
    for (unsigned k = 0; k < state.grid.x; ++k) {
      state.block.x = backwards ? state.grid.x - 1 - k : k;
      b.accesses.begin_block();
      if (entry->together) run_block_together(threads);
      else
        for (state.thread.x = 0; state.thread.x < threads; ++state.thread.x) entry->run(words.data());
    }
    if (const std::string what = b.accesses.objection(); !what.empty()) ADD_FAILURE() << entry->name << ", of " << threads << " threads: " << what;
    if (std::exchange(b.misplaced, false)) ADD_FAILURE() << entry->name << ": threads of a block, or of a warp, wait in different places for each other";
  }
  HostGpu& host;
  std::shared_ptr<Entry> entry;
  bool loaded = false;
};

/// It takes some times as long: of the texts an eighth, unless every one is asked for, and of many launches of a kernel the first two and a quarter.
bool HostGpu::watches(const std::string& source) const { return every || std::hash<std::string>()(source) % 8 == 0; }

std::shared_ptr<GpuFunction> HostGpu::make(const std::string& source, const std::string& entry, std::size_t words) {
  std::lock_guard lock(mutex_);
  auto& e = entries_[{source, entry}];
  if (!e && !waits(source, entry)) throw std::logic_error("'" + entry + "' does not wait for what stands before it, before which drivers may launch it");
  if (!e) e = std::make_shared<Entry>(Entry{source, entry, words, source.find("__sync") != std::string::npos || source.find("_sync(") != std::string::npos, watches(source)});
  return std::make_shared<Function>(*this, e);
}

std::vector<std::string> HostGpu::sources() const {
  std::set<std::string> out;
  for (const auto& [key, e] : entries_) out.insert(key.first);
  return {out.begin(), out.end()};
}

void HostGpu::build() {
  std::lock_guard lock(mutex_);
  for (bool watched : {false, true}) build(watched);
}

void HostGpu::build(bool watched) {
  static int built = 0;  // a name that was opened once stays what it was
  std::string text = "#include \"host_gpu_shim.h\"\n", table, last;
  std::vector<Entry*> fresh;
  int space = 0;
  for (auto& [key, e] : entries_) {  // in the order of the sources
    if (e->run || e->watched != watched) continue;
    if (fresh.empty() || e->source != last) {
      if (!fresh.empty()) text += "}\n";
      text += fmt::format("namespace k{} {{\n{}\n", space++, e->source);
      last = e->source;
    }
    text += fmt::format("static void run_{0}(const void* words) {{ belfry_run<{1}>({0}, words); }}\n", e->name, 8 * e->words);
    table += fmt::format("k{}::run_{}, ", space - 1, e->name);
    fresh.push_back(e.get());
  }
  if (fresh.empty()) return;
  text += "}\nextern \"C\" void (*const belfry_entries[])(const void*);\nvoid (*const belfry_entries[])(const void*) = {" + table + "};\n";
  auto stem = std::filesystem::temp_directory_path() / fmt::format("belfry_host_gpu.{}.{}", getpid(), built++);
  std::string cpp = stem.string() + ".cpp", library = stem.string() + ".so", log = stem.string() + ".log";
  std::ofstream(cpp) << text;
  // A GPU stops at a pack that is not aligned; the host would read it.
  std::string command = fmt::format("{} -std=c++17 -O0 -shared -fPIC -w -fwrapv -ffp-contract=off -fno-gnu-unique -fsanitize=alignment{} -fsanitize-undefined-trap-on-error -nodefaultlibs -lm -lc -I'{}' '{}' -o '{}' 2>'{}'", BELFRY_CXX, watched ? ",thread" : "", BELFRY_SUPPORT, cpp, library, log);
  bool made = std::system(command.c_str()) == 0;
  void* opened = made ? dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!opened) {
    std::ifstream said(log);
    throw std::runtime_error(command + "\n" + std::string(std::istreambuf_iterator<char>(said), {}).substr(0, 4000) + (made ? dlerror() : ""));
  }
  for (const std::string& f : {cpp, library, log}) std::filesystem::remove(f);
  auto runs = static_cast<void (**)(const void*)>(dlsym(opened, "belfry_entries"));
  for (std::size_t i = 0; i < fresh.size(); ++i) libraries()[fresh[i]->run = runs[i]] = library_of(opened);
}

}  // namespace belfry::test
