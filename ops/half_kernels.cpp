#include <belfry/ops/half_kernels_internal.h>

#include <algorithm>

namespace belfry {

namespace {

bool any_half(const KernelRequest& r) {
  auto half = [](const LocalType& t) { return is_half(t.dtype); };
  return std::any_of(r.inputs.begin(), r.inputs.end(), half) || std::any_of(r.outputs.begin(), r.outputs.end(), half);
}

/// Halves that are computed with, not only moved.
bool computes_halves(const KernelRequest& r) {
  if (!any_half(r) || r.join) return false;
  return r.def ? !r.def->stores && r.def->takes_halves() : !r.members.empty();
}

LocalType widened(LocalType t) {
  if (is_half(t.dtype)) t.dtype = f32;
  return t;
}

KernelRequest widened(KernelRequest r) {
  for (LocalType& t : r.inputs) t = widened(t);
  for (LocalType& t : r.outputs) t = widened(t);
  for (TensorType& t : r.output_types)
    if (is_half(t.dtype)) t.dtype = f32;
  return r;
}

bool is_read(const KernelRequest& r, std::size_t i) { return !r.def || !r.def->inputs[std::min(i, r.def->inputs.size() - 1)].shape_only; }

/// Where an input or output lies as f32 in the scratch; the kernel's own scratch is behind them.
struct Places {
  explicit Places(const KernelRequest& r) {
    for (std::size_t i = 0; i < r.inputs.size(); ++i) inputs.push_back(is_half(r.inputs[i].dtype) && is_read(r, i) ? next(r.inputs[i]) : -1);
    for (const LocalType& t : r.outputs) outputs.push_back(is_half(t.dtype) ? next(t) : -1);
  }
  std::vector<std::int64_t> inputs, outputs;
  std::int64_t bytes = 0;

 private:
  std::int64_t next(const LocalType& t) {
    constexpr std::int64_t kAligned = 256;  // what GPUs' libraries like
    return std::exchange(bytes, bytes + (widened(t).bytes() + kAligned - 1) / kAligned * kAligned);
  }
};

class InF32 : public Prepared {
 public:
  InF32(const KernelRequest& r, std::unique_ptr<Prepared> inner, const Kernel& cast) : places_(r), inner_(std::move(inner)) {
    for (std::size_t i = 0; i < r.inputs.size(); ++i) in_.push_back(places_.inputs[i] < 0 ? nullptr : made(cast, r.inputs[i], f32, r.threads));
    for (std::size_t k = 0; k < r.outputs.size(); ++k) out_.push_back(places_.outputs[k] < 0 ? nullptr : made(cast, widened(r.outputs[k]), r.outputs[k].dtype, r.threads));
    one_.inputs.resize(1);
    one_.outputs.resize(1);
  }

  void launch(const Arguments& a) override {
    all_ = a;  // as long as the first time: nothing is allocated
    all_.scratch = a.scratch + places_.bytes;
    for (std::size_t i = 0; i < in_.size(); ++i)
      if (in_[i] && a.inputs[i]) convert(*in_[i], a, a.inputs[i], a.scratch + places_.inputs[i]), all_.inputs[i] = one_.outputs[0];
    for (std::size_t k = 0; k < out_.size(); ++k)
      if (out_[k] && a.outputs[k]) all_.outputs[k] = a.scratch + places_.outputs[k];
    inner_->launch(all_);
    for (std::size_t k = 0; k < out_.size(); ++k)
      if (out_[k] && a.outputs[k]) convert(*out_[k], a, all_.outputs[k], a.outputs[k]);
  }
  bool capturable() const override { return inner_->capturable(); }

 private:
  static std::unique_ptr<Prepared> made(const Kernel& cast, const LocalType& from, DType to, int threads) {
    KernelRequest r;
    r.op = cast.op;
    r.inputs = {from};
    r.outputs = {{to, from.shape}};
    r.threads = threads;
    return cast.prepare(r);
  }
  void convert(Prepared& cast, const Arguments& a, const std::byte* from, std::byte* to) {
    one_.inputs[0] = from;
    one_.outputs[0] = to;
    one_.stream = a.stream;
    one_.queue = a.queue;
    cast.launch(one_);
  }

  Places places_;
  std::unique_ptr<Prepared> inner_;
  std::vector<std::unique_ptr<Prepared>> in_, out_;
  Arguments all_, one_;
};

Kernel in_f32(const Kernel& kernel, const Kernel& cast) {
  Kernel out = kernel;
  out.name += kInF32;
  out.supports = [kernel](const KernelRequest& r) {
    if (!computes_halves(r)) return refuse("it is for f16 and bf16");
    Support s = kernel.supports(widened(r));
    s.scratch_bytes += Places(r).bytes;
    return s;
  };
  if (kernel.engines) out.engines = [kernel](const KernelRequest& r) { return kernel.engines(widened(r)); };
  out.prepare = [kernel, cast](const KernelRequest& r) { return std::make_unique<InF32>(r, kernel.prepare(widened(r)), cast); };
  return out;
}

}  // namespace

void add_with_halves(KernelTable& table, const std::vector<Kernel>& kernels, const Kernel& cast) {
  for (const Kernel& k : kernels) {
    Kernel native = k;
    if (!k.halves)
      native.supports = [supports = k.supports](const KernelRequest& r) { return computes_halves(r) ? refuse("it computes no halves itself") : supports(r); };
    table.add(std::move(native));
  }
  for (const Kernel& k : kernels) table.add(in_f32(k, cast));  // one that takes halves may not take all of them
}

}  // namespace belfry
