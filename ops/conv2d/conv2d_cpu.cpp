#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/cpu/onednn_internal.h>
#include <belfry/ops/unary/formulas.h>
#include <belfry/ops/windows.h>

namespace belfry {

namespace {

using onednn::Conv;

Conv conv(Conv::Kind kind, const Attributes& a, const LocalType& x, const LocalType& filter, const LocalType& y) {
  Sliding s(x.shape, filter.shape[0], filter.shape[1], a.integers("strides"), a);
  return {kind, x.shape, filter.shape, y.shape, {s.stride_h, s.stride_w}, {s.h.before, s.w.before}, {s.h.after, s.w.after}, {s.dilation_h, s.dilation_w}, a.integer("groups"), false,
          x.dtype, filter.dtype, y.dtype};
}

Conv forward(const KernelRequest& r) { return conv(Conv::forward, *r.attributes, r.inputs[0], r.inputs[1], r.outputs[0]); }
Conv input_gradient(const KernelRequest& r) { return conv(Conv::input_gradient, *r.attributes, r.outputs[0], r.inputs[1], r.inputs[0]); }
Conv filter_gradient(const KernelRequest& r) { return conv(Conv::filter_gradient, *r.attributes, r.inputs[0], r.outputs[0], r.inputs[1]); }

/// Inputs x, filter and bias, as the members read them.
Conv fused(const KernelRequest& r) {
  Conv c = conv(Conv::forward, r.members[0]->attributes, r.inputs[0], r.inputs[1], r.outputs[0]);
  c.bias = true;
  return c;
}

BELFRY_CLONES void relu(float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = unary_formulas::Relu{}(y[i]);
}

/// Of bf16 by their bits: what is negative, and no NaN, becomes 0. To round before is to round behind.
BELFRY_CLONES void relu(std::uint16_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = (y[i] & 0x8000) && (y[i] & 0x7FFF) <= 0x7F80 ? 0 : y[i];
}

/// oneDNN's own relu behind a convolution turns a NaN into 0, which hides a net that has diverged: relu is a pass of ours.
Kernel kernel(const char* name, const char* op, Conv (*describe)(const KernelRequest&), bool bias_relu = false) {
  return {.name = name,
          .op = op,
          .supports = [=](const KernelRequest& r) {
            if (Support s = onednn_takes(r); !s.ok) return s;
            for (const auto* types : {&r.inputs, &r.outputs})
              for (const LocalType& t : *types)
                if (t.elements() == 0) return refuse("there are no elements");
            if (bias_relu && r.inputs[2].shape != Extents{r.outputs[0].shape[3]}) return refuse("the bias is not per channel");
            if (bias_relu && (r.inputs[2].dtype != r.inputs[1].dtype || r.outputs[0].dtype != r.inputs[0].dtype)) return refuse("its tensors are of two dtypes");
            const Conv c = describe(r);
            // oneDNN's time and memory grow with the way from tap to tap, most of it padding.
            for (std::size_t i : {0, 1})
              if ((c.filter[i] - 1) * c.dilations[i] > std::max<std::int64_t>(4096, 2 * c.x[i + 1])) return refuse("its taps lie far beyond the picture");
            auto primitive = onednn::make(c, r.threads);
            if (!primitive) return refuse("oneDNN has no fast form of it");
            Support s = accept(primitive->scratch_bytes());
            s.in_place = false;
            return s;
          },
          .prepare = [=](const KernelRequest& r) {
            return prepared([=, primitive = onednn::make(describe(r), r.threads), n = r.outputs[0].elements(), threads = r.threads, halves = is_half(r.outputs[0].dtype)](const Arguments& a) {
              if (bias_relu) {
                const std::byte* at[] = {a.inputs[0], a.inputs[1], a.inputs[2], a.outputs[0]};
                primitive->run(at, a.scratch);
                for_ranges(n, n, threads, [&](std::int64_t begin, std::int64_t end) { halves ? relu(a.out<std::uint16_t>(0) + begin, end - begin) : relu(a.out<float>(0) + begin, end - begin); }, 32);
              } else {
                const std::byte* at[] = {a.inputs[0], a.inputs[1], a.outputs[0]};
                primitive->run(at, a.scratch);
              }
            });
          },
          .halves = true};
}

}  // namespace

std::vector<Kernel> conv2d_cpu() {
  std::vector<Kernel> out;
  out.push_back(kernel("onednn_conv2d", "conv2d", forward));
  out.push_back(kernel("onednn_conv2d", "conv2d_input_gradient", input_gradient));
  out.push_back(kernel("onednn_conv2d", "conv2d_filter_gradient", filter_gradient));
  out.push_back(kernel("onednn_conv2d", "conv2d_transpose", input_gradient));
  out.push_back(kernel("onednn_conv2d_bias_relu", kConv2dBiasRelu, fused, true));
  out.back().members = {"conv2d", "add", "relu"};
  return out;
}

}  // namespace belfry
