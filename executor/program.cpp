#include <belfry/executor/program.h>

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include <belfry/executor/joins.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/structural.h>

namespace belfry {

Program::Program(std::shared_ptr<const PlacedGraph> plan, const KernelTables& kernels, std::shared_ptr<StateStore> state)
    : plan_(std::move(plan)), kernels_(kernels), bound_(*plan_), store_(state ? std::move(state) : std::make_shared<StateStore>()) {
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
  for (const auto& stream : bound_.streams)
    for (const Step& step : stream)
      for (const StepWait& w : step.waits)
        if (plan_->streams[static_cast<std::size_t>(w.stream)].thread != plan_->streams[static_cast<std::size_t>(step.stream)].thread)
          launches_[static_cast<std::size_t>(w.stream)][static_cast<std::size_t>(w.count) - 1].signals = true;
  bind_feeds_and_results();
  bind_tasks();
}

void Program::bind_tasks() {
  auto thread_of = [&](int stream) { return plan_->streams[static_cast<std::size_t>(stream)].thread; };
  for (std::size_t t = 0; t < threads_.size(); ++t) {
    std::vector<Task>& tasks = tasks_.emplace_back();
    std::vector<StepWait>& waits = foreign_waits_.emplace_back();
    for (auto [s, k] : threads_[t]) {
      Launch& l = launches_[static_cast<std::size_t>(s)][static_cast<std::size_t>(k)];
      std::size_t before = waits.size();
      for (const StepWait& w : l.step->waits)
        if (thread_of(w.stream) != static_cast<int>(t)) waits.push_back(w);
      tasks.push_back({nullptr, &l.arguments, nullptr, static_cast<int>(waits.size() - before), s, k, l.update, l.signals});
    }
    const StepWait* at = waits.data();
    for (Task& task : tasks) {
      task.waits = at;
      at += task.wait_count;
    }
  }
}

void Program::bind_feeds_and_results() {
  std::map<std::string, std::size_t> feed_of;
  std::map<ValueIndex, BufferRef> made;
  for (std::size_t s = 0; s < launches_.size(); ++s)
    for (std::size_t k = 0; k < launches_[s].size(); ++k) {
      Launch& l = launches_[s][k];
      const PlanNode& n = plan_->nodes[static_cast<std::size_t>(l.step->node)];
      for (std::size_t i : l.feed_inputs) {
        const BufferRef& b = l.step->reads[i][0].buffer;
        const std::string& name = plan_->value(b.tag.value).name;
        auto [at, fresh] = feed_of.try_emplace(name, feeds_.size());
        if (fresh) feeds_.push_back({name, b.type, {}});
        feeds_[at->second].addresses.push_back(&l.arguments.inputs[i]);
      }
      if (!n.donates.empty()) {
        l.update = static_cast<int>(updates_.size());
        updates_.push_back({static_cast<int>(s), static_cast<int>(k), {}});
        for (auto [u, variable] : n.donates) updates_.back().variables.push_back(variable);
      }
      if (n.op == kFetch) made.try_emplace(n.outputs[0], l.step->writes[0][0].buffer);
    }
  for (const auto& [name, v] : plan_->fetches) results_.push_back({name, made.at(v)});
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
  for (std::size_t s = 0; s < bound_.spaces.size(); ++s) arenas_.emplace_back(bound_.arena_bytes[s] - planned[s], bound_.spaces[s]);
  for (const StateBuffer& s : bound_.state) {
    const std::string device = to_string(plan_->cluster.devices[static_cast<std::size_t>(s.device)].id);
    StateStore::Held& held = store_->held(plan_->nodes[static_cast<std::size_t>(s.node)].name, device, s.buffer.type);
    state_bytes_[static_cast<std::size_t>(s.buffer.space)] += aligned_bytes(held.arena.bytes());
    if (s.buffer.bytes) state_at_[{s.buffer.space, s.buffer.at}] = &held;  // one without bytes may begin where another does
  }
}

std::byte* Program::address(const BufferRef& buffer) const {
  if (auto held = state_at_.find({buffer.space, buffer.at}); held != state_at_.end()) return held->second->arena.at(0);
  auto space = static_cast<std::size_t>(buffer.space);
  auto device = std::prev(state_before_[space].upper_bound(buffer.at));
  return arenas_[space].at(buffer.at - device->second);
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
  for (ValueIndex v : n.inputs) r.inputs.push_back(v < 0 ? LocalType{f32, {0}} : local_type(plan_->value(v), r.share));
  for (ValueIndex v : n.outputs) {
    r.outputs.push_back(local_type(plan_->value(v), r.share));
    r.output_types.push_back(plan_->value(v).type);
    r.wanted.push_back(plan_->value(v).read);
  }
  if (n.op == kFused) {
    std::vector<NodeId> members;
    for (const Member& m : n.members) members.push_back(m.node);
    describe_members(*plan_->graph, members, r);
  }
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

namespace {

std::vector<JoinPart> join_parts(const std::vector<Part>& parts) {
  std::vector<JoinPart> out;
  for (const Part& p : parts) out.push_back({p.low, p.high, p.buffer.type});
  return out;
}

}  // namespace

std::unique_ptr<Prepared> Program::structural(const Step& step) const {
  const PlanNode& n = plan_->nodes[static_cast<std::size_t>(step.node)];
  auto bytes = static_cast<std::size_t>(step.writes[0].empty() ? 0 : step.writes[0][0].buffer.bytes);
  if (n.op == kInput) return prepared([](const Arguments&) {});
  if (n.op == kCopy || n.op == kStore) return prepared([bytes](const Arguments& a) { std::memmove(a.outputs[0], a.inputs[0], bytes); });
  if (n.op == kSplit) {
    const PlanValue& v = plan_->value(n.outputs[0]);
    Share share = bound_.shares[static_cast<std::size_t>(step.tower)];
    std::int64_t factor = v.type.shape[static_cast<std::size_t>(v.state.axis)].factor;
    LocalType from = step.reads[0][0].buffer.type;
    return prepared([=, axis = v.state.axis](const Arguments& a) { slice_rows(from, a.inputs[0], axis, factor * share.first_row, factor * share.rows, a.outputs[0]); });
  }
  const std::string how = n.attributes.text("how");
  int axis = n.attributes.find("axis") ? static_cast<int>(n.attributes.integer("axis")) : 0, towers = plan_->towers, present = plan_->present();
  std::vector<JoinPart> parts = join_parts(step.reads[0]);
  if (n.op == kPreAggregate) {
    struct OfPiece {
      Join join;
      std::size_t first, count;  // of the inputs
    };
    std::vector<OfPiece> joins;
    for (const Part& piece : step.writes[0]) {
      // The piece is a whole subtree: joined by itself it has the tree's shape.
      std::vector<JoinPart> mine;
      std::size_t first = 0;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].low < piece.low) first = i + 1;
        else if (parts[i].low < piece.high) mine.push_back({parts[i].low - piece.low, parts[i].high - piece.low, parts[i].type});
      }
      std::size_t count = mine.size();
      joins.push_back({Join(how, axis, piece.high - piece.low, std::min(present, piece.high) - piece.low, std::move(mine), piece.buffer.type), first, count});
    }
    return prepared([joins = std::move(joins)](const Arguments& a) mutable {
      for (std::size_t p = 0; p < joins.size(); ++p) joins[p].join(std::span(a.inputs).subspan(joins[p].first, joins[p].count), a.outputs[p]);
    });
  }
  return prepared([join = Join(how, axis, towers, present, std::move(parts), step.writes[0][0].buffer.type)](const Arguments& a) mutable { join(a.inputs, a.outputs[0]); });
}

