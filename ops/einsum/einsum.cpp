#include <belfry/ops/einsum/einsum.h>

#include <algorithm>
#include <cctype>
#include <set>

#include <fmt/format.h>

#include <belfry/ops/build.h>

namespace belfry {

namespace {

/// What is wrong with an equation.
struct Complaint {
  const std::string& equation;
  [[noreturn]] void operator()(const std::string& what) const { throw UserError(fmt::format("[einsum] \"{}\": {}", equation, what)); }
};

struct Equation {
  std::vector<std::string> operands;
  std::string y;
};

bool has(const std::string& letters, char c) { return letters.find(c) != letters.npos; }

/// Letters that stand once in all operands, capitals first.
std::string implied(const std::vector<std::string>& operands) {
  std::string all, out;
  for (const std::string& o : operands) all += o;
  std::sort(all.begin(), all.end());
  for (char c : all)
    if (std::count(all.begin(), all.end(), c) == 1) out += c;
  return out;
}

/// matmul names axes by small letters alone.
void make_small(Equation& e, const Complaint& complain) {
  std::string known;
  for (const std::string& o : e.operands)
    for (char c : o)
      if (!has(known, c)) known += c;
  if (known.size() > 26) complain("names more than 26 axes");
  if (std::none_of(known.begin(), known.end(), [](char c) { return std::isupper(static_cast<unsigned char>(c)); })) return;
  auto rename = [&](std::string& letters) {
    for (char& c : letters) c = static_cast<char>('a' + known.find(c));
  };
  for (std::string& o : e.operands) rename(o);
  rename(e.y);
}

Equation parsed(std::string text, const std::vector<Value>& values, const Complaint& complain) {
  std::erase(text, ' ');
  if (has(text, '.')) complain("ellipses are not supported; give each axis a letter");
  auto arrow = text.find("->");
  std::string left = text.substr(0, arrow);
  Equation e{{""}, arrow == text.npos ? "" : text.substr(arrow + 2)};
  for (char c : left) {
    if (c == ',') e.operands.emplace_back();
    else e.operands.back() += c;
  }
  for (const std::string* letters : {&left, &e.y})
    for (char c : *letters)
      if (!std::isalpha(static_cast<unsigned char>(c)) && !(letters == &left && c == ',')) complain(fmt::format("'{}' is neither a letter, a comma nor the arrow \"->\"", c));
  if (e.operands.size() != values.size()) complain(fmt::format("names {} operands, {} are given", e.operands.size(), values.size()));
  if (arrow == text.npos) e.y = implied(e.operands);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string& letters = e.operands[i];
    if (static_cast<int>(letters.size()) != values[i].rank())
      complain(fmt::format("names {} axes of operand {}, '{}' of shape {}", letters.size(), i, values[i].name(), to_string(std::span(values[i].shape()))));
    for (char c : letters)
      if (std::count(letters.begin(), letters.end(), c) > 1) complain(fmt::format("operand {} has axis '{}' twice; diagonals are not supported", i, c));
  }
  for (char c : e.y) {
    if (std::count(e.y.begin(), e.y.end(), c) > 1) complain(fmt::format("y has axis '{}' twice", c));
    if (std::none_of(e.operands.begin(), e.operands.end(), [&](const std::string& o) { return has(o, c); })) complain(fmt::format("axis '{}' of y is in no operand", c));
  }
  make_small(e, complain);
  return e;
}

struct Term {
  Value value;
  std::string letters;
};

/// Axes in the order of `letters`.
Term ordered(Term t, const std::string& letters) {
  if (t.letters == letters) return t;
  Integers order;
  for (char c : letters) order.push_back(static_cast<std::int64_t>(t.letters.find(c)));
  return {transpose(t.value, order), letters};
}

/// Without the axes that nobody else needs.
Term summed(Term t, const std::string& needed) {
  Integers axes;
  std::string left;
  for (std::size_t i = 0; i < t.letters.size(); ++i) {
    if (has(needed, t.letters[i])) left += t.letters[i];
    else axes.push_back(static_cast<std::int64_t>(i));
  }
  return axes.empty() ? t : Term{reduce_sum(t.value, {axes}), left};
}

/// a·b with the needed letters. Axes that are summed lie in one order on both sides, so that they are one axis of the product.
Term product(const Term& a, Term b, const std::string& needed, const std::string& wish) {
  std::string shared, in_b, rest, y = wish;
  for (char c : a.letters)
    if (has(b.letters, c) && !has(needed, c)) shared += c;
  for (char c : b.letters) (has(shared, c) ? in_b : rest) += c;
  if (in_b != shared) b = ordered(b, rest + shared);
  if (y.empty())
    for (char c : a.letters + rest)
      if (has(needed, c) && !has(y, c)) y += c;
  return {contract(a.letters + "," + b.letters + "->" + y, a.value, b.value), y};
}

}  // namespace

Value einsum(const std::string& equation, const std::vector<Value>& operands, SourceLine at) {
  Complaint complain{equation};
  if (operands.empty() || !operands[0]) complain("there are no operands");
  SourceGuard guard(*operands[0].graph, at);
  Equation e = parsed(equation, operands, complain);
  std::size_t n = operands.size();
  std::vector<std::string> needed(n + 1, e.y);  // by y and the operands from i on
  for (std::size_t i = n; i-- > 0;) needed[i] = needed[i + 1] + e.operands[i];
  Term out;
  for (std::size_t i = 0; i < n; ++i) {
    Term next = summed({operands[i], e.operands[i]}, out.letters + needed[i + 1]);
    out = i == 0 ? next : product(summed(out, e.operands[i] + needed[i + 1]), next, needed[i + 1], i + 1 == n ? e.y : "");
  }
  return ordered(out, e.y).value;
}

}  // namespace belfry
