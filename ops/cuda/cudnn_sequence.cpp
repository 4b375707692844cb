#include <belfry/ops/cuda/cudnn_sequence_internal.h>

#include <bit>

#include <fmt/format.h>

#include <belfry/executor/device/cuda/toolkit_internal.h>
#include <belfry/ops/cuda/cublas_lt_internal.h>

namespace belfry::cudnn {

namespace {

/// A sequence on the device of the thread that made it.
struct Bound : Prepared {
  Bound(Sequence p, const std::shared_ptr<CudaToolkit>& toolkit) : sequence(std::move(p)), toolkit(toolkit), driver(toolkit->driver()), engines(engines_of(sequence, current_target(*toolkit))) {
    for (const auto& step : sequence.steps)
      if (auto* t = std::get_if<Transpose>(&step)) transpositions.push_back(cublas_lt::transposition(*toolkit, t->rows, t->columns));
      else if (auto* r = std::get_if<Run>(&step)) at.emplace_back(r->places.size());
  }

  void launch(const Arguments& a) override {
    std::size_t run = 0, transposition = 0;
    for (const auto& step : sequence.steps) {
      if (auto* r = std::get_if<Run>(&step)) {
        for (std::size_t i = 0; i < r->places.size(); ++i) at[run][i] = address(r->places[i], a);
        engines[run]->run(at[run], a.scratch + sequence.own_bytes, a.stream);
        ++run;
      } else if (auto* t = std::get_if<Transpose>(&step)) {
        transpositions[transposition++]->run(address(t->from, a), address(t->to, a), a.stream);
      } else {
        const auto& f = std::get<Fill>(step);
        check_driver(driver, driver.cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(address(f.to, a)), std::bit_cast<unsigned>(f.value), static_cast<std::size_t>(f.count), static_cast<CUstream>(a.stream)), "cuMemsetD32Async");
      }
    }
  }

  static std::byte* address(const Place& p, const Arguments& a) {
    auto i = static_cast<std::size_t>(p.at);
    switch (p.where) {
      case Place::input: return const_cast<std::byte*>(a.inputs[i]);
      case Place::output: return a.outputs[i];
      case Place::scratch: return a.scratch + p.at;
      case Place::nowhere: break;
    }
    return nullptr;
  }

  Sequence sequence;
  std::shared_ptr<CudaToolkit> toolkit;
  const CudaDriver& driver;
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<std::unique_ptr<cublas_lt::Transposition>> transpositions;
  std::vector<std::vector<const void*>> at;  ///< per run
};

}  // namespace

std::string objection(const KernelRequest& r) {
  if (!built()) return "Belfry was built without cuDNN's headers";
  for (const auto* types : {&r.inputs, &r.outputs})
    for (const LocalType& t : *types) {
      if (is_float(t.dtype) && t.dtype != f32) return fmt::format("it takes f32 alone, and one of its tensors is {}", name_of(t.dtype));
      if (t.elements() >= std::int64_t{1} << 31) return "a tensor has more elements than cuDNN counts";
    }
  if (r.inputs[0].elements() == 0 || r.outputs[0].elements() == 0) return "there are no elements";
  return {};
}

std::vector<std::unique_ptr<Engine>> engines_of(const Sequence& sequence, const std::shared_ptr<Target>& target) {
  std::vector<std::unique_ptr<Engine>> out;
  for (const auto& step : sequence.steps)
    if (auto* r = std::get_if<Run>(&step)) out.push_back(find(target, r->graph, {sequence.engine_bytes}));
  return out;
}

std::vector<Kernel> kernels_of(const std::vector<SequenceKernel>& sequences, const std::shared_ptr<CudaToolkit>& toolkit) {
  std::vector<Kernel> out;
  for (const SequenceKernel& p : sequences)
    out.push_back({.name = p.name,
                   .op = p.op,
                   .supports = [sequence = p.sequence](const KernelRequest& r) {
                     if (std::string why = objection(r); !why.empty()) return refuse(why);
                     const Sequence made = sequence(r);
                     if (!made.refusal.empty()) return refuse(made.refusal);
                     return Support{true, {}, made.scratch_bytes(), false};
                   },
                   .prepare = [sequence = p.sequence, toolkit](const KernelRequest& r) -> std::unique_ptr<Prepared> { return std::make_unique<Bound>(sequence(r), toolkit); },
                   .members = p.members});
  return out;
}

}  // namespace belfry::cudnn
