#include "cudnn_on_host.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include <gtest/gtest.h>

#include "host_gpu.h"
#include "kernel_case.h"

namespace belfry::test {

namespace {

using namespace cudnn;

/// A tensor of a graph with its elements.
struct Values {
  const Tensor* t;
  float* data;
  float value = 0;  ///< of a scalar

  std::int64_t size(std::size_t i) const { return t->dims[i]; }
  /// An axis of one element stands for all.
  float& at(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    if (t->value) return value = *t->value;
    std::int64_t index[] = {n, c, h, w}, offset = 0;
    for (std::size_t i = 0; i < 4; ++i) offset += (t->dims[i] == 1 ? 0 : index[i]) * t->strides[i];
    return data[offset];
  }
};

/// Elements from the first to the last, and what lies between them.
std::int64_t span_of(const Tensor& t) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < t.dims.size(); ++i) {
    if (t.dims[i] == 0) return 0;
    last += (t.dims[i] - 1) * t.strides[i];
  }
  return last + 1;
}

template <class F>
void for_each(const Tensor& t, const F& f) {
  for (std::int64_t n = 0; n < t.dims[0]; ++n)
    for (std::int64_t c = 0; c < t.dims[1]; ++c)
      for (std::int64_t h = 0; h < t.dims[2]; ++h)
        for (std::int64_t w = 0; w < t.dims[3]; ++w) f(n, c, h, w);
}

void convolve(const Operation& o, Values x, Values filter, Values y) {
  Values made = o.kind == Kind::conv ? y : o.kind == Kind::conv_input_gradient ? x : filter;
  for_each(*made.t, [&](auto... at) { made.at(at...) = 0; });
  const std::int64_t in = filter.size(1), groups = x.size(1) / in, outs = y.size(1) / groups;
  for_each(*y.t, [&](std::int64_t n, std::int64_t k, std::int64_t p, std::int64_t q) {
    for (std::int64_t c = 0; c < in; ++c)
      for (std::int64_t i = 0; i < filter.size(2); ++i)
        for (std::int64_t j = 0; j < filter.size(3); ++j) {
          std::int64_t row = p * o.window.strides[0] - o.window.before[0] + i * o.window.dilations[0], column = q * o.window.strides[1] - o.window.before[1] + j * o.window.dilations[1];
          if (row < 0 || row >= x.size(2) || column < 0 || column >= x.size(3)) continue;
          float &of_x = x.at(n, k / outs * in + c, row, column), &of_filter = filter.at(k, c, i, j), &of_y = y.at(n, k, p, q);
          if (o.kind == Kind::conv) of_y += of_x * of_filter;
          else if (o.kind == Kind::conv_input_gradient) of_x += of_filter * of_y;
          else of_filter += of_x * of_y;
        }
  });
}

/// Pixels of window (p, q) of channel c that lie on the picture: f(row, column, how many they are).
template <class F>
void for_each_pixel(const Operation& o, const Values& x, std::int64_t p, std::int64_t q, const F& f) {
  std::int64_t top = p * o.window.strides[0] - o.window.before[0], left = q * o.window.strides[1] - o.window.before[1];
  std::int64_t bottom = std::min(top + o.window.size[0], x.size(2)), right = std::min(left + o.window.size[1], x.size(3));
  top = std::max<std::int64_t>(top, 0), left = std::max<std::int64_t>(left, 0);
  for (std::int64_t i = top; i < bottom; ++i)
    for (std::int64_t j = left; j < right; ++j) f(i, j, static_cast<float>((bottom - top) * (right - left)));
}

void pool(const Operation& o, Values from, Values to) {
  if (o.kind == Kind::avg_pool_gradient) {
    for_each(*to.t, [&](auto... at) { to.at(at...) = 0; });
    for_each(*from.t, [&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q) {
      for_each_pixel(o, to, p, q, [&](std::int64_t i, std::int64_t j, float count) { to.at(n, c, i, j) += from.at(n, c, p, q) / count; });
    });
    return;
  }
  for_each(*to.t, [&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q) {
    float best = -std::numeric_limits<float>::infinity(), sum = 0;
    for_each_pixel(o, from, p, q, [&](std::int64_t i, std::int64_t j, float count) {
      best = std::max(best, from.at(n, c, i, j));
      sum += from.at(n, c, i, j) / count;
    });
    to.at(n, c, p, q) = o.kind == Kind::max_pool ? best : sum;
  });
}

