#include <belfry/frontends/session/engines.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include <belfry/graph/error.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

std::string text_of(const Attributes& attributes) {
  std::string out;
  for (const auto& [name, value] : attributes.entries()) out += fmt::format(" {}={}", name, to_string(value));
  return out;
}

}  // namespace

std::string engine_key(const std::string& kernel, const KernelRequest& r) {
  std::string out = fmt::format("{} {}", kernel, r.op);
  if (r.members.empty()) out += text_of(*r.attributes);
  for (const Node* m : r.members) out += fmt::format(" [{}{}]", m->op->name, text_of(m->attributes));
  for (const auto* types : {&r.inputs, &r.outputs}) {
    out += ";";
    for (const LocalType& t : *types) out += " " + to_string(t);
  }
  for (std::size_t k = 0; k < r.wanted.size(); ++k)
    if (!r.wanted[k]) out += fmt::format(" -{}", k);
  return out;
}

std::string fastest_engine(const KernelTable& table, const std::string& kernel, const KernelRequest& request, const std::vector<std::string>& engines, std::int64_t scratch_bytes, const TimeLaunch& seconds, int rounds) {
  struct Candidate {
    std::string engine;
    std::unique_ptr<Prepared> prepared;
    std::vector<double> times = {};
  };
  std::vector<Candidate> all;
  for (const std::string& engine : engines) {
    if (const Support s = table.support(kernel + "@" + engine, request); !s.ok || s.scratch_bytes > scratch_bytes) continue;
    try {
      all.push_back({engine, table.prepare(kernel + "@" + engine, request, {scratch_bytes, false})});
    } catch (const DeviceError&) {  // it turns out not to take the request
    }
  }
  if (all.size() < 2) return {};
  for (int round = -1; round < rounds; ++round)
    for (Candidate& c : all)
      if (const double s = seconds(*c.prepared); round >= 0) c.times.push_back(s);
  auto median = [](Candidate& c) {
    std::nth_element(c.times.begin(), c.times.begin() + static_cast<std::ptrdiff_t>(c.times.size() / 2), c.times.end());
    return c.times[c.times.size() / 2];
  };
  const Candidate* best = nullptr;
  double least = 0;
  for (Candidate& c : all)
    if (const double m = median(c); !best || m < least) best = &c, least = m;
  return best->engine;
}

namespace {

/// For engines that take more than the plan gives the kernel.
bool has_room(std::optional<Arena>& room, Device* device, std::int64_t bytes) {
  if (room && room->bytes() >= bytes) return true;
  room.reset();
  try {
    room.emplace(device->allocate(bytes, "of engines that are timed"));
  } catch (const DeviceError&) {  // those that fit are timed
  }
  return room.has_value();
}

}  // namespace

std::map<std::string, std::string> time_engines(const Program& program) {
  std::map<std::string, std::string> out;
  const PlacedGraph& plan = program.plan();
  for (std::size_t s = 0; s < program.launches().size(); ++s) {
    Queue* queue = program.queue(static_cast<int>(s));
    if (!queue) continue;
    queue->enter();
    const int device = plan.streams[s].device;
    const KernelTable& table = program.kernels().at(plan.cluster.devices[static_cast<std::size_t>(device)].kernels());
    std::optional<Arena> room;
    for (const Launch& l : program.launches()[s]) {
      const PlanNode& n = plan.nodes[static_cast<std::size_t>(l.step->node)];
      if ((!n.def && n.op != kFused) || !l.feed_inputs.empty()) continue;  // moves have no engines, and feeds no address between steps
      const std::string kernel = l.step->variant->kernel.substr(0, l.step->variant->kernel.find('@'));
      const KernelRequest r = program.request(*l.step);
      const std::string key = engine_key(kernel, r);
      if (out.contains(key)) continue;
      const std::vector<std::string> engines = table.engines(kernel, r);
      std::int64_t scratch = l.step->variant->scratch_bytes;
      Arguments a = l.arguments;
      std::int64_t most = 0;
      for (const std::string& e : engines) most = std::max(most, table.support(kernel + "@" + e, r).scratch_bytes);
      if (most > scratch && has_room(room, program.device_of(device), most)) scratch = most, a.scratch = room->at(0);
      out[key] = fastest_engine(table, kernel, r, engines, scratch, [&](Prepared& p) {
        queue->stamp();
        p.launch(a);
        queue->stamp();
        queue->finish();
        const auto stamps = queue->stamps();
        return static_cast<double>(stamps[1] - stamps[0]) / 1e9;
      });
    }
  }
  std::erase_if(out, [](const auto& entry) { return entry.second.empty(); });
  return out;
}

}  // namespace belfry
