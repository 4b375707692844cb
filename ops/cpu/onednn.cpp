#include <belfry/ops/cpu/onednn_internal.h>

#include <omp.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <belfry/graph/error.h>
#include <belfry/ops/cpu/kernel_support_internal.h>

namespace belfry::onednn {

namespace {

using dnnl::memory;
using Tag = memory::format_tag;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

/// One for each thread, not for each of thousands of launches.
const dnnl::stream& stream() {
  static thread_local const dnnl::stream mine(engine());
  return mine;
}

/// oneDNN takes its thread count from the calling thread's setting, when a primitive is made and when it runs; fewer than it
/// was made for is a hang.
class ThreadGuard {
 public:
  explicit ThreadGuard(int threads) : before_(omp_get_max_threads()), changed_(before_ != threads) {
    if (changed_) omp_set_num_threads(threads);
  }
  ~ThreadGuard() {
    if (changed_) omp_set_num_threads(before_);
  }
  ThreadGuard(const ThreadGuard&) = delete;
  ThreadGuard& operator=(const ThreadGuard&) = delete;

 private:
  int before_;
  bool changed_;
};

std::int64_t rounded(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// What oneDNN keeps of a buffer, most of it a description, nearly a KiB; and where it last was.
struct Tensor {
  explicit Tensor(const memory::desc& desc) : memory(desc, engine(), nullptr) {}
  dnnl::memory memory;
  std::byte* at = nullptr;
};

/// The tensors of one thread, by description: its primitives run one after the other, so that all use the same.
class Tensors {
 public:
  static Tensors& mine() {
    static thread_local Tensors tensors;
    return tensors;
  }
  /// One that is none of `taken`.
  std::shared_ptr<Tensor> get(const memory::desc& desc, const std::vector<std::shared_ptr<Tensor>>& taken) {
    if (tensors_.size() >= most_) {
      for (auto& entry : tensors_) drop_expired(entry.second);
      std::erase_if(tensors_, [](const auto& entry) { return entry.second.empty(); });
      most_ = 2 * tensors_.size() + 64;
    }
    auto& alike = tensors_[{desc.dims(), desc.get_size()}];
    drop_expired(alike);
    for (const auto& t : alike)  // which another thread may let go of just now
      if (auto out = t.lock(); out && out->memory.get_desc() == desc && std::find(taken.begin(), taken.end(), out) == taken.end()) return out;
    auto out = std::make_shared<Tensor>(desc);
    alike.push_back(out);
    return out;
  }

 private:
  using Alike = std::vector<std::weak_ptr<Tensor>>;
  static void drop_expired(Alike& alike) {
    std::erase_if(alike, [](const auto& t) { return t.expired(); });
  }

  std::map<std::pair<memory::dims, std::size_t>, Alike> tensors_;
  std::size_t most_ = 64;  ///< with so many it is looked whether they are in use
};

/// Stages that run one after the other (a repack of the filter, the work, a repack back) on buffers and scratch.
class Stages : public Primitive {
 public:
  explicit Stages(int threads) : threads_(threads) {}

  std::int64_t scratch_bytes() const override { return scratch_; }
  std::string implementation() const override { return implementation_; }

  /// A caller's buffer.
  int buffer(int index, const memory::desc& desc) { return slot(desc, index, 0); }
  /// Bytes of the scratch.
  int scratch(const memory::desc& desc) {
    std::int64_t at = scratch_;
    scratch_ += rounded(static_cast<std::int64_t>(desc.get_size()));
    return slot(desc, -1, at);
  }
  template <class Work>
  void add(const typename Work::primitive_desc& pd, std::initializer_list<std::pair<int, int>> arguments) {
    Stage stage{Work(pd), {}};
    for (auto [kind, s] : arguments) stage.arguments.push_back({kind, tensors_[static_cast<std::size_t>(s)]->memory.get()});
    if (pd.scratchpad_desc().get_size() > 0) stage.arguments.push_back({DNNL_ARG_SCRATCHPAD, tensors_[static_cast<std::size_t>(scratch(pd.scratchpad_desc()))]->memory.get()});
    stages_.push_back(std::move(stage));
  }
  void name(std::string implementation) { implementation_ = std::move(implementation); }

  void run(std::span<const std::byte* const> buffers, std::byte* scratch) override {
    ThreadGuard guard(threads_);
    if (owner_ != &Tensors::mine()) use_mine();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const Slot& s = slots_[i];
      std::byte* at = s.buffer >= 0 ? const_cast<std::byte*>(buffers[static_cast<std::size_t>(s.buffer)]) : scratch + s.offset;
      if (at == tensors_[i]->at) continue;
      check(dnnl_memory_set_data_handle(tensors_[i]->memory.get(), at), "dnnl_memory_set_data_handle");
      tensors_[i]->at = at;
    }
    for (const Stage& s : stages_)
      check(dnnl_primitive_execute(s.primitive.get(), stream().get(), static_cast<int>(s.arguments.size()), s.arguments.data()), "dnnl_primitive_execute");
  }

 private:
  struct Slot {
    int buffer;
    std::int64_t offset;
  };
  struct Stage {
    dnnl::primitive primitive;
    std::vector<dnnl_exec_arg_t> arguments;
  };

  int slot(const memory::desc& desc, int buffer, std::int64_t offset) {
    slots_.push_back({buffer, offset});
    tensors_.push_back(Tensors::mine().get(desc, tensors_));
    return static_cast<int>(slots_.size()) - 1;
  }
  /// Another thread runs it than made it: on tensors of its own.
  void use_mine() {
    std::vector<std::shared_ptr<Tensor>> mine;  // all, before one is used: the making may fail
    for (const auto& theirs : tensors_) mine.push_back(Tensors::mine().get(theirs->memory.get_desc(), mine));
    for (Stage& stage : stages_)
      for (dnnl_exec_arg_t& a : stage.arguments) {
        const auto theirs = std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t->memory.get() == a.memory; });
        a.memory = mine[static_cast<std::size_t>(theirs - tensors_.begin())]->memory.get();
      }
    tensors_ = std::move(mine);
    owner_ = &Tensors::mine();
  }
  static void check(dnnl_status_t status, const char* call) {
    if (status != dnnl_success) throw DeviceError(fmt::format("oneDNN: {} failed with status {}", call, static_cast<int>(status)));
  }