void batch_norm(std::vector<Values> t) {
  Values x = t[0];
  const double count = static_cast<double>(x.size(0) * x.size(2) * x.size(3));
  for (std::int64_t c = 0; c < x.size(1); ++c) {
    double mean = 0, variance = 0;
    auto all = [&](const auto& f) { for_each(*x.t, [&](std::int64_t n, std::int64_t k, std::int64_t h, std::int64_t w) { if (k == c) f(n, h, w); }); };
    all([&](auto n, auto h, auto w) { mean += x.at(n, c, h, w) / count; });
    all([&](auto n, auto h, auto w) { variance += std::pow(x.at(n, c, h, w) - mean, 2) / count; });
    const double inverse = 1 / std::sqrt(variance + t[3].at(0, 0, 0, 0)), share = t[6].at(0, 0, 0, 0);
    all([&](auto n, auto h, auto w) { t[7].at(n, c, h, w) = static_cast<float>((x.at(n, c, h, w) - mean) * inverse * t[1].at(0, c, 0, 0) + t[2].at(0, c, 0, 0)); });
    t[8].at(0, c, 0, 0) = static_cast<float>(mean);
    t[9].at(0, c, 0, 0) = static_cast<float>(inverse);
    t[10].at(0, c, 0, 0) = static_cast<float>((1 - share) * t[4].at(0, c, 0, 0) + share * mean);
    t[11].at(0, c, 0, 0) = static_cast<float>((1 - share) * t[5].at(0, c, 0, 0) + share * variance * count / (count - 1));
  }
}

void batch_norm_gradient(std::vector<Values> t) {
  Values x = t[0], dy = t[4];
  const double count = static_cast<double>(x.size(0) * x.size(2) * x.size(3));
  for (std::int64_t c = 0; c < x.size(1); ++c) {
    double dgamma = 0, dbeta = 0, inverse = t[2].at(0, c, 0, 0);
    auto normal = [&](auto n, auto h, auto w) { return (x.at(n, c, h, w) - t[1].at(0, c, 0, 0)) * inverse; };
    auto all = [&](const auto& f) { for_each(*x.t, [&](std::int64_t n, std::int64_t k, std::int64_t h, std::int64_t w) { if (k == c) f(n, h, w); }); };
    all([&](auto n, auto h, auto w) { dgamma += dy.at(n, c, h, w) * normal(n, h, w), dbeta += dy.at(n, c, h, w); });
    all([&](auto n, auto h, auto w) { t[5].at(n, c, h, w) = static_cast<float>(t[3].at(0, c, 0, 0) * inverse * (dy.at(n, c, h, w) - dbeta / count - normal(n, h, w) * dgamma / count)); });
    t[6].at(0, c, 0, 0) = static_cast<float>(dgamma);
    t[7].at(0, c, 0, 0) = static_cast<float>(dbeta);
  }
}

void multiply(Values a, Values b, Values y) {
  for_each(*y.t, [&](auto n, auto h, auto i, auto j) {
    double sum = 0;
    for (std::int64_t k = 0; k < a.size(3); ++k) sum += static_cast<double>(a.at(n, h, i, k)) * static_cast<double>(b.at(n, h, k, j));
    y.at(n, h, i, j) = static_cast<float>(sum);
  });
}

void reduce(Kind kind, Values x, Values y) {
  for_each(*y.t, [&](auto... at) { y.at(at...) = kind == Kind::max_over ? -std::numeric_limits<float>::infinity() : 0; });
  for_each(*x.t, [&](auto... at) { y.at(at...) = kind == Kind::max_over ? std::max(y.at(at...), x.at(at...)) : y.at(at...) + x.at(at...); });
}

