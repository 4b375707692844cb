#include <belfry/executor/program.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <belfry/executor/structural.h>
#include <belfry/graph/plan/collectives.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>

namespace belfry {

Program::Program(std::shared_ptr<const PlacedGraph> plan, const KernelTables& kernels, std::shared_ptr<StateStore> state, Devices devices)
    : plan_(std::move(plan)), kernels_(kernels), bound_(*plan_), devices_(std::move(devices)), store_(state ? std::move(state) : std::make_shared<StateStore>()) {
  allocate();
  int threads = 1;
  for (const PlanStream& s : plan_->streams) threads = std::max(threads, s.thread + 1);
  threads_.resize(static_cast<std::size_t>(threads));
  std::vector<std::string> stuck;
  auto order = legal_order(bound_, &stuck);
  if (!stuck.empty()) throw UserError(fmt::format("stuck: {} wait for each other", fmt::join(stuck, ", ")));
  for (auto [s, k] : order) threads_[static_cast<std::size_t>(plan_->streams[static_cast<std::size_t>(s)].thread)].emplace_back(s, k);
  for (std::size_t s = 0; s < bound_.streams.size(); ++s) {
    launches_.emplace_back(bound_.streams[s].size());
    for (std::size_t k = 0; k < bound_.streams[s].size(); ++k) {
      Launch& l = launches_[s][k];
      l.step = &bound_.streams[s][k];
      l.thread = plan_->streams[s].thread;
      bind_arguments(l);
    }
  }
  faults_.resize(threads_.size());
  make_queues();
  bind_once();
  find_collectives();
  bind_feeds_and_results();
  bind_tasks();
}

Device* Program::device_of(int device) const {
  const DeviceId& id = plan_->cluster.devices[static_cast<std::size_t>(device)].id;
  auto at = devices_.find(to_string(id));
  if (at != devices_.end()) return at->second.get();
  if (id.kind == "gpu") throw UserError(fmt::format("unbound: the plan names {}, which is not open", to_string(id)));
  return nullptr;
}

namespace {

/// What others wait for goes first: joins, updates and copies before the towers' own work.
Urgency urgency_of(const PlanStream& stream) { return stream.name == "main" ? Urgency::joins : Urgency::computes; }

/// The mark behind a stream's step; -1: nobody waits for it.
int mark_of(const std::vector<std::vector<int>>& marks, int stream, int count) {
  const std::vector<int>& m = marks[static_cast<std::size_t>(stream)];
  const auto at = std::lower_bound(m.begin(), m.end(), count);
  return at != m.end() && *at == count ? static_cast<int>(at - m.begin()) : -1;
}

}  // namespace

/// A queue per stream of a device that works by itself, with a mark behind every step that another such stream waits for.
void Program::make_queues() {
  std::vector<Device*> device;
  auto has_steps = [&](std::size_t s) { return !bound_.streams[s].empty() || std::any_of(bound_.once.begin(), bound_.once.end(), [&](const Step& o) { return o.stream == static_cast<int>(s); }); };
  for (std::size_t s = 0; s < plan_->streams.size(); ++s) device.push_back(has_steps(s) ? device_of(plan_->streams[s].device) : nullptr);
  auto of = [](auto& v, int i) -> auto& { return v[static_cast<std::size_t>(i)]; };
  std::vector<std::vector<int>> marks(plan_->streams.size());  // per stream: the steps that have one, by their counts
  for (const auto& stream : bound_.streams)
    for (const Step& step : stream)
      for (const StepWait& w : step.waits)
        if (of(device, w.stream) && of(device, step.stream)) of(marks, w.stream).push_back(w.count);
  for (std::size_t s = 0; s < marks.size(); ++s) {
    std::sort(marks[s].begin(), marks[s].end());
    marks[s].erase(std::unique(marks[s].begin(), marks[s].end()), marks[s].end());
    queues_.push_back(device[s] ? device[s]->queue(static_cast<int>(marks[s].size()), urgency_of(plan_->streams[s])) : nullptr);
    if (device[s]) continue;
    for (const Step& step : bound_.streams[s])
      for (const auto& parts : step.reads)
        for (const Part& p : parts)  // what brings a stream of the host the parts that devices hold
          if (Device* from = p.buffer.space < 0 ? nullptr : device_of_space_[static_cast<std::size_t>(p.buffer.space)])
            if (auto [at, fresh] = carriers_.try_emplace({step.stream, p.buffer.space}); fresh) at->second = from->queue(0, Urgency::moves);
  }
  deal_queues();
  make_drives(marks);
}

/// Each thread gets the queues of its streams, all of one GPU: libraries keep a handle per thread.
void Program::deal_queues() {
  queues_of_thread_.resize(threads_.size());
  std::map<int, int> gpu_of_thread;
  for (std::size_t s = 0; s < queues_.size(); ++s) {
    if (!queues_[s]) continue;
    const PlanStream& stream = plan_->streams[s];
    const int gpu = plan_->cluster.devices[static_cast<std::size_t>(stream.device)].id.index;
    if (gpu_of_thread.try_emplace(stream.thread, gpu).first->second != gpu) throw UserError(fmt::format("unbound: the host thread {} launches on two GPUs; give each its own", stream.thread));
    queues_of_thread_[static_cast<std::size_t>(stream.thread)].push_back(queues_[s].get());
  }
}

void Program::make_drives(const std::vector<std::vector<int>>& marks) {
  auto thread_of = [&](int stream) { return plan_->streams[static_cast<std::size_t>(stream)].thread; };
  std::set<std::pair<int, int>> for_others;  // (stream, count)
  for (const auto& stream : bound_.streams)
    for (const Step& step : stream)
      for (const StepWait& w : step.waits)
        if (queue(w.stream) && queue(step.stream) && thread_of(w.stream) != thread_of(step.stream)) for_others.emplace(w.stream, w.count);
  drives_.resize(threads_.size());
  for (std::size_t t = 0; t < threads_.size(); ++t) {
    if (queues_of_thread_[t].empty()) continue;
    std::map<std::pair<int, int>, int> task_of;
    for (auto launch : threads_[t]) task_of.emplace(launch, static_cast<int>(task_of.size()));
    for (auto [s, k] : threads_[t]) {
      Drive& d = drives_[t].emplace_back();
      d.queue = queue(s);
      if (!d.queue) continue;
      d.mark = mark_of(marks, s, k + 1);
      d.mark_for_others = for_others.contains({s, k + 1});
      Launch& l = launches_[static_cast<std::size_t>(s)][static_cast<std::size_t>(k)];
      l.arguments.stream = d.queue->stream();
      l.arguments.queue = d.queue;
      d.feeds = !l.feed_inputs.empty();
      const std::string& node = plan_->nodes[static_cast<std::size_t>(l.step->node)].name;
      d.name = names_.emplace_back(l.step->tower < 0 ? node : fmt::format("tower_{}/{}", l.step->tower, node)).c_str();
      for (const StepWait& w : l.step->waits)
        if (queue(w.stream) && w.stream != s) d.waits.push_back({queue(w.stream), mark_of(marks, w.stream, w.count), w.stream, w.count, thread_of(w.stream) != static_cast<int>(t) ? -1 : task_of.at({w.stream, w.count - 1})});
    }
  }
}

void Program::find_collectives() {
  const bool any = std::any_of(bound_.streams.begin(), bound_.streams.end(), [](const auto& stream) { return std::any_of(stream.begin(), stream.end(), [](const Step& s) { return is_collective(s.variant); }); });
  if (!any) return;
  collectors_ = std::make_unique<Collectors>(bound_, [&](const std::vector<int>& devices) {
    std::vector<std::pair<std::string, Device*>> ranks;
    for (int d : devices) ranks.emplace_back(to_string(plan_->cluster.devices[static_cast<std::size_t>(d)].id), device_of(d));
    return ranks.at(0).second->communicator(ranks);
  });
}

const std::vector<std::shared_ptr<Communicator>>& Program::communicators() const {
  static const std::vector<std::shared_ptr<Communicator>> none;
  return collectors_ ? collectors_->all() : none;
}

std::unique_ptr<Queue> Program::make_lane(int stream, Urgency urgency) const {
  Device* device = device_of(plan_->streams[static_cast<std::size_t>(stream)].device);
  device->enter();
  return device->queue(0, urgency);
}

void Program::bind_once() {
  once_.tasks.resize(threads_.size());
  once_.launches.resize(bound_.once.size());
  for (std::size_t k = 0; k < bound_.once.size(); ++k) {
    Launch& l = once_.launches[k];
    const Step& step = bound_.once[k];
    l.step = &step;
    l.thread = plan_->streams[static_cast<std::size_t>(step.stream)].thread;
    bind_arguments(l);
    Drive* drive = nullptr;
    if (Queue* q = queue(step.stream)) {
      drive = &once_.drives.emplace_back();
      drive->queue = l.arguments.queue = q;
      l.arguments.stream = q->stream();
    }
    once_.tasks[static_cast<std::size_t>(l.thread)].push_back({nullptr, &l.arguments, nullptr, 0, step.stream, 0, -1, false, drive, &step});
  }
}

void Program::bind_tasks() {
  auto thread_of = [&](int stream) { return plan_->streams[static_cast<std::size_t>(stream)].thread; };
  // The thread's own order covers what it has computed itself; what it has put on a queue is done later.
  auto host_waits = [&](const StepWait& w, int stream) { return w.stream != stream && !(queue(w.stream) && queue(stream)) && (thread_of(w.stream) != thread_of(stream) || queue(w.stream)); };
  for (const auto& stream : bound_.streams)
    for (const Step& step : stream)
      for (const StepWait& w : step.waits)
        if (host_waits(w, step.stream)) launches_[static_cast<std::size_t>(w.stream)][static_cast<std::size_t>(w.count) - 1].signals = true;
  for (std::size_t t = 0; t < threads_.size(); ++t) {
    std::vector<Task>& tasks = tasks_.emplace_back();
    std::vector<StepWait>& waits = foreign_waits_.emplace_back();
    std::map<int, int> awaited;  // by stream, as many steps as the thread has waited for by then
    for (std::size_t i = 0; i < threads_[t].size(); ++i) {
      auto [s, k] = threads_[t][i];
      Launch& l = launches_[static_cast<std::size_t>(s)][static_cast<std::size_t>(k)];
      std::size_t before = waits.size();
      for (const StepWait& w : l.step->waits)
        if (int& so_far = awaited[w.stream]; host_waits(w, s) && so_far < w.count) waits.push_back(w), so_far = w.count;
      Drive* drive = drives_[t].empty() || !drives_[t][i].queue ? nullptr : &drives_[t][i];
      if (drive && drive->feeds) drive->landed = staging_ ? staging_->queue(l.step->device) : nullptr;
      tasks.push_back({nullptr, &l.arguments, nullptr, static_cast<int>(waits.size() - before), s, k, l.update, l.signals, drive, l.step});
    }
    const StepWait* at = waits.data();
    for (Task& task : tasks) {
      task.waits = at;
      at += task.wait_count;
    }
  }
}

/// Whose driver pins memory of the host; null where all is the host's.
Device* Program::any_gpu() const {
  auto at = std::find_if(device_of_space_.begin(), device_of_space_.end(), [](Device* d) { return d != nullptr; });
  return at == device_of_space_.end() ? nullptr : *at;
}

/// The plan counts a device's state first; it lies in the store, and the rest of the space without it in one arena.
void Program::allocate() {
  std::vector<std::int64_t> planned(bound_.spaces.size());
  std::vector<DeviceBytes> bytes = device_bytes(*plan_);
  state_bytes_.resize(bound_.spaces.size());
  state_before_.resize(bound_.spaces.size());
  for (std::size_t d = 0; d < plan_->cluster.devices.size(); ++d) {
    auto s = static_cast<std::size_t>(std::find(bound_.spaces.begin(), bound_.spaces.end(), plan_->cluster.space(static_cast<int>(d))) - bound_.spaces.begin());
    planned[s] += bytes[d].state;
    state_before_[s][bound_.device_start[d]] = planned[s];
  }
  device_of_space_.resize(bound_.spaces.size());
  for (std::size_t d = 0; d < plan_->cluster.devices.size(); ++d) {
    auto s = static_cast<std::size_t>(std::find(bound_.spaces.begin(), bound_.spaces.end(), plan_->cluster.space(static_cast<int>(d))) - bound_.spaces.begin());
    if (!bound_.arena_bytes[s] || plan_->cluster.devices[d].id.kind != "gpu") continue;
    device_of_space_[s] = device_of(static_cast<int>(d));
    auto shared = std::count_if(plan_->cluster.devices.begin(), plan_->cluster.devices.end(), [&](const ClusterDevice& o) { return o.space == bound_.spaces[s]; });
    if (shared > 1) throw UserError(fmt::format("unbound: the memory space '{}' of a GPU is another device's too; give each its own", bound_.spaces[s]));
  }
  Device* any = any_gpu();
  for (std::size_t s = 0; s < bound_.spaces.size(); ++s) {
    std::int64_t bytes = bound_.arena_bytes[s] - planned[s];
    if (Device* own = device_of_space_[s]) arenas_.push_back(own->allocate(bytes, bound_.spaces[s]));
    else arenas_.push_back(any ? any->allocate_host(bytes) : Arena(bytes, bound_.spaces[s]));
  }
  std::vector<StateStore::Wanted> wanted;
  for (const StateBuffer& s : bound_.state) wanted.push_back({plan_->nodes[static_cast<std::size_t>(s.node)].name, to_string(plan_->cluster.devices[static_cast<std::size_t>(s.device)].id), s});
  store_->make(wanted, devices_);
  for (const StateStore::Wanted& w : wanted) {
    StateStore::Held& held = store_->held(w);
    const BufferRef& b = w.planned.buffer;
    state_bytes_[static_cast<std::size_t>(b.space)] += aligned_bytes(held.arena.bytes());
    if (b.bytes) state_at_[{b.space, b.at}] = &held;  // one without bytes may begin where another does
  }
}

std::byte* Program::address(const BufferRef& buffer) const {
  if (auto held = state_at_.upper_bound({buffer.space, buffer.at}); held != state_at_.begin()) {
    --held;  // a reader in ranges begins inside
    if (held->first.first == buffer.space && buffer.at < held->first.second + held->second->arena.bytes()) return held->second->arena.at(buffer.at - held->first.second);
  }
  auto space = static_cast<std::size_t>(buffer.space);
  auto device = std::prev(state_before_[space].upper_bound(buffer.at));
  return arenas_[space].at(buffer.at - device->second);
}

HostTensor Program::read(const BufferRef& buffer) const {
  HostTensor out(buffer.type.dtype, buffer.type.shape);
  copy_bytes(out.raw(), nullptr, address(buffer), device_of_space_[static_cast<std::size_t>(buffer.space)], buffer.bytes);
  return out;
}

int Program::space_of(const std::byte* address) const {
  auto inside = [&](const Arena& a) { return std::less_equal<>()(a.at(0), address) && std::less<>()(address, a.at(0) + a.bytes()); };
  for (std::size_t s = 0; s < arenas_.size(); ++s)
    if (inside(arenas_[s])) return static_cast<int>(s);
  for (const auto& [at, held] : state_at_)
    if (inside(held->arena)) return at.first;
  return -1;
}

KernelRequest Program::request(const Step& step) const {
  const PlanNode& n = plan_->nodes[static_cast<std::size_t>(step.node)];
  KernelRequest r;
  r.share = n.scope == Scope::tower ? bound_.shares[static_cast<std::size_t>(step.tower)] : plan_->share(-1);
  r.op = n.op == kFused ? n.attributes.text("kind") : n.op;
  r.def = n.def;
  r.attributes = &n.attributes;
  auto local = [&](ValueIndex v) { return n.ranged ? type_on(*plan_, n, v, step.device) : local_type(plan_->value(v), r.share); };
  for (ValueIndex v : n.inputs) r.inputs.push_back(v < 0 ? LocalType{f32, {0}} : local(v));
  for (ValueIndex v : n.outputs) {
    r.outputs.push_back(local(v));
    r.output_types.push_back(plan_->value(v).type);
    r.wanted.push_back(plan_->value(v).read);
  }
  if (const std::optional<FusionGroup> group = group_of(*plan_, n)) describe_members(*plan_->graph, *group, r);
  r.threads = plan_->threads;
  return r;
}

void Program::bind_arguments(Launch& l) {
  const Step& step = *l.step;
  const PlanNode& n = plan_->nodes[static_cast<std::size_t>(step.node)];
  bool moves = moves_values(n);
  const std::string& here = plan_->cluster.space(step.device);
  for (std::size_t i = 0; i < step.reads.size(); ++i)
    for (const Part& p : step.reads[i]) {
      if (p.buffer.space == kFeedSpace) {
        l.feed_inputs.push_back(i);
        l.arguments.inputs.push_back(nullptr);
        continue;
      }
      if (!moves && bound_.spaces[static_cast<std::size_t>(p.buffer.space)] != here)
        throw UserError(fmt::format("unbound: '{}' reads '{}' in another memory space without a copy", n.name, plan_->value(p.buffer.tag.value).name));
      l.arguments.inputs.push_back(address(p.buffer));
    }
  if (!moves)  // one address per input, null where it is left out
    for (std::size_t i = 0; i < step.reads.size(); ++i)
      if (step.reads[i].empty()) l.arguments.inputs.insert(l.arguments.inputs.begin() + static_cast<std::ptrdiff_t>(i), nullptr);
  for (const auto& parts : step.writes) {
    if (parts.empty()) l.arguments.outputs.push_back(nullptr);
    for (const Part& p : parts) l.arguments.outputs.push_back(p.buffer.space == kFeedSpace ? nullptr : address(p.buffer));
  }
  if (step.scratch.bytes) l.arguments.scratch = address(step.scratch);
}

/// Can a device's kernels read the part where it lies? The plan counts on it where its cluster says so, and it must be so here.
bool Program::reads(int device, const Part& p) const {
  const Device* there = p.buffer.space < 0 ? nullptr : device_of_space_[static_cast<std::size_t>(p.buffer.space)];
  if (!there) return false;
  const std::vector<DeviceId> planned = plan_->cluster.read_by(device);
  const DeviceId from = plan_->cluster.devices[static_cast<std::size_t>(p.buffer.tag.device)].id.whole();
  return std::find(planned.begin(), planned.end(), from) != planned.end() && device_of(device)->reads(*there);
}

/// Who brings the parts of a step's first input here. What a sum reads where it lies nobody brings.
Carriers Program::carriers(const Step& step) const {
  const PlanNode& n = plan_->nodes[static_cast<std::size_t>(step.node)];
  Carriers out{queue(step.stream) != nullptr, {}};
  if (step.reads.empty()) return out;
  const std::string& here = plan_->cluster.space(step.device);
  for (const Part& p : step.reads[0]) {
    Queue*& carrier = out.of_part.emplace_back(nullptr);
    bool feed = p.buffer.space == kFeedSpace;
    if (!moves_values(n) || (!feed && bound_.spaces[static_cast<std::size_t>(p.buffer.space)] == here)) continue;
    if (out.own) carrier = reads(step.device, p) ? nullptr : queue(step.stream);
    else if (auto at = carriers_.find({step.stream, p.buffer.space}); at != carriers_.end()) carrier = at->second.get();
  }
  return out;
}

}  // namespace belfry