  int threads_;
  const Tensors* owner_ = &Tensors::mine();
  std::vector<Slot> slots_;
  std::vector<std::shared_ptr<Tensor>> tensors_;  ///< of the slots
  std::vector<Stage> stages_;
  std::int64_t scratch_ = 0;
  std::string implementation_;
};

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

memory::data_type type_of(DType dtype) { return dtype == bf16 ? memory::data_type::bf16 : memory::data_type::f32; }

/// oneDNN speaks of (n, c, h, w) and (o, i, h, w), whatever the order in memory.
memory::desc pixels(const Extents& e, DType dtype) { return {{e[0], e[3], e[1], e[2]}, type_of(dtype), Tag::nhwc}; }
/// With groups the outputs are (group, output of the group), also in memory.
memory::desc filter(const Extents& e, std::int64_t groups, DType dtype, bool any) {
  if (groups == 1) return {{e[3], e[2], e[0], e[1]}, type_of(dtype), any ? Tag::any : Tag::hwio};
  return {{groups, e[3] / groups, e[2], e[0], e[1]}, type_of(dtype), any ? Tag::any : Tag::hwigo};
}

/// A repack through the scratch where the primitive wants the filter in an order of its own.
void repack(Stages& out, const memory::desc& from, int from_slot, const memory::desc& to, int to_slot) {
  out.add<dnnl::reorder>(dnnl::reorder::primitive_desc(engine(), from, engine(), to, attributes()), {{DNNL_ARG_FROM, from_slot}, {DNNL_ARG_TO, to_slot}});
}

// oneDNN 2 describes an operation before its primitive, oneDNN 3 the primitive alone.
template <class Work, class... Facts>
typename Work::primitive_desc described(const dnnl::primitive_attr& attr, const Facts&... facts) {
#if DNNL_VERSION_MAJOR < 3
  return {typename Work::desc(facts...), attr, engine()};
#else
  return {engine(), facts..., attr};
#endif
}
/// Of a gradient: `hint` is what goes forward.
template <class Work, class Hint, class... Facts>
typename Work::primitive_desc described_back(const Hint& hint, const Facts&... facts) {
#if DNNL_VERSION_MAJOR < 3
  return {typename Work::desc(facts...), attributes(), engine(), hint};
#else
  return {engine(), facts..., hint, attributes()};
#endif
}

using Forward = dnnl::convolution_forward;
using InputGradient = dnnl::convolution_backward_data;
using FilterGradient = dnnl::convolution_backward_weights;

struct ConvDescs {
  explicit ConvDescs(const Conv& c)
      : x(pixels(c.x, c.of_x)), y(pixels(c.y, c.of_y)), hwio(filter(c.filter, c.groups, c.of_filter, false)), any(filter(c.filter, c.groups, c.of_filter, true)),
        bias({c.filter[3]}, type_of(c.of_filter), Tag::x),
        strides(c.strides), before(c.before), after(c.after), skipped{c.dilations[0] - 1, c.dilations[1] - 1} {}
  /// Forward and its gradients share this hint.
  Forward::primitive_desc forward(bool with_bias) const {
    auto kind = dnnl::prop_kind::forward_training;
    auto direct = dnnl::algorithm::convolution_direct;
    return with_bias ? described<Forward>(attributes(), kind, direct, x, any, bias, y, strides, skipped, before, after)
                     : described<Forward>(attributes(), kind, direct, x, any, y, strides, skipped, before, after);
  }
  memory::desc x, y, hwio, any, bias;
  memory::dims strides, before, after, skipped;  ///< skipped: elements between taps
};