float pointwise(Kind kind, float a, float b) {
  switch (kind) {
    case Kind::add: return a + b;
    case Kind::sub: return a - b;
    case Kind::mul: return a * b;
    case Kind::div: return a / b;
    case Kind::sqrt: return std::sqrt(a);
    case Kind::reciprocal: return 1 / a;
    case Kind::identity: return a;
    case Kind::exp: return std::exp(a);
    case Kind::log: return std::log(a);
    case Kind::at_least: return a >= b;
    default: throw std::logic_error("no pointwise operation");
  }
}

void run(const Operation& o, std::vector<Values> t) {
  switch (o.kind) {
    case Kind::conv:
    case Kind::conv_input_gradient:
    case Kind::conv_filter_gradient: return convolve(o, t[0], t[1], t[2]);
    case Kind::matmul: return multiply(t[0], t[1], t[2]);
    case Kind::max_over:
    case Kind::sum_over: return reduce(o.kind, t[0], t[1]);
    case Kind::index: return for_each(*t[1].t, [&](auto... at) { t[1].at(at...) = static_cast<float>(std::array{at...}[static_cast<std::size_t>(o.axis)]); });
    case Kind::select: return for_each(*t[3].t, [&](auto... at) { t[3].at(at...) = t[0].at(at...) != 0 ? t[1].at(at...) : t[2].at(at...); });
    case Kind::reshape: std::copy_n(t[0].data, span_of(*t[0].t), t[1].data); return;
    case Kind::max_pool:
    case Kind::avg_pool:
    case Kind::avg_pool_gradient: return pool(o, t[0], t[1]);
    case Kind::batch_norm: return batch_norm(t);
    case Kind::batch_norm_gradient: return batch_norm_gradient(t);
    default: for_each(*t.back().t, [&](auto... at) { t.back().at(at...) = pointwise(o.kind, t[0].at(at...), t[t.size() - 2].at(at...)); });
  }
}

float* address(const Place& p, const Arguments& a) {
  std::byte* out = p.where == Place::input ? const_cast<std::byte*>(a.inputs[static_cast<std::size_t>(p.at)]) : p.where == Place::output ? a.outputs[static_cast<std::size_t>(p.at)] : a.scratch + p.at;
  return reinterpret_cast<float*>(out + p.past);
}

void run(const Run& r, const Arguments& a) {
  std::vector<std::vector<float>> held(r.graph.tensors.size());
  std::vector<Values> values;
  for (std::size_t i = 0; i < held.size(); ++i) {
    const Tensor& t = r.graph.tensors[i];
    if (t.inner) held[i].resize(static_cast<std::size_t>(span_of(t)));
    values.push_back({&t, t.inner ? held[i].data() : t.value ? nullptr : address(r.places[i], a)});
  }
  for (const Operation& o : r.graph.operations) {
    std::vector<Values> mine;
    for (std::size_t i : o.tensors) mine.push_back(values[i]);
    run(o, mine);
  }
}

}  // namespace

std::vector<HostTensor> by_reference(const KernelRequest& r, const std::vector<HostTensor>& inputs) {
  std::vector<HostTensor> outputs;
  for (const LocalType& t : r.outputs) outputs.emplace_back(t.dtype, t.shape);
  Arguments a;
  for (const HostTensor& x : inputs) a.inputs.push_back(x.raw());
  for (std::size_t i = 0; i < outputs.size(); ++i) a.outputs.push_back(outputs[i].raw());
  KernelTable().prepare(kReferenceKernel, r)->launch(a);
  return outputs;
}

