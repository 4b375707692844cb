#include <belfry/ops/matmul/matmul.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <vector>

#include <fmt/format.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/loops.h>

namespace belfry {

namespace {

Letters letters_of(const SplitContext& c) {
  return belfry::letters_of(c.attributes.text("equation"), static_cast<int>(c.inputs[0].shape.size()), static_cast<int>(c.inputs[1].shape.size()));
}

/// Letters, a comma, letters, an arrow, letters.
bool is_equation(const std::string& text) {
  auto comma = text.find(','), arrow = text.find("->");
  if (comma == text.npos || arrow == text.npos || comma > arrow) return false;
  std::string letters = text.substr(0, comma) + text.substr(comma + 1, arrow - comma - 1) + text.substr(arrow + 2);
  return std::all_of(letters.begin(), letters.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

std::vector<TensorType> infer(InferContext& c) {
  c.need_float(0);
  c.need_same_dtype();
  const std::string& equation = c.attributes.text("equation");
  if (!equation.empty() && !is_equation(equation)) c.fail(fmt::format("the equation \"{}\" is not of the form \"ab,bc->ac\"", equation));
  Letters l = belfry::letters_of(c.attributes.text("equation"), c.rank(0), c.rank(1));
  if (static_cast<int>(l.a.size()) != c.rank(0) || static_cast<int>(l.b.size()) != c.rank(1))
    c.fail(l.a.empty() ? "needs a (…, m, k) and b (k, n), or b (…, k, n) with the same leading axes"
                       : fmt::format("the equation names {} and {} axes", l.a.size(), l.b.size()));
  std::map<char, Dim> sizes;
  auto take = [&](const std::string& letters, int input) {
    if (std::set<char>(letters.begin(), letters.end()).size() != letters.size()) c.fail("the equation names an axis of one operand twice");
    for (std::size_t i = 0; i < letters.size(); ++i) {
      auto [known, fresh] = sizes.try_emplace(letters[i], c.shape(input)[i]);
      if (!fresh && known->second != c.shape(input)[i])
        c.fail(fmt::format("axis '{}' is {} in one operand and {} in the other", letters[i], to_string(known->second), to_string(c.shape(input)[i])));
    }
  };
  take(l.a, 0);
  take(l.b, 1);
  Shape out;
  for (char letter : l.y) {
    if (!sizes.contains(letter)) c.fail(fmt::format("axis '{}' of y is in no operand", letter));
    out.push_back(sizes.at(letter));
  }
  if (std::set<char>(l.y.begin(), l.y.end()).size() != l.y.size()) c.fail("the equation names an axis of y twice");
  for (auto [letter, size] : sizes)
    if (l.y.find(letter) == l.y.npos && (l.a.find(letter) == l.a.npos || l.b.find(letter) == l.b.npos))
      c.fail(fmt::format("axis '{}' is in one operand alone and not in y; sum it first", letter));
  return {{c.dtype(0), out}};
}

/// sums[i] += a[i·step_a]·b[i·step_b], in double.
template <class T>
void add_products(std::span<double> sums, const T* a, std::int64_t step_a, const T* b, std::int64_t step_b) {
  const auto n = static_cast<std::int64_t>(sums.size());
  double* const to = sums.data();
  if (step_a == 0 && step_b == 1) {
    const auto factor = static_cast<double>(*a);
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) to[i] += factor * static_cast<double>(b[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] += static_cast<double>(a[i * step_a]) * static_cast<double>(b[i * step_b]);
  }
}

void reference(const Call& c) {
  const Extents &sa = c.inputs[0].type.shape, &sb = c.inputs[1].type.shape;
  Letters l = belfry::letters_of(c.attributes.text("equation"), static_cast<int>(sa.size()), static_cast<int>(sb.size()));
  std::map<char, std::int64_t> sizes;
  for (std::size_t i = 0; i < l.a.size(); ++i) sizes[l.a[i]] = sa[i];
  for (std::size_t i = 0; i < l.b.size(); ++i) sizes[l.b[i]] = sb[i];
  std::string order = l.y;
  Extents summed;
  for (auto [letter, n] : sizes)
    if (l.y.find(letter) == l.y.npos) order += letter, summed.push_back(n);
  auto steps = [&](const std::string& letters, const Extents& shape) {  // distance in an operand per letter of `order`
    Extents out;
    for (char letter : order) {
      auto at = letters.find(letter);
      out.push_back(at == letters.npos ? 0 : product(shape, at + 1, shape.size()));
    }
    return out;
  };
  Extents step_a = steps(l.a, sa), step_b = steps(l.b, sb);
  // The last summed axis is a loop of its own; within it lies one over a part of a row of y.
  constexpr std::int64_t kAtOnce = 64;
  const bool any = !summed.empty();
  const std::int64_t inner = any ? summed.back() : 1, inner_a = any ? step_a.back() : 0, inner_b = any ? step_b.back() : 0;
  if (any) summed.pop_back();
  const std::size_t last = l.y.size() - 1;
  const std::int64_t row = l.y.empty() ? 1 : sizes.at(l.y.back()), step_in_a = l.y.empty() ? 0 : step_a[last], step_in_b = l.y.empty() ? 0 : step_b[last];
  Extents rows = c.outputs[0].type.shape;
  if (!rows.empty()) rows.pop_back();
  auto dot = [](const Extents& index, const Extents& step, std::size_t skip) {
    std::int64_t out = 0;
    for (std::size_t i = 0; i < index.size(); ++i) out += index[i] * step[skip + i];
    return out;
  };
  visit_float(c.dtype(), [&]<class T>() {
    const T *a = c.inputs[0].as<T>().data(), *b = c.inputs[1].as<T>().data();
    T* y = c.outputs[0].as<T>().data();
    double sums[kAtOnce];
    for_each_index(rows, [&](const Extents& at) {
      const T *row_a = a + dot(at, step_a, 0), *row_b = b + dot(at, step_b, 0);
      for (std::int64_t done = 0; done < row; done += kAtOnce) {
        const auto part = std::span(sums).first(static_cast<std::size_t>(std::min(kAtOnce, row - done)));
        std::fill(part.begin(), part.end(), 0);
        for_each_index(summed, [&](const Extents& k) {
          const T *from_a = row_a + dot(k, step_a, l.y.size()) + done * step_in_a, *from_b = row_b + dot(k, step_b, l.y.size()) + done * step_in_b;
          for (std::int64_t n = 0; n < inner; ++n) add_products(part, from_a + n * inner_a, step_in_a, from_b + n * inner_b, step_in_b);
        });
        for (double sum : part) *y++ = static_cast<T>(sum);
      }
    });
  });
}

double flops(std::span<const LocalType> in, std::span<const LocalType> out, const Attributes& a) {
  Letters l = belfry::letters_of(a.text("equation"), static_cast<int>(in[0].shape.size()), static_cast<int>(in[1].shape.size()));
  double n = 2 * static_cast<double>(out[0].elements());
  for (std::size_t i = 0; i < l.a.size(); ++i)
    if (l.y.find(l.a[i]) == l.y.npos) n *= static_cast<double>(in[0].shape[i]);
  return n;
}

}  // namespace

Letters letters_of(const std::string& equation, int rank_a, int rank_b) {
  if (!equation.empty()) {
    if (!is_equation(equation)) throw UserError(fmt::format("[matmul] the equation \"{}\" is not of the form \"ab,bc->ac\"", equation));
    auto comma = equation.find(','), arrow = equation.find("->");
    return {equation.substr(0, comma), equation.substr(comma + 1, arrow - comma - 1), equation.substr(arrow + 2)};
  }
  const std::string lead = "abcdefghijklmnop";
  if (rank_a < 2 || rank_b < 2 || rank_a > 16 || (rank_b != 2 && rank_b != rank_a)) return {};
  std::string front = lead.substr(0, static_cast<std::size_t>(rank_a) - 1);
  if (rank_b == 2) return {front + "y", "yz", front + "z"};
  std::string batch = front.substr(0, front.size() - 1);
  return {front + "y", batch + "yz", front + "z"};
}

OpDef matmul_def() {
  return {.name = "matmul",
          .attributes = {{"equation", ""}, wide_result()},
          .inputs = {"a", "b"},
          .infer = infer,
          .reference = reference,
          .gradient = [](GradientContext& g) {
            Letters l = letters_of(g.attributes.text("equation"), g.input(0).rank(), g.input(1).rank());
            Value dy = g.output_gradient();
            return std::vector<Value>{contract(l.y + "," + l.b + "->" + l.a, dy, g.input(1)), contract(l.a + "," + l.y + "->" + l.b, g.input(0), dy)};
          },
          .split = [](const SplitContext& c) {
            Letters l = letters_of(c);
            return split_contraction(c, l.a, l.b, l.y);
          },
          .flops = flops,
          .precision = Precision::low};
}

namespace {

/// Letters of the leading axes, aligned at the right; an axis of size 1 beside a longer one has none, and is left out.
Value with_letters(Value x, const Shape& lead, std::size_t own, std::string& letters) {
  Integers ones;
  for (std::size_t i = 0; i < own; ++i) {
    std::size_t at = lead.size() - own + i;
    if (x.shape()[i] == Dim(1) && lead[at] != Dim(1)) ones.push_back(static_cast<std::int64_t>(i));
    else letters += static_cast<char>('a' + at);
  }
  return ones.empty() ? x : squeeze(x, ones, {});
}

}  // namespace

Value matmul(Value a, Value b, SourceLine at) {
  if (!a || !b) return emit("matmul", {a, b}, {}, at);
  auto leading = [](const Value& x) { return Shape(x.shape().begin(), x.shape().end() - std::min(x.rank(), 2)); };
  const Shape of_a = leading(a), of_b = leading(b);
  Shape lead;
  bool vector = a.rank() == 1 || b.rank() == 1;
  // What the op takes as it stands, or has to refuse.
  if (a.rank() == 0 || b.rank() == 0 || (!vector && (of_b.empty() || of_a == of_b)) || !broadcast({of_a, of_b}, lead) || lead.size() > 20) return emit("matmul", {a, b}, {}, at);
  SourceGuard guard(*a.graph, at);
  std::string in_a, in_b, y;
  for (std::size_t i = 0; i < lead.size(); ++i) y += static_cast<char>('a' + i);
  bool rows = a.rank() > 1, columns = b.rank() > 1;
  a = with_letters(a, lead, of_a.size(), in_a);
  b = with_letters(b, lead, of_b.size(), in_b);
  return contract(in_a + (rows ? "x" : "") + "y," + in_b + "y" + (columns ? "z" : "") + "->" + y + (rows ? "x" : "") + (columns ? "z" : ""), a, b);
}

Value contract(const std::string& equation, Value a, Value b, SourceLine at) { return emit("matmul", {a, b}, {{"equation", equation}}, at); }

}  // namespace belfry
