#if __has_include(<cudnn.h>)
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <belfry/graph/error.h>
#include <belfry/ops/cuda/cudnn_api_internal.h>

namespace belfry::cudnn {

namespace {

/// A descriptor that another one holds, as cuDNN gives it: into one that was made for it.
Descriptor held(const Api& api, const Descriptor& by, cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) {
  Descriptor out(api, type);
  cudnnBackendDescriptor_t raw = out.raw();
  by.get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  return out;
}

/// What cuDNN's heuristic forecasts for a graph, best first; none where it has no answer.
std::vector<Descriptor> configurations(const TargetImpl& target, const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristic(target.api, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (target.device) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device);
  if (!heuristic.try_finalize()) return {};
  std::vector<Descriptor> out;
  std::vector<cudnnBackendDescriptor_t> raw;
  std::int64_t count = heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  for (std::int64_t i = 0; i < count; ++i) {
    out.emplace_back(target.api, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(out.back().raw());
  }
  count = heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, raw.data());
  out.erase(out.begin() + count, out.end());
  return out;
}

std::string name_of(const Api& api, const Descriptor& configuration, const Descriptor& engine) {
  std::int64_t index = 0;
  engine.get(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
  std::vector<Descriptor> knobs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i) {
    knobs.emplace_back(api, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    raw.push_back(knobs.back().raw());
  }
  std::int64_t count = configuration.get(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS, raw.data());
  std::string set;
  for (std::int64_t i = 0; i < count; ++i) {
    cudnnBackendKnobType_t knob{};
    std::int64_t value = 0;
    knobs[static_cast<std::size_t>(i)].get(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob);
    knobs[static_cast<std::size_t>(i)].get(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
    set += fmt::format("{}k{}={}", set.empty() ? "" : ",", static_cast<int>(knob), value);
  }
  return fmt::format("eng{}{{{}}}", index, set);
}

EngineFacts facts_of(const Api& api, const Descriptor& configuration) {
  Descriptor engine = held(api, configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendNumericalNote_t numerical[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
  std::int64_t n = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, numerical);
  std::int64_t m = engine.get(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, behaviour);
  auto has = [&](std::initializer_list<cudnnBackendNumericalNote_t> notes) { return std::find_first_of(numerical, numerical + n, notes.begin(), notes.end()) != numerical + n; };
  EngineFacts out;
  out.name = name_of(api, configuration, engine);
  out.deterministic = !has({CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC});
  out.tensor_cores = has({CUDNN_NUMERICAL_NOTE_TENSOR_CORE});
  out.rounds_inputs = has({CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION});
  out.winograd = has({CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_FFT});
  out.keeps_nan = has({CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP});
  out.compiles = std::find(behaviour, behaviour + m, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != behaviour + m;
  return out;
}

class EngineImpl : public Engine {
 public:
  EngineImpl(std::shared_ptr<TargetImpl> target, std::shared_ptr<const Plan> plan, const Graph& graph)
      : target_(std::move(target)), plan_(std::move(plan)), pack_(target_->api, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) {
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      if (graph.tensors[i].inner) continue;
      tensors_.push_back(i);
      ids_.push_back(static_cast<std::int64_t>(i) + 1);
      values_.push_back(graph.tensors[i].value);
    }
  }

  const EngineFacts& facts() const override { return plan_->facts; }

  /// Addresses are fixed per sequence, so the pack is made once.
  void run(std::span<const void* const> at, void* scratch, void* stream) override {
    if (!target_->handle) throw InternalError("an engine of a described device was to run");
    if (!std::equal(at.begin(), at.end(), at_.begin(), at_.end()) || scratch != scratch_) pack(at, scratch);
    if (stream != target_->stream) check(target_->api, target_->api.cudnnSetStream(target_->handle, static_cast<cudaStream_t>(stream)), "cudnnSetStream");
    target_->stream = stream;
    check(target_->api, target_->api.cudnnBackendExecute(target_->handle, plan_->descriptor.raw(), pack_.raw()), "cudnnBackendExecute");
  }

 private:
  void pack(std::span<const void* const> at, void* scratch) {
    std::vector<const void*> pointers;
    for (std::size_t i = 0; i < tensors_.size(); ++i) pointers.push_back(values_[i] ? &*values_[i] : at[tensors_[i]]);
    Descriptor d(target_->api, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    d.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids_);
    d.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<std::int64_t>(pointers.size()), pointers.data());
    d.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch);
    d.finalize();
    pack_ = std::move(d);
    at_.assign(at.begin(), at.end());
    scratch_ = scratch;
  }

  std::shared_ptr<TargetImpl> target_;
  std::shared_ptr<const Plan> plan_;
  Descriptor pack_;
  std::vector<std::size_t> tensors_;
  Extents ids_;
  std::vector<std::optional<float>> values_;
  std::vector<const void*> at_;
  void* scratch_ = nullptr;
};

/// Empty where the engine turns out not to take the graph.
std::optional<Descriptor> plan_of(const TargetImpl& target, const Descriptor& configuration, EngineFacts& facts) {
  Descriptor plan(target.api, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  if (target.device) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.device);
  else plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  if (!plan.try_finalize()) return {};
  plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &facts.scratch_bytes);
  return plan;
}

bool multiplies(const Operation& o) { return o.kind == Kind::conv || o.kind == Kind::conv_input_gradient || o.kind == Kind::conv_filter_gradient || o.kind == Kind::matmul; }

/// Whether it multiplies many by many: only there do tensor cores round what they are given, and halves they multiply as they are.
bool contracts(const Graph& graph) { return std::any_of(graph.operations.begin(), graph.operations.end(), multiplies); }
bool contracts_f32(const Graph& graph) {
  auto of_f32 = [&](const Operation& o) { return multiplies(o) && std::none_of(o.tensors.begin(), o.tensors.end(), [&](std::size_t t) { return is_half(graph.tensors[t].dtype); }); };
  return std::any_of(graph.operations.begin(), graph.operations.end(), of_f32);
}

/// Engine 1 for gradients of filters (cuDNN 9.19 on sm_90) puts as much padding behind as before, without a word.
bool misreads_padding(const Graph& graph, const EngineFacts& facts) {
  return facts.name.starts_with("eng1{") && !facts.compiles && std::any_of(graph.operations.begin(), graph.operations.end(), [](const Operation& o) { return o.kind == Kind::conv_filter_gradient && o.window.before != o.window.after; });
}

/// Calls f(configuration, facts) for what the heuristic knows, best first, until it gives true.
template <class F>
void for_each(const TargetImpl& target, const Descriptor& graph, F f) {
  for (cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (const Descriptor& configuration : configurations(target, graph, mode))
      if (f(configuration, facts_of(target.api, configuration))) return;
}

std::string key_of(const Graph& graph, const Wanted& wanted) {
  std::string out = fmt::format("{} {} {} {}", wanted.scratch_bytes, wanted.leeway.nondeterministic, wanted.leeway.tf32, wanted.engine);
  for (const Tensor& t : graph.tensors) out += fmt::format(";{} {} {} {} {}", static_cast<int>(t.dtype), fmt::join(t.dims, ","), fmt::join(t.strides, ","), t.inner, t.value.has_value());
  for (const Operation& o : graph.operations) {
    out += fmt::format(";{} {} {}", static_cast<int>(o.kind), fmt::join(o.tensors, ","), o.axis);
    for (const auto* sizes : {&o.window.size, &o.window.strides, &o.window.before, &o.window.after, &o.window.dilations}) out += fmt::format(" {}", fmt::join(*sizes, ","));
  }
  return out;
}

/// Calls f(plan) for what fits, best first, until it gives true; else what the others lack.
template <class F>
std::string each_fitting(const TargetImpl& target, const Graph& graph, const Wanted& wanted, F f) {
  std::string why;
  std::optional<Descriptor> operations = operation_graph(target, graph, why);
  if (!operations) throw DeviceError(why);
  const bool exact = contracts(graph), without_cores = !wanted.leeway.tf32 && contracts_f32(graph);  // rounding to halves is no TF32
  int asked = 0, random = 0, rounding = 0, refused = 0;
  std::int64_t least = -1;
  for_each(target, *operations, [&](const Descriptor& configuration, EngineFacts facts) {
    if (!wanted.engine.empty() && facts.name != wanted.engine) return false;
    ++asked;
    if (!facts.deterministic && !wanted.leeway.nondeterministic) return ++random, false;
    if ((without_cores && facts.tensor_cores) || (exact && facts.rounds_inputs)) return ++rounding, false;
    std::optional<Descriptor> plan = misreads_padding(graph, facts) ? std::nullopt : plan_of(target, configuration, facts);
    if (!plan) return ++refused, false;
    if (facts.scratch_bytes < graph.least_scratch_bytes && !wanted.leeway.nondeterministic) return ++random, false;
    if (facts.scratch_bytes > wanted.scratch_bytes) {
      least = least < 0 ? facts.scratch_bytes : std::min(least, facts.scratch_bytes);
      return false;
    }
    return f(Plan{std::move(*plan), std::move(facts)});
  });
  if (!wanted.engine.empty() && !asked) return fmt::format("cuDNN does not name the engine {} for it here; derive the plan anew with belfry place", wanted.engine);
  return fmt::format("cuDNN has no engine for it: of {} that it names {} are not deterministic, {} round what they are given, {} turn out not to take it{}", asked, random, rounding, refused,
                     least < 0 ? "" : fmt::format(", and the others want {} bytes of scratch or more where {} are granted", least, wanted.scratch_bytes));
}

std::shared_ptr<const Plan> found(const TargetImpl& target, const Graph& graph, const Wanted& wanted) {
  std::shared_ptr<const Plan> out;
  const std::string why = each_fitting(target, graph, wanted, [&](Plan plan) {
    out = std::make_shared<const Plan>(std::move(plan));
    return true;
  });
  if (!out) throw DeviceError(why);
  return out;
}

}  // namespace

std::unique_ptr<Engine> find(const std::shared_ptr<Target>& t, const Graph& graph, const Wanted& wanted) {
  auto target = std::static_pointer_cast<TargetImpl>(t);
  std::shared_ptr<const Plan>& plan = target->plans[key_of(graph, wanted)];
  if (!plan) plan = found(*target, graph, wanted);
  return std::make_unique<EngineImpl>(target, plan, graph);
}

std::vector<EngineFacts> fitting(const std::shared_ptr<Target>& t, const Graph& graph, const Wanted& wanted, std::size_t most) {
  std::vector<EngineFacts> out;
  each_fitting(*std::static_pointer_cast<TargetImpl>(t), graph, wanted, [&](Plan plan) {
    out.push_back(std::move(plan.facts));
    return out.size() == most;
  });
  return out;
}

std::vector<EngineFacts> all(const std::shared_ptr<Target>& t, const Graph& graph) {
  auto target = std::static_pointer_cast<TargetImpl>(t);
  std::string why;
  std::optional<Descriptor> operations = operation_graph(*target, graph, why);
  if (!operations) throw DeviceError(why);
  std::vector<EngineFacts> out;
  for_each(*target, *operations, [&](const Descriptor& configuration, EngineFacts facts) {
    if (plan_of(*target, configuration, facts)) out.push_back(std::move(facts));
    return false;
  });
  return out;
}

}  // namespace belfry::cudnn
#endif
