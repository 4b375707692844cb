#include <belfry/ops/cuda/cudnn_sequence_internal.h>

#include <algorithm>
#include <bit>
#include <string_view>

#include <fmt/format.h>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/ops/cuda/cublas_lt_internal.h>
#include <belfry/ops/cuda_kernels.h>

namespace belfry::cudnn {

namespace {

/// A sequence on the device of the thread that made it.
struct Bound : Prepared {
  Bound(const Sequence& sequence, const std::shared_ptr<CudaToolkit>& toolkit, const GpuCodeRef& code, const std::string& engine) : own_bytes(sequence.own_bytes), toolkit(toolkit), driver(toolkit->driver()) {
    std::shared_ptr<Target> target;  // only where cuDNN is needed
    for (const auto& step : sequence.steps) {
      if (const auto* r = std::get_if<Run>(&step)) {
        if (!target) target = current_target(*toolkit);
        runs.push_back(find(target, r->graph, {sequence.engine_bytes, sequence.leeway, engine}));
        steps.push_back(bound(*r));
      } else if (const auto* t = std::get_if<Transpose>(&step)) {
        const Attributes order{{"order", Integers{1, 0}}};
        steps.push_back(alone(of_kernel(transpose_cuda(needed(code)).at(0), &order, {t->dtype, {t->rows, t->columns}}, {t->made, {t->columns, t->rows}}), t->from, t->to));
      } else if (const auto* c = std::get_if<Cast>(&step)) {
        steps.push_back(alone(of_kernel(cast_cuda(needed(code)).at(0), nullptr, {c->dtype, {c->count}}, {c->made, {c->count}}), c->from, c->to));
      } else if (const auto* u = std::get_if<Unfold>(&step)) {
        steps.push_back(alone(unfold_kernel(*needed(code), *u), u->from, u->to));
      } else if (const auto* m = std::get_if<Multiply>(&step)) {
        steps.push_back([m = *m, own = own_bytes, by = std::shared_ptr(cublas_lt::multiplication(*toolkit, m->product, engine))](const Arguments& a) {
          by->run(address(m.a, a), address(m.b, a), address(m.y, a), a.scratch + own, a.stream, address(m.bias, a), address(m.added, a));
        });
      } else {
        steps.push_back([this, f = std::get<Fill>(step)](const Arguments& a) {
          const auto to = reinterpret_cast<CUdeviceptr>(address(f.to, a));
          check_driver(driver, driver.cuMemsetD32Async(to, std::bit_cast<unsigned>(f.value), static_cast<std::size_t>(f.count), static_cast<CUstream>(a.stream)), "cuMemsetD32Async");
        });
      }
    }
  }

  void launch(const Arguments& a) override {
    aligned = a;  // as long as the first time: nothing is allocated
    aligned.scratch = workspace_in(a.scratch);
    for (const auto& step : steps) step(aligned);
  }

  static const GpuCodeRef& needed(const GpuCodeRef& code) { return code ? code : throw InternalError("a sequence of generated kernels needs code"); }

  static std::unique_ptr<Prepared> of_kernel(const Kernel& kernel, const Attributes* attributes, const LocalType& x, const LocalType& y) {
    KernelRequest r;
    r.attributes = attributes;
    r.inputs = {x};
    r.outputs = {y};
    return kernel.prepare(r);
  }

  /// What has one input.
  static std::function<void(const Arguments&)> alone(std::shared_ptr<Prepared> by, const Place& from, const Place& to) {
    return [from, to, by, one = Arguments{{nullptr}, {nullptr}}](const Arguments& a) mutable {
      one.inputs[0] = address(from, a);
      one.outputs[0] = address(to, a);
      one.stream = a.stream;
      by->launch(one);
    };
  }

  /// The newest of `runs` at the addresses of a launch.
  std::function<void(const Arguments&)> bound(const Run& r) {
    return [places = r.places, at = std::vector<const void*>(r.places.size()), engine = runs.back().get(), own = own_bytes](const Arguments& a) mutable {
      for (std::size_t i = 0; i < places.size(); ++i) at[i] = address(places[i], a);
      engine->run(at, a.scratch + own, a.stream);
    };
  }

  static std::byte* address(const Place& p, const Arguments& a) {
    auto i = static_cast<std::size_t>(p.at);
    switch (p.where) {
      case Place::input: return const_cast<std::byte*>(a.inputs[i]) + p.past;
      case Place::output: return a.outputs[i] + p.past;
      case Place::scratch: return a.scratch + p.at;
      case Place::nowhere: break;
    }
    return nullptr;
  }

