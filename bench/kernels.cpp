// Milliseconds per launch of the kernels that a first convolutional net spends its time in, beside the roof: what the same
// threads reach on a large matrix product (GFLOP/s) and on a large copy (GB/s).
#include <chrono>
#include <cstdlib>

#include <fmt/format.h>

#include <belfry/frontends/builder/builder.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/fusions.h>

namespace belfry {
namespace {

struct Bench {
  explicit Bench(int threads) : table(cpu_kernels()), threads(threads) {}

  HostTensor filled(const LocalType& t) {
    HostTensor out(t.dtype, t.shape);
    if (t.dtype == f32) {
      float next = 0;
      for (float& x : out.data<float>()) x = (next = next > 2 ? -1.7f : next + 0.13f);
    }
    return out;
  }

  /// Median milliseconds of a launch, in rounds of about 20 ms.
  double time(const KernelRequest& r) {
    auto choice = table.choose(r);
    auto kernel = table.prepare(choice.name, r, {choice.support.scratch_bytes, false});
    name = choice.name;
    std::vector<HostTensor> in, out;
    HostTensor scratch(u8, {choice.support.scratch_bytes});
    Arguments a;
    for (const LocalType& t : r.inputs) in.push_back(filled(t));
    for (const LocalType& t : r.outputs) out.push_back(filled(t));
    for (HostTensor& t : in) a.inputs.push_back(t.raw());
    for (HostTensor& t : out) a.outputs.push_back(t.raw());
    a.scratch = scratch.raw();
    auto ms = [&](int n) {
      auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < n; ++i) kernel->launch(a);
      return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() / n;
    };
    int n = std::max(1, static_cast<int>(20 / std::max(ms(2), 1e-4)));
    std::vector<double> rounds;
    for (int i = 0; i < 9; ++i) rounds.push_back(ms(n));
    std::sort(rounds.begin(), rounds.end());
    return rounds[4];
  }

  double time(const std::string& op, const std::vector<TensorType>& inputs, const Attributes& attributes, double* flops = nullptr) {
    Builder b("bench");
    std::vector<Value> values;
    for (std::size_t i = 0; i < inputs.size(); ++i) values.push_back(b.input("x" + std::to_string(i), inputs[i].dtype, inputs[i].shape));
    const Node& n = b.graph().node(b.graph().add(op, values, attributes).id.node);
    KernelRequest r;
    r.op = op;
    r.def = n.op;
    r.attributes = &n.attributes;
    for (const TensorType& t : inputs) r.inputs.push_back(local_type(t, 1));
    for (const TensorType& t : n.types) {
      r.outputs.push_back(local_type(t, 1));
      r.output_types.push_back(t);
      r.wanted.push_back(true);
    }
    r.threads = threads;
    if (flops) *flops = n.op->flops ? n.op->flops(r.inputs, r.outputs, *r.attributes) : static_cast<double>(r.outputs[0].elements());
    return time(r);
  }

  void line(const std::string& what, const std::string& op, const std::vector<TensorType>& inputs, const Attributes& attributes = {}) {
    double flops = 0, ms = time(op, inputs, attributes, &flops);
    fmt::print("{:<44} {:<24} {:9.4f} ms {:8.1f} GFLOP/s\n", what, name, ms, flops / ms / 1e6);
  }

  void fused(const Shape& x, const Shape& filter, const Attributes& attributes) {
    Builder b("fused");
    Value y = b.graph().add("conv2d", {b.input("x", f32, x), b.input("w", f32, filter)}, attributes);
    relu(y + b.input("b", f32, {filter[3]}));
    auto groups = find_cpu_groups(b.graph());
    KernelRequest r;
    r.op = groups.at(0).kind;
    Attributes none;
    r.attributes = &none;
    r.inputs = {{f32, extents_of(x, 1)}, {f32, extents_of(filter, 1)}, {f32, {filter[3].factor}}};
    r.outputs = {{f32, extents_of(y.shape(), 1)}};
    describe_members(b.graph(), groups[0], r);
    r.threads = threads;
    double ms = time(r);
    fmt::print("{:<44} {:<24} {:9.4f} ms\n", "  the same with bias and relu", name, ms);
  }

  void convolution(const std::string& what, const Shape& x, const Shape& filter, const Attributes& attributes) {
    Builder b("shape");
    TensorType y = b.graph().add("conv2d", {b.input("x", f32, x), b.input("w", f32, filter)}, attributes).type();
    line(what, "conv2d", {{f32, x}, {f32, filter}}, attributes);
    fused(x, filter, attributes);
    line("  input gradient", "conv2d_input_gradient", {y, {f32, filter}, {f32, x}}, attributes);
    line("  filter gradient", "conv2d_filter_gradient", {{f32, x}, y, {f32, filter}}, attributes);
  }

  KernelTable table;
  int threads;
  std::string name;
};

void run(int threads) {
  Bench b(threads);
  fmt::print("{} thread{}\n", threads, threads > 1 ? "s" : "");
  b.line("roof: matmul 1024 x 1024 x 1024", "matmul", {{f32, {1024, 1024}}, {f32, {1024, 1024}}});
  std::int64_t copied = 1 << 24;
  fmt::print("{:<44} {:<24} {:9.1f} GB/s\n", "roof: copy of 64 MiB", "", 2 * 4 * static_cast<double>(copied) / b.time("identity", {{f32, {copied}}}, {}) / 1e6);
  b.convolution("conv2d 32x28x28x1 -> 32, 3 x 3", {32, 28, 28, 1}, {3, 3, 1, 32}, {});
  b.convolution("conv2d 32x13x13x32 -> 64, 3 x 3", {32, 13, 13, 32}, {3, 3, 32, 64}, {});
  b.line("matmul 32 x 5408 x 10", "matmul", {{f32, {32, 5408}}, {f32, {5408, 10}}});
  b.line("  gradient of a", "matmul", {{f32, {32, 10}}, {f32, {5408, 10}}}, {{"equation", "az,yz->ay"}});
  b.line("  gradient of b", "matmul", {{f32, {32, 5408}}, {f32, {32, 10}}}, {{"equation", "ay,az->yz"}});
  b.line("bias add 32x26x26x32", "add", {{f32, {32, 26, 26, 32}}, {f32, {32}}});
  b.line("relu 32x26x26x32", "relu", {{f32, {32, 26, 26, 32}}});
  b.line("max_pool2d 32x26x26x32", "max_pool2d", {{f32, {32, 26, 26, 32}}});
  b.line("max_pool2d_gradient", "max_pool2d_gradient", {{f32, {32, 13, 13, 32}}, {u8, {32, 13, 13, 32}}, {f32, {32, 26, 26, 32}}});
  b.line("bias gradient 32x26x26x32 -> 32", "reduce_sum", {{f32, {32, 26, 26, 32}}}, {{"axes", Integers{0, 1, 2}}});
  b.line("adam of 54080", "adam", {{f32, {54080}}, {f32, {54080}}, {f32, {54080}}, {f32, {54080}}, {f32, {}}});
}

}  // namespace
}  // namespace belfry

int main(int argc, char** argv) {
  for (int threads : argc > 1 ? std::vector<int>{std::atoi(argv[1])} : std::vector<int>{1, 2}) belfry::run(threads);
}