namespace {

/// Outputs lie over inputs wholly or not at all.
bool writes_in_place(const Arguments& a) {
  return std::any_of(a.outputs.begin(), a.outputs.end(), [&](const std::byte* out) { return out && std::find(a.inputs.begin(), a.inputs.end(), out) != a.inputs.end(); });
}

}  // namespace

void Program::prepare_thread(int thread) {
  for (auto& stream : launches_)
    for (Launch& l : stream) {
      if (l.thread != thread || l.kernel) continue;
      const PlanNode& n = plan_->nodes[static_cast<std::size_t>(l.step->node)];
      if (!n.def && n.op != kFused) l.kernel = structural(*l.step);
      else if (n.op == kInput) l.kernel = prepared([](const Arguments&) {});
      else {
        const std::string kind = plan_->cluster.devices[static_cast<std::size_t>(l.step->device)].kernels();
        auto table = kernels_.find(kind);
        if (table == kernels_.end()) throw UserError(fmt::format("there are no kernels for devices of kind '{}'", kind));
        l.kernel = table->second.prepare(l.step->variant->kernel, request(*l.step), {l.step->variant->scratch_bytes, writes_in_place(l.arguments)});
      }
    }
  for (Task& task : tasks_[static_cast<std::size_t>(thread)]) task.kernel = launches_[static_cast<std::size_t>(task.stream)][static_cast<std::size_t>(task.index)].kernel.get();
}

void Program::set_state(const std::string& variable, const HostTensor& value) {
  bool found = false;
  for (const StateBuffer& s : bound_.state) {
    if (plan_->nodes[static_cast<std::size_t>(s.node)].name != variable) continue;
    found = true;
    if (!(s.buffer.type == value.type())) throw UserError(fmt::format("variable '{}' is {}, not {}", variable, to_string(s.buffer.type), to_string(value.type())));
    if (s.buffer.bytes) std::memcpy(address(s.buffer), value.raw(), static_cast<std::size_t>(s.buffer.bytes));
  }
  if (!found) throw UserError(fmt::format("the plan has no variable '{}'", variable));
}

HostTensor Program::state(const std::string& variable) const {
  for (const StateBuffer& s : bound_.state) {
    if (plan_->nodes[static_cast<std::size_t>(s.node)].name != variable) continue;
    HostTensor out(s.buffer.type.dtype, s.buffer.type.shape);
    if (s.buffer.bytes) std::memcpy(out.raw(), address(s.buffer), static_cast<std::size_t>(s.buffer.bytes));
    return out;
  }
  throw UserError(fmt::format("the plan has no variable '{}'", variable));
}

bool Program::holders_agree(const std::string& variable) const {
  const std::byte* first = nullptr;
  for (const StateBuffer& s : bound_.state) {
    if (plan_->nodes[static_cast<std::size_t>(s.node)].name != variable) continue;
    const std::byte* mine = address(s.buffer);
    if (first && std::memcmp(first, mine, static_cast<std::size_t>(s.buffer.bytes)) != 0) return false;
    first = first ? first : mine;
  }
  return true;
}

}  // namespace belfry