  std::int64_t own_bytes;
  std::shared_ptr<CudaToolkit> toolkit;  ///< holds the driver's table
  const CudaDriver& driver;
  std::vector<std::unique_ptr<Engine>> runs;
  std::vector<std::function<void(const Arguments&)>> steps;
  Arguments aligned;
};

}  // namespace

std::string objection(const KernelRequest& r) {
  if (!built()) return "Belfry was built without cuDNN's headers";
  for (const auto* types : {&r.inputs, &r.outputs})
    for (const LocalType& t : *types) {
      if (is_float(t.dtype) && t.dtype != f32 && !is_half(t.dtype)) return fmt::format("it takes f32 and halves alone, and one of its tensors is {}", name_of(t.dtype));
      if (t.elements() >= std::int64_t{1} << 31) return "a tensor has more elements than cuDNN counts";
    }
  if (r.inputs[0].elements() == 0 || r.outputs[0].elements() == 0) return "there are no elements";
  return {};
}

std::vector<std::unique_ptr<Engine>> engines_of(const Sequence& sequence, const std::shared_ptr<Target>& target) {
  std::vector<std::unique_ptr<Engine>> out;
  for (const auto& step : sequence.steps)
    if (auto* r = std::get_if<Run>(&step)) out.push_back(find(target, r->graph, {sequence.engine_bytes, sequence.leeway}));
  return out;
}

namespace {

/// A sequence of products that are alike has cuBLASLt's algorithms to choose among.
const Multiply* first_product(const Sequence& s) {
  for (const auto& step : s.steps)
    if (const auto* m = std::get_if<Multiply>(&step)) return m;
  return nullptr;
}
const Multiply* only_product(const Sequence& s) { return s.steps.size() == 1 ? first_product(s) : nullptr; }

/// Sequences with one run of cuDNN have engines to choose among; more are chosen one by one, by cuDNN's forecast.
const Run* only_run(const Sequence& s) {
  const Run* out = nullptr;
  for (const auto& step : s.steps)
    if (const auto* r = std::get_if<Run>(&step)) {
      if (out) return nullptr;
      out = r;
    }
  return out;
}

}  // namespace

std::vector<std::string> engine_names(const Sequence& sequence, const std::shared_ptr<Target>& target) {
  std::vector<std::string> out;
  if (const Run* run = only_run(sequence))
    for (const EngineFacts& e : fitting(target, run->graph, {sequence.engine_bytes, sequence.leeway}, kMostTimedEngines)) out.push_back(e.name);
  return out;
}

namespace {

Sequence with_products(Sequence s, bool tf32) {
  for (auto& step : s.steps)
    if (auto* m = std::get_if<Multiply>(&step)) m->product.tf32 = tf32;
  return s;
}

/// Products of cuBLASLt repeat their bits whatever is left to them.
Sequence taking(Sequence s, const KernelRequest& r, const Leeway& leeway) {
  if (!s.refusal.empty()) return s;
  if (leeway.tf32 && r.inputs[0].dtype != f32) return none("it multiplies no f32");
  if (leeway.nondeterministic && !only_run(s)) return none("its product repeats its bits anyway");
  s.leeway = leeway;
  if (leeway.tf32 && only_run(s)) s.engine_bytes += kPartialSums;
  return with_products(std::move(s), leeway.tf32);
}

}  // namespace

std::vector<SequenceKernel> with_leeways(const SequenceKernel& k) {
  std::vector<SequenceKernel> out;
  for (const Leeway& leeway : k.leeways) {
    out.push_back(k);
    out.back().name = with_leeway(k.name, leeway);
    out.back().sequence = [=](const KernelRequest& r) { return taking(k.sequence(r), r, leeway); };
    out.back().leeway = leeway;
    if (k.unfolded) out.back().unfolded = [=](const KernelRequest& r) { return with_products(k.unfolded(r), leeway.tf32); };
  }
  out.push_back(k);
  return out;
}

namespace {

constexpr std::string_view kUnfolded = "unfolded_";

std::vector<std::string> engines_for(const SequenceKernel& k, const KernelRequest& r, CudaToolkit& toolkit) {
  const Sequence made = k.sequence(r), unfolded = k.unfolded ? k.unfolded(r) : none("it has no other way");
  if (const Multiply* m = only_product(made)) return cublas_lt::algorithm_names(toolkit, m->product);
  std::vector<std::string> out;
  if (only_run(made)) out = engine_names(made, current_target(toolkit));
  if (const Multiply* m = first_product(unfolded)) {
    std::vector<std::string> further = cublas_lt::algorithm_names(toolkit, m->product);
    further.resize(std::min(further.size(), kMostTimedEngines));
    for (const std::string& name : further) out.push_back(std::string(kUnfolded) + name);
  }
  return out;
}

}  // namespace

std::vector<Kernel> kernels_of(const std::vector<SequenceKernel>& sequences, const std::shared_ptr<CudaToolkit>& toolkit, const GpuCodeRef& code) {
  std::vector<Kernel> out;
  for (const SequenceKernel& each : sequences)
    for (const SequenceKernel& p : with_leeways(each))
      out.push_back({.name = p.name,
                     .op = p.op,
                     .supports = [p](const KernelRequest& r) {
                       if (std::string why = objection(r); !why.empty()) return refuse(why);
                       const Sequence made = p.sequence(r);
                       if (!made.refusal.empty()) return refuse(made.refusal);
                       return Support{true, {}, p.unfolded && r.engine.starts_with(kUnfolded) ? p.unfolded(r).scratch_bytes() : made.scratch_bytes(), false};
                     },
                     .prepare = [p, toolkit, code](const KernelRequest& r) -> std::unique_ptr<Prepared> {
                       const bool unfolded = r.engine.starts_with(kUnfolded);
                       const Sequence made = !unfolded ? p.sequence(r) : p.unfolded ? p.unfolded(r) : none("it has no other way");
                       if (!r.engine.empty() && !(unfolded ? first_product(made) != nullptr : only_run(made) || only_product(made))) throw UserError(fmt::format("[{}] the plan names the engine {}, but here there are none to choose among; derive the plan anew with belfry place", r.op, r.engine));
                       return std::make_unique<Bound>(made, toolkit, code, r.engine.substr(unfolded ? kUnfolded.size() : 0));
                     },
                     .members = p.members,
                     .halves = p.halves,
                     .engines = [p, toolkit](const KernelRequest& r) { return engines_for(p, r, *toolkit); },
                     .leeway = p.leeway});
  return out;
}

}  // namespace belfry::cudnn