void build(Stages& out, const Conv& c, const ConvDescs& d) {
  auto direct = dnnl::algorithm::convolution_direct;
  if (c.kind == Conv::forward) {
    auto pd = d.forward(c.bias);
    out.name(pd.impl_info_str());
    int x = out.buffer(0, d.x), w = out.buffer(1, d.hwio), y = out.buffer(c.bias ? 3 : 2, d.y), inner = w;
    if (pd.weights_desc() != d.hwio) repack(out, d.hwio, w, pd.weights_desc(), inner = out.scratch(pd.weights_desc()));
    if (c.bias) out.add<Forward>(pd, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, inner}, {DNNL_ARG_BIAS, out.buffer(2, d.bias)}, {DNNL_ARG_DST, y}});
    else out.add<Forward>(pd, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, inner}, {DNNL_ARG_DST, y}});
  } else if (c.kind == Conv::input_gradient) {
    auto pd = described_back<InputGradient>(d.forward(false), direct, d.x, d.any, d.y, d.strides, d.skipped, d.before, d.after);
    out.name(pd.impl_info_str());
    int dy = out.buffer(0, d.y), w = out.buffer(1, d.hwio), dx = out.buffer(2, d.x), inner = w;
    if (pd.weights_desc() != d.hwio) repack(out, d.hwio, w, pd.weights_desc(), inner = out.scratch(pd.weights_desc()));
    out.add<InputGradient>(pd, {{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_WEIGHTS, inner}, {DNNL_ARG_DIFF_SRC, dx}});
  } else {
    auto pd = described_back<FilterGradient>(d.forward(false), direct, d.x, d.any, d.y, d.strides, d.skipped, d.before, d.after);
    out.name(pd.impl_info_str());
    int x = out.buffer(0, d.x), dy = out.buffer(1, d.y), dw = out.buffer(2, d.hwio), inner = dw;
    bool back = pd.diff_weights_desc() != d.hwio;
    if (back) inner = out.scratch(pd.diff_weights_desc());
    out.add<FilterGradient>(pd, {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_DIFF_WEIGHTS, inner}});
    if (back) repack(out, pd.diff_weights_desc(), inner, d.hwio, dw);
  }
}

void build(Stages& out, const Product& p) {
  auto desc = [&](std::int64_t rows, std::int64_t columns, const Extents& strides, DType dtype) {
    memory::dims dims, steps;
    for (std::size_t i = 0; i < p.batch.size(); ++i) {
      dims.push_back(strides[i] > 0 ? p.batch[i] : 1);
      steps.push_back(strides[i] > 0 ? strides[i] : rows * columns);
    }
    dims.insert(dims.end(), {rows, columns});
    steps.insert(steps.end(), strides.end() - 2, strides.end());
    return memory::desc(dims, type_of(dtype), steps);
  };
  memory::desc a = desc(p.m, p.k, p.a, p.dtype), b = desc(p.k, p.n, p.b, p.dtype), y = desc(p.m, p.n, p.y, p.result);
  dnnl::primitive_attr attr = attributes();
  if (p.accumulate) {
    dnnl::post_ops ops;
    ops.append_sum();
    attr.set_post_ops(ops);
  }
  auto pd = described<dnnl::matmul>(attr, a, b, y);
  out.name(pd.impl_info_str());
  out.add<dnnl::matmul>(pd, {{DNNL_ARG_SRC, out.buffer(0, a)}, {DNNL_ARG_WEIGHTS, out.buffer(1, b)}, {DNNL_ARG_DST, out.buffer(2, y)}});
}

/// Null for what oneDNN has no fast form of.
template <class Build>
std::unique_ptr<Primitive> made(int threads, Build build) {
  ThreadGuard guard(threads);
  try {
    auto out = std::make_unique<Stages>(threads);
    build(*out);
    if (out->implementation().starts_with("ref")) return nullptr;
    return out;
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_unimplemented) return nullptr;
    throw DeviceError(fmt::format("oneDNN: {} (status {})", e.message, static_cast<int>(e.status)));
  }
}

}  // namespace

bool has_bf16() {
  // A set has the bits of those that it includes.
  static const int kIsa = static_cast<int>(dnnl::get_effective_cpu_isa()), kWanted = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
  return (kIsa & kWanted) == kWanted;
}

std::unique_ptr<Primitive> make(const Conv& c, int threads) {
  return made(threads, [&](Stages& out) { build(out, c, ConvDescs(c)); });
}

std::unique_ptr<Primitive> make(const Product& p, int threads) {
  std::int64_t most = std::max({p.m, p.n, p.k, elements(p.batch)});
  if (most > std::numeric_limits<std::int32_t>::max() || p.batch.size() > DNNL_MAX_NDIMS - 2) return nullptr;  // it counts in 32 bits there
  return made(threads, [&](Stages& out) { build(out, p); });
}

}  // namespace belfry::onednn

namespace belfry {

Support onednn_takes(const KernelRequest& r) {
  if (r.inputs[0].dtype != bf16) return takes(r, {f32});
  return onednn::has_bf16() ? accept() : refuse("the processor multiplies no bf16, and f32 is faster");
}

}  // namespace belfry
