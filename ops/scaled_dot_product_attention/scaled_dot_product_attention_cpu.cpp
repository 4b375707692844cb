#include <cmath>
#include <cstring>
#include <limits>

#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cpu/exponential_internal.h>
#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/packed_kernels_internal.h>
#include <belfry/ops/scaled_dot_product_attention/formulas.h>

namespace belfry {

namespace {

constexpr std::int64_t kBlock = 64;  // of queries, and of keys: all of the scores that is ever held
constexpr std::int64_t kCost = 16;   // of an exponential, in plain operations

/// kRows rows of c (·, n) += a (·, k)·b (k, n), in vectors of 64 bytes; every element is summed in the order of k.
template <class T, int kRows>
[[gnu::always_inline]] inline void add_rows(const T* a, std::int64_t step_a, const T* b, std::int64_t step_b, T* c, std::int64_t step_c, std::int64_t n, std::int64_t k) {
  using Vector [[gnu::vector_size(64)]] = T;
  constexpr std::int64_t kLanes = 64 / sizeof(T);
  std::int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    Vector sums[kRows], right;
    for (int r = 0; r < kRows; ++r) std::memcpy(&sums[r], c + r * step_c + j, sizeof right);
    for (std::int64_t p = 0; p < k; ++p) {
      std::memcpy(&right, b + p * step_b + j, sizeof right);
      for (int r = 0; r < kRows; ++r) sums[r] += right * a[r * step_a + p];
    }
    for (int r = 0; r < kRows; ++r) std::memcpy(c + r * step_c + j, &sums[r], sizeof right);
  }
  for (; j < n; ++j)
    for (int r = 0; r < kRows; ++r) {
      T sum = c[r * step_c + j];
      for (std::int64_t p = 0; p < k; ++p) sum += b[p * step_b + j] * a[r * step_a + p];
      c[r * step_c + j] = sum;
    }
}

/// c (m, n) += a (m, k)·b (k, n); steps from row to row.
template <class T>
BELFRY_CLONES void add_product(const T* a, std::int64_t step_a, const T* b, std::int64_t step_b, T* c, std::int64_t step_c, std::int64_t m, std::int64_t n, std::int64_t k) {
  std::int64_t i = 0;
  for (; i + 4 <= m; i += 4) add_rows<T, 4>(a + i * step_a, step_a, b, step_b, c + i * step_c, step_c, n, k);
  for (; i < m; ++i) add_rows<T, 1>(a + i * step_a, step_a, b, step_b, c + i * step_c, step_c, n, k);
}

/// x (rows, columns) to y (columns, rows), whose rows are kBlock apart.
template <class T>
void transposed(const T* x, std::int64_t step, std::int64_t rows, std::int64_t columns, T* y) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) y[j * kBlock + i] = x[i * step + j];
}

template <class T>
constexpr T kNothing = -std::numeric_limits<T>::infinity();

/// What is subtracted before exp: a query that saw nothing yet has no finite maximum.
template <class T>
T base_of(T top) { return top == kNothing<T> ? T{0} : top; }

constexpr int kLanes = 16;  // maxima and sums side by side, joined in their order

template <class T>
BELFRY_CLONES T greatest_of(const T* x, std::int64_t n, T so_far) {
  T lanes[kLanes];
  std::fill_n(lanes, kLanes, so_far);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] = lanes[l] < x[i + l] ? x[i + l] : lanes[l];
  for (int l = 0; i < n; ++i, ++l) lanes[l] = lanes[l] < x[i] ? x[i] : lanes[l];
  for (T lane : lanes) so_far = std::max(so_far, lane);
  return so_far;
}