void multiply_on_host(const cublas_lt::Product& p, const float* a, const float* b, float* y, const float* bias) {
  const cublas_lt::ColumnMajor c = cublas_lt::column_major(p);
  const float *first = c.swapped ? a : b, *second = c.swapped ? b : a;
  for (const auto* m : {&c.first, &c.second, &c.y})
    if (m->step < m->rows) throw std::logic_error("columns overlap");
  auto at = [](const cublas_lt::ColumnMajor::Matrix& m, std::int64_t batch, std::int64_t i, std::int64_t j) { return batch * m.batch_step + (m.transposed ? j + i * m.step : i + j * m.step); };
  const std::int64_t inner = c.first.transposed ? c.first.rows : c.first.columns;
  for (std::int64_t batch = 0; batch < p.batch; ++batch)
    for (std::int64_t j = 0; j < c.y.columns; ++j)
      for (std::int64_t i = 0; i < c.y.rows; ++i) {
        double sum = p.accumulate ? y[at(c.y, batch, i, j)] : 0;
        for (std::int64_t k = 0; k < inner; ++k) sum += static_cast<double>(first[at(c.first, batch, i, k)]) * static_cast<double>(second[at(c.second, batch, k, j)]);
        if (p.epilogue != cublas_lt::Epilogue::none) sum += static_cast<double>(bias[i]);
        if (p.epilogue == cublas_lt::Epilogue::bias_gelu_tanh) sum *= 0.5 * (1 + std::tanh(0.79788456080286535588 * (sum + 0.044715 * sum * sum * sum)));
        y[at(c.y, batch, i, j)] = static_cast<float>(sum);
      }
}

void run_on_host(const Sequence& sequence, const Arguments& a) {
  static const auto gpu = std::make_shared<HostGpu>();
  for (const auto& step : sequence.steps) {
    if (const auto* r = std::get_if<Run>(&step)) run(*r, a);
    else if (const auto* m = std::get_if<Multiply>(&step)) {
      if (m->added.where != Place::nowhere) std::copy_n(address(m->added, a), m->product.batch * m->product.m * m->product.n, address(m->y, a));
      multiply_on_host(m->product, address(m->a, a), address(m->b, a), address(m->y, a), address(m->bias, a));
    } else if (const auto* u = std::get_if<Unfold>(&step)) {
      Arguments one{{reinterpret_cast<const std::byte*>(address(u->from, a))}, {reinterpret_cast<std::byte*>(address(u->to, a))}};
      unfold_kernel(*gpu, *u)->launch(one);
    } else if (const auto* f = std::get_if<Fill>(&step)) std::fill_n(address(f->to, a), f->count, f->value);
    else if (const auto* c = std::get_if<Cast>(&step)) std::copy_n(address(c->from, a), c->count, address(c->to, a));
    else {
      const auto& t = std::get<Transpose>(step);
      for (std::int64_t i = 0; i < t.rows; ++i)
        for (std::int64_t j = 0; j < t.columns; ++j) address(t.to, a)[j * t.rows + i] = address(t.from, a)[i * t.columns + j];
    }
  }
}

std::vector<SequenceKernel> kernels_of_rooms() {
  std::vector<SequenceKernel> out;
  for (auto room : {attention_sequences, avg_pool2d_sequences, batch_norm_sequences, conv2d_sequences, max_pool2d_sequences, packed_attention_sequences})
    for (SequenceKernel& k : room()) out.push_back(std::move(k));
  return out;
}

Sequence sequence_of(const KernelRequest& r) {
  for (const SequenceKernel& k : kernels_of_rooms())
    if (k.op == r.op) return k.sequence(r);
  return none("no kernel");
}

std::vector<HostTensor> on_host(const Sequence& s, const KernelRequest& r, std::vector<HostTensor>& inputs) {
  std::vector<HostTensor> outputs;
  for (const LocalType& t : r.outputs) outputs.emplace_back(t.dtype, t.shape);
  std::vector<float> scratch(static_cast<std::size_t>(s.own_bytes / 4), NAN);
  Arguments a;
  for (const HostTensor& x : inputs) a.inputs.push_back(x.raw());
  for (std::size_t i = 0; i < outputs.size(); ++i) a.outputs.push_back(r.wanted.empty() || r.wanted[i] ? outputs[i].raw() : nullptr);
  a.scratch = reinterpret_cast<std::byte*>(scratch.data());
  run_on_host(s, a);
  return outputs;
}

void expect_as_reference(const Sequence& s, const KernelRequest& r, std::vector<HostTensor>& inputs, const std::string& what) {
  ASSERT_EQ(s.refusal, "") << what;
  std::vector<HostTensor> got = on_host(s, r, inputs), wanted = by_reference(r, inputs);
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!r.wanted.empty() && !r.wanted[i]) continue;
    EXPECT_LT(distance(got[i], wanted[i]), 2e-5) << what << ", output " << i;
  }
}

}  // namespace belfry::test
