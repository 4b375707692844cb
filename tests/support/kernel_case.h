// One node on one share as a kernel is asked for it, launched on drawn inputs.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include <belfry/executor/kernel.h>
#include <belfry/frontends/builder/builder.h>

namespace belfry::test {

inline constexpr std::int64_t kRows = 5;

/// One node on one share, with its inputs.
struct KernelCase {
  std::string kernel, op;
  std::vector<TensorType> inputs;
  Attributes attributes = {};
  double tolerance = 0;  ///< of |got − wanted| / (1 + |wanted|); 0: the same bits
  int top = 4;           ///< integers are drawn below it
};

inline TensorType real(Shape shape) { return {f32, std::move(shape)}; }
inline TensorType whole(Shape shape) { return {i32, std::move(shape)}; }

inline HostTensor drawn(const LocalType& type, int top, bool positive, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal;
  HostTensor out(type.dtype, type.shape);
  visit_stored(type.dtype, [&]<class T>() {
    for (T& x : out.data<T>()) {
      double v = is_float(type.dtype) ? normal(rng) : static_cast<double>(rng() % static_cast<std::uint64_t>(type.dtype == boolean ? 2 : top));
      x = static_cast<T>(positive ? std::abs(v) + 0.1 : v);
    }
  });
  return out;
}

/// A node in a graph of its own, as a kernel is asked for it.
struct Asked {
  explicit Asked(const KernelCase& c, int threads = 1) : builder("one") {
    std::vector<Value> values;
    for (std::size_t i = 0; i < c.inputs.size(); ++i) values.push_back(builder.input("x" + std::to_string(i), c.inputs[i].dtype, c.inputs[i].shape));
    const Node& n = builder.graph().node(values.empty() ? builder.graph().add(c.op, {}, c.attributes).id.node : builder.graph().add(c.op, values, c.attributes).id.node);
    request.op = c.op;
    request.def = n.op;
    request.attributes = &n.attributes;
    for (const TensorType& t : c.inputs) request.inputs.push_back(local_type(t, kRows));
    for (const TensorType& t : n.types) {
      request.outputs.push_back(local_type(t, kRows));
      request.output_types.push_back(t);
      request.wanted.push_back(true);
    }
    request.threads = threads;
    request.share = {3, kRows, 20, 4, Combine::global_mean};
    bool positive = c.op == "log" || c.op == "log1p" || c.op == "rsqrt" || c.op == "pow" || c.op == "sqrt" || c.op == "batch_norm_gradient" || c.op == "adam" || c.op == "div" || c.kernel.starts_with("simd_a") || c.kernel.starts_with("simd_rms") || c.kernel == "simd_ftrl" || c.kernel == "simd_lamb";
    for (std::size_t i = 0; i < request.inputs.size(); ++i) inputs.push_back(drawn(request.inputs[i], c.top, positive, 17 * i + 1));
  }
  Builder builder;
  KernelRequest request;
  std::vector<HostTensor> inputs;
};

/// Outputs of one launch; scratch is as large as the kernel said, with a watched margin behind it.
inline std::vector<HostTensor> launched(Prepared& kernel, const Asked& a, std::int64_t scratch_bytes, std::pair<int, int> in_place = {-1, -1}) {
  std::vector<HostTensor> outputs;
  for (const LocalType& t : a.request.outputs) outputs.emplace_back(t.dtype, t.shape);
  std::vector<std::byte, AlignedAllocator<std::byte>> scratch(static_cast<std::size_t>(scratch_bytes) + 64, std::byte{0xA5});
  Arguments arguments;
  for (const HostTensor& x : a.inputs) arguments.inputs.push_back(x.raw());
  for (HostTensor& y : outputs) {
    std::memset(y.raw(), 0xA5, y.bytes().size());
    arguments.outputs.push_back(y.raw());
  }
  if (auto [k, i] = in_place; k >= 0) {
    std::memcpy(outputs[static_cast<std::size_t>(k)].raw(), a.inputs[static_cast<std::size_t>(i)].raw(), a.inputs[static_cast<std::size_t>(i)].bytes().size());
    arguments.inputs[static_cast<std::size_t>(i)] = outputs[static_cast<std::size_t>(k)].raw();
  }
  arguments.scratch = scratch.data();
  kernel.launch(arguments);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(scratch[static_cast<std::size_t>(scratch_bytes) + static_cast<std::size_t>(i)], std::byte{0xA5}) << "wrote behind its scratch";
  return outputs;
}

/// The largest |got − wanted| / (1 + |wanted|); NaN beside NaN is none.
inline double distance(const HostTensor& got, const HostTensor& wanted) {
  double worst = 0;
  visit_stored(got.dtype(), [&]<class T>() {
    for (std::size_t i = 0; i < got.data<T>().size(); ++i) {
      double p = static_cast<double>(got.data<T>()[i]), q = static_cast<double>(wanted.data<T>()[i]), d = std::abs(p - q) / (1 + std::abs(q));
      if (p != q && !(d <= worst) && !(std::isnan(p) && std::isnan(q))) worst = std::isnan(d) ? INFINITY : d;
    }
  });
  return worst;
}

}  // namespace belfry::test