/// x becomes exp(x − base); gives the sum.
template <class T>
BELFRY_CLONES double to_weights(T* x, std::int64_t n, T base) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = exponential(x[i] - base);
  T lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] += x[i + l];
  for (int l = 0; i < n; ++i, ++l) lanes[l] += x[i];
  double sum = 0;
  for (T lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

/// Slopes of the scores: weight·(slope of the weight − own), scaled; before that to `kept` where it is given.
template <class T>
BELFRY_CLONES void to_slopes(const T* weights, T* slopes, std::int64_t n, T own, T scale, T* kept) {
  for (std::int64_t i = 0; i < n; ++i) slopes[i] = weights[i] == 0 ? T{0} : weights[i] * (slopes[i] - own);
  if (kept) std::copy_n(slopes, n, kept);
  for (std::int64_t i = 0; i < n; ++i) slopes[i] *= scale;
}

struct Problem : AttentionLayout {
  Problem(const KernelRequest& r, std::size_t mask) : AttentionLayout(*r.attributes, r.inputs[0].shape, r.inputs[1].shape, r.inputs[2].shape), mask(mask), threads(r.threads) {}
  std::int64_t work() const { return heads * queries * keys * (2 * (width + value_width) + kCost); }
  /// Elements of scratch per part.
  std::int64_t forward_scratch() const { return kBlock * (width + kBlock); }
  std::int64_t gradient_scratch() const { return kBlock * (width + value_width + 3 * kBlock); }

  std::size_t mask;  ///< the input
  int threads;
};

/// The mask of one head, if there is one.
template <class T>
struct HeadMask {
  const bool* seen = nullptr;
  const T* added = nullptr;
  std::int64_t query = 0, key = 0;
};

template <class T>
HeadMask<T> mask_of(const Problem& p, const MaskSteps& steps, bool logic, const Arguments& a, std::int64_t head) {
  if (p.mask >= a.inputs.size() || !a.inputs[p.mask] || steps.of_head.empty()) return {};
  std::int64_t at = steps.of_head[static_cast<std::size_t>(head)];
  return {logic ? a.in<bool>(p.mask) + at : nullptr, logic ? nullptr : a.in<T>(p.mask) + at, steps.query, steps.key};
}

/// Scores of queries i0… and keys j0… from k transposed, scaled and masked.
template <class T>
void scores(const Problem& p, const HeadMask<T>& mask, const T* q, const T* kt, std::int64_t i0, std::int64_t j0, std::int64_t m, std::int64_t n, T* s) {
  std::fill_n(s, m * kBlock, T{0});
  add_product<T>(q + i0 * p.step(p.width), p.step(p.width), kt, kBlock, s, kBlock, m, n, p.width);
  const T scale = static_cast<T>(p.scale);
  for (std::int64_t r = 0; r < m; ++r) {
    T* row = s + r * kBlock;
    std::int64_t seen = std::clamp<std::int64_t>(p.seen(i0 + r) - j0, 0, n), at = (i0 + r) * mask.query + j0 * mask.key;
    for (std::int64_t x = 0; x < seen; ++x) row[x] *= scale;
    if (mask.added)
      for (std::int64_t x = 0; x < seen; ++x) {
        T added = mask.added[at + x * mask.key];
        row[x] = added == kNothing<T> ? added : row[x] + added;  // also of a score that is ∞
      }
    if (mask.seen)
      for (std::int64_t x = 0; x < seen; ++x) row[x] = mask.seen[at + x * mask.key] ? row[x] : kNothing<T>;
    std::fill(row + seen, row + n, kNothing<T>);
  }
}

/// Whether query i sees key j.
template <class T>
bool sees(const Problem& p, const HeadMask<T>& mask, std::int64_t i, std::int64_t j) {
  std::int64_t at = i * mask.query + j * mask.key;
  return j < p.seen(i) && (!mask.seen || mask.seen[at]) && (!mask.added || mask.added[at] != kNothing<T>);
}

template <class T>
BELFRY_CLONES bool all_finite(const T* x, std::int64_t n) {
  int other = 0;
  for (std::int64_t i = 0; i < n; ++i) other |= !(std::abs(x[i]) <= std::numeric_limits<T>::max());
  return !other;
}

/// c (m, n) += a (m, k)·b (k, n), with steps from row to row of b and c, where a is 0 for a query and key that do not see each other: of values that are not finite these pairs are left out, since 0·∞ is no number.
template <class T, class Seen>
void add_weighted(const T* a, const T* b, std::int64_t step_b, T* c, std::int64_t step_c, std::int64_t m, std::int64_t n, std::int64_t k, Seen seen) {
  bool finite = true;
  for (std::int64_t x = 0; x < k && finite; ++x) finite = all_finite<T>(b + x * step_b, n);
  if (finite) return add_product<T>(a, kBlock, b, step_b, c, step_c, m, n, k);
  for (std::int64_t r = 0; r < m; ++r)
    for (std::int64_t x = 0; x < k; ++x)
      for (std::int64_t j = 0; j < n && seen(r, x); ++j) c[r * step_c + j] += a[r * kBlock + x] * b[x * step_b + j];
}

template <class T>
void clear(T* x, std::int64_t rows, std::int64_t step, std::int64_t n) {
  for (std::int64_t r = 0; r < rows; ++r) std::fill_n(x + r * step, n, T{0});
}

/// Keys come in blocks; what a query has summed is scaled down whenever a greater score arrives.
template <class T>
void forward_head(const Problem& p, const HeadMask<T>& mask, const T* q, const T* k, const T* v, T* y, T* log_sum, T* scratch) {
  T *kt = scratch, *s = kt + p.width * kBlock;
  const std::int64_t of_k = p.step(p.width), of_v = p.step(p.value_width), of_y = p.y_step();  // from place to place
  for (std::int64_t i0 = 0; i0 < p.queries; i0 += kBlock) {
    std::int64_t m = std::min(kBlock, p.queries - i0), last = p.seen(i0 + m - 1);
    T top[kBlock], *out = y + i0 * of_y;
    double total[kBlock] = {};
    std::fill_n(top, kBlock, kNothing<T>);
    clear(out, m, of_y, p.value_width);
    for (std::int64_t j0 = 0; j0 < last; j0 += kBlock) {
      std::int64_t n = std::min(kBlock, p.keys - j0);
      transposed<T>(k + j0 * of_k, of_k, n, p.width, kt);
      scores<T>(p, mask, q, kt, i0, j0, m, n, s);
      for (std::int64_t r = 0; r < m; ++r) {
        T greatest = greatest_of<T>(s + r * kBlock, n, top[r]), base = base_of(greatest), kept = exponential(top[r] - base);
        total[r] = total[r] * static_cast<double>(kept) + to_weights<T>(s + r * kBlock, n, base);
        if (kept != 1)
          for (std::int64_t x = 0; x < p.value_width; ++x) out[r * of_y + x] *= kept;
        top[r] = greatest;
      }
      add_weighted<T>(s, v + j0 * of_v, of_v, out, of_y, m, p.value_width, n, [&](std::int64_t r, std::int64_t x) { return sees(p, mask, i0 + r, j0 + x); });
    }
    for (std::int64_t r = 0; r < m; ++r) {
      for (std::int64_t x = 0; x < p.value_width; ++x) {
        T& value = out[r * of_y + x];
        value = total[r] == 0 ? T{0} : static_cast<T>(static_cast<double>(value) / total[r]);
      }
      if (log_sum) log_sum[i0 + r] = static_cast<T>(static_cast<double>(base_of(top[r])) + std::log(total[r]));
    }
  }
}

/// Block by block: the weights from the scores and their logarithm, then all that is summed with them.
template <class T>
void gradient_head(const Problem& p, const HeadMask<T>& mask, const T* q, const T* k, const T* v, const T* y, const T* log_sum, const T* dy, T* dq, T* dk, T* dv, T* dscores, T* scratch) {
  T *kt = scratch, *vt = kt + p.width * kBlock, *weights = vt + p.value_width * kBlock, *slopes = weights + kBlock * kBlock, *turned = slopes + kBlock * kBlock;
  const T scale = static_cast<T>(p.scale);
  const std::int64_t w = p.width, vw = p.value_width, of_q = p.step(w), of_v = p.step(vw), of_y = p.y_step();  // from place to place
  clear(dq, p.queries, of_q, w);
  clear(dk, p.keys, of_q, w);
  clear(dv, p.keys, of_v, vw);
  if (dscores) std::fill_n(dscores, p.queries * p.keys, T{0});
  for (std::int64_t j0 = 0; j0 < p.keys; j0 += kBlock) {
    std::int64_t n = std::min(kBlock, p.keys - j0);
    transposed<T>(k + j0 * of_q, of_q, n, w, kt);
    transposed<T>(v + j0 * of_v, of_v, n, vw, vt);
    for (std::int64_t i0 = 0; i0 < p.queries; i0 += kBlock) {
      std::int64_t m = std::min(kBlock, p.queries - i0);
      if (p.seen(i0 + m - 1) <= j0) continue;
      scores<T>(p, mask, q, kt, i0, j0, m, n, weights);
      std::fill_n(slopes, m * kBlock, T{0});
      add_product<T>(dy + i0 * of_y, of_y, vt, kBlock, slopes, kBlock, m, n, vw);
      for (std::int64_t r = 0; r < m; ++r) {
        const T *dy_row = dy + (i0 + r) * of_y, *y_row = y + (i0 + r) * of_y, base = base_of(log_sum[i0 + r]);
        double sum = 0;
        for (std::int64_t x = 0; x < vw; ++x) sum += static_cast<double>(dy_row[x]) * static_cast<double>(y_row[x]);
        to_weights<T>(weights + r * kBlock, n, base);
        to_slopes<T>(weights + r * kBlock, slopes + r * kBlock, n, static_cast<T>(sum), scale, dscores ? dscores + (i0 + r) * p.keys + j0 : nullptr);
      }
      auto key_of_query = [&](std::int64_t r, std::int64_t x) { return sees(p, mask, i0 + r, j0 + x); };
      auto query_of_key = [&](std::int64_t x, std::int64_t r) { return sees(p, mask, i0 + r, j0 + x); };
      transposed<T>(weights, kBlock, m, n, turned);
      add_weighted<T>(turned, dy + i0 * of_y, of_y, dv + j0 * of_v, of_v, n, vw, m, query_of_key);
      add_weighted<T>(slopes, k + j0 * of_q, of_q, dq + i0 * of_q, of_q, m, w, n, key_of_query);
      transposed<T>(slopes, kBlock, m, n, turned);
      add_weighted<T>(turned, q + i0 * of_q, of_q, dk + j0 * of_q, of_q, n, w, m, query_of_key);
    }
  }
}

template <class T>
void run_head(const Problem& p, const HeadMask<T>& mask, const Arguments& a, std::int64_t head, bool backward, T* scratch) {
  std::int64_t q = p.begin(head, p.queries, p.width), k = p.begin(head, p.keys, p.width), v = p.begin(head, p.keys, p.value_width), y = p.y_begin(head), row = head * p.queries;
  if (!backward) return forward_head<T>(p, mask, a.in<T>(0) + q, a.in<T>(1) + k, a.in<T>(2) + v, a.out<T>(0) + y, a.outputs[1] ? a.out<T>(1) + row : nullptr, scratch);
  gradient_head<T>(p, mask, a.in<T>(0) + q, a.in<T>(1) + k, a.in<T>(2) + v, a.in<T>(3) + y, a.in<T>(4) + row, a.in<T>(5) + y, a.out<T>(0) + q, a.out<T>(1) + k, a.out<T>(2) + v,
                   a.outputs[3] ? a.out<T>(3) + row * p.keys : nullptr, scratch);
}

Kernel kernel(const char* op, std::size_t mask, bool backward) {
  return {.name = "block_attention", .op = op,
          .supports = [=](const KernelRequest& r) {
            Support s = takes(r, {f32, f64});
            if (!s.ok) return s;
            Problem p(r, mask);
            s.scratch_bytes = r.threads * (backward ? p.gradient_scratch() : p.forward_scratch()) * static_cast<std::int64_t>(size_of(r.inputs[0].dtype));
            s.in_place = false;
            return s;
          },
          .prepare = [=](const KernelRequest& r) {
            Problem p(r, mask);
            bool masked = mask < r.inputs.size() && r.inputs[mask].shape != Extents{0}, logic = masked && r.inputs[mask].dtype == boolean;
            return visit_float(r.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Prepared> {
              return prepared([=, steps = masked ? MaskSteps(p, r.inputs[mask].shape) : MaskSteps()](const Arguments& a) {
                for_parts(p.heads, p.work(), p.threads, [&](std::int64_t part, std::int64_t first, std::int64_t past) {
                  T* scratch = reinterpret_cast<T*>(a.scratch) + part * (backward ? p.gradient_scratch() : p.forward_scratch());
                  for (std::int64_t head = first; head < past; ++head) run_head<T>(p, mask_of<T>(p, steps, logic, a, head), a, head, backward, scratch);
                });
              });
            });
          }};
}

}  // namespace

std::vector<Kernel> scaled_dot_product_attention_cpu() {
  std::vector<Kernel> out = {kernel("scaled_dot_product_attention", 3, false), kernel("scaled_dot_product_attention_gradient", 6, true)};
  for (std::size_t k = 0; k < 2; ++k) out.push_back(packed(out[k]));
  return out;
}

}  // namespace belfry
