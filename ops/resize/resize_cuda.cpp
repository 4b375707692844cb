#include <belfry/ops/cuda_kernels.h>

#include <belfry/ops/cuda/elementwise_internal.h>

namespace belfry {
namespace {

/// x (pictures, xh, xw, channels) is the picture that is looked at, y the other. The taps are those of taps.h, by whole numbers.
const char* const kTaps = R"(
struct Tap { i64 low, high; double weight; };
inline Tap tap(i64 i, i64 from, i64 to) {
  const i64 doubled = (2 * i + 1) * from;
  if (NEAREST) return Tap{doubled / (2 * to), doubled / (2 * to), 0};
  const i64 p = doubled - to, low = p < 0 ? -1 : p / (2 * to);
  const double weight = (double)(p - low * 2 * to) / (2 * (double)to);
  const i64 high = weight == 0 ? low : low + 1;
  return Tap{low < 0 ? 0 : low, high < from ? high : from - 1, weight};
}
/// What pixel k of x has of position i of y.
inline double share(i64 i, i64 k, i64 from, i64 to) {
  const Tap t = tap(i, from, to);
  return (t.low == k ? 1 - t.weight : 0.0) + (!NEAREST && t.high == k ? t.weight : 0.0);
}
KERNEL void resize(const Args a) {
  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.pictures * a.yh * a.yw * a.channels; u += (i64)gridDim.x * blockDim.x) {
    const i64 c = u % a.channels, column = u / a.channels % a.yw, row = u / a.channels / a.yw % a.yh, picture = u / a.channels / a.yw / a.yh;
    const Tap p = tap(row, a.xh, a.yh), q = tap(column, a.xw, a.yw);
    const T* x = (const T*)a.in[0] + picture * a.xh * a.xw * a.channels + c;
#define PIXEL(r, s) x[((r) * a.xw + (s)) * a.channels]
    T y = PIXEL(p.low, q.low);
    if (!NEAREST) {
      const T right = (T)q.weight, down = (T)p.weight;
      const T top = y + (PIXEL(p.low, q.high) - y) * right, bottom = PIXEL(p.high, q.low) + (PIXEL(p.high, q.high) - PIXEL(p.high, q.low)) * right;
      y = top + (bottom - top) * down;
    }
    ((T*)a.out[0])[u] = y;
  }
}
/// A thread per pixel of x gathers what positions of y give to it, in their order.
KERNEL void give_back(const Args a) {
  for (i64 u = (i64)blockIdx.x * blockDim.x + threadIdx.x; u < a.pictures * a.xh * a.xw * a.channels; u += (i64)gridDim.x * blockDim.x) {
    const i64 c = u % a.channels, column = u / a.channels % a.xw, row = u / a.channels / a.xw % a.xh, picture = u / a.channels / a.xw / a.xh;
    const T* dy = (const T*)a.in[0] + picture * a.yh * a.yw * a.channels + c;
    // Positions whose taps can meet this pixel lie within a pixel of it, on y's scale, and one more for the rounding.
    i64 first_row = (row - 1) * a.yh / a.xh - 1, past_row = (row + 2) * a.yh / a.xh + 2, first_column = (column - 1) * a.yw / a.xw - 1, past_column = (column + 2) * a.yw / a.xw + 2;
    first_row = first_row < 0 ? 0 : first_row;
    past_row = past_row > a.yh ? a.yh : past_row;
    first_column = first_column < 0 ? 0 : first_column;
    past_column = past_column > a.yw ? a.yw : past_column;
    double sum = 0;
    for (i64 i = first_row; i < past_row; ++i) {
      const double down = share(i, row, a.xh, a.yh);
      if (down == 0) continue;
      for (i64 j = first_column; j < past_column; ++j)
        if (const double right = share(j, column, a.xw, a.yw); right != 0) sum += down * right * (double)dy[(i * a.yw + j) * a.channels];
    }
    ((T*)a.out[0])[u] = (T)sum;
  }
}
)";

Kernel kernel(const GpuCodeRef& code, const char* op, const char* entry, bool gradient) {
  return {.name = "nvrtc_resize", .op = op, .supports = [](const KernelRequest& r) { return takes_on_gpu(r, {f32, f64}); }, .prepare = [=](const KernelRequest& r) {
            const Extents &x = gradient ? r.outputs[0].shape : r.inputs[0].shape, &y = gradient ? r.inputs[0].shape : r.outputs[0].shape;
            Generated g(r);
            g.type("T", r.inputs[0].dtype).head(r.attributes->text("method") == "nearest" ? "#define NEAREST 1" : "#define NEAREST 0");
            g.number("pictures", x[0]).number("xh", x[1]).number("xw", x[2]).number("yh", y[1]).number("yw", y[2]).number("channels", x[3]).body(kTaps);
            return g.launch(entry, grid_for(r.outputs[0].elements())).prepare(*code);
          }};
}

}  // namespace

std::vector<Kernel> resize_cuda(const GpuCodeRef& code) { return {kernel(code, "resize", "resize", false), kernel(code, "resize_gradient", "give_back", true)}; }

}  // namespace belfry
