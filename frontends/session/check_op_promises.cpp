#include <belfry/frontends/session/check_op_internal.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace belfry {

namespace {

bool is_real(const HostTensor& t) { return is_float(t.dtype()) || is_half(t.dtype()); }

/// The first element that is not zero; −1: there is none.
std::int64_t first_not_zero(const HostTensor& t) {
  return visit_stored(t.dtype(), [&]<class T>() -> std::int64_t {
    const auto x = t.data<T>();
    const auto at = std::find_if(x.begin(), x.end(), [](T v) { return static_cast<double>(v) != 0; });
    return at == x.end() ? -1 : at - x.begin();
  });
}

double element(const HostTensor& t, std::int64_t i) {
  return visit_stored(t.dtype(), [&]<class T>() { return static_cast<double>(t.data<T>()[static_cast<std::size_t>(i)]); });
}

/// Element `to` becomes what `from` is.
void repeat(HostTensor& t, std::int64_t from, std::int64_t to) {
  visit_stored(t.dtype(), [&]<class T>() { t.data<T>()[static_cast<std::size_t>(to)] = t.data<T>()[static_cast<std::size_t>(from)]; });
}

struct Run {
  const OpUnderCheck& op;
  const OpCase& c;
  std::vector<HostTensor> inputs, outputs;
};

std::string objection_to_order(const Run& r) {
  if (r.inputs.size() != 2) return fmt::format("it is said to be commutative, which is of two inputs, and has {}", r.inputs.size());
  OpCase turned = r.c;
  std::swap(turned.inputs[0], turned.inputs[1]);
  turned.outputs.clear();
  turned = versions(r.op, turned)[0];
  for (std::size_t k = 0; k < turned.outputs.size(); ++k)
    if (turned.outputs[k] != r.c.outputs[k]) return fmt::format("it is said to be commutative, and with its inputs in the other order {} is {}, not {}", output_of(r.op.def, k), to_string(turned.outputs[k]), to_string(r.c.outputs[k]));
  const std::vector<HostTensor> outputs = run_op(r.op.def, turned, {r.inputs[1], r.inputs[0]}, kCaseRows);
  for (std::size_t k = 0; k < outputs.size(); ++k)
    if (outputs[k] != r.outputs[k]) return fmt::format("it is said to be commutative, and with its inputs in the other order {} has other bits: {}", output_of(r.op.def, k), difference_of(outputs[k], r.outputs[k]));
  return "";
}

std::string objection_to_zeros(const Run& r) {
  std::vector<HostTensor> zeros = r.inputs;
  for (HostTensor& t : zeros)
    if (is_real(t)) t = HostTensor(t.dtype(), t.type().shape);
  const std::vector<HostTensor> outputs = run_op(r.op.def, r.c, zeros, kCaseRows);
  for (std::size_t k = 0; k < outputs.size(); ++k)
    if (std::int64_t i = is_real(outputs[k]) ? first_not_zero(outputs[k]) : -1; i >= 0)
      return fmt::format("it is said to be zero_preserving, and of zeros element {} of {} is {:.9g}", i, output_of(r.op.def, k), element(outputs[k], i));
  return "";
}

/// What another element of an input becomes shows nowhere but at its place.
std::string objection_to_places(const Run& r) {
  for (std::size_t i = 0; i < r.inputs.size(); ++i) {
    const std::int64_t n = r.inputs[i].type().elements();
    if (n < 2 || !is_real(r.inputs[i])) continue;
    for (std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
      std::vector<HostTensor> inputs = r.inputs;
      repeat(inputs[i], (at + 1) % n, at);
      std::vector<HostTensor> outputs = run_op(r.op.def, r.c, inputs, kCaseRows);
      for (std::size_t k = 0; k < outputs.size(); ++k) {
        if (outputs[k].type().shape != r.inputs[i].type().shape) continue;
        HostTensor wanted = r.outputs[k];
        visit_stored(wanted.dtype(), [&]<class T>() { wanted.data<T>()[static_cast<std::size_t>(at)] = outputs[k].data<T>()[static_cast<std::size_t>(at)]; });
        if (outputs[k] != wanted) return fmt::format("it is said to be by_element, and with another element {} of {} {} differs elsewhere: {}", at, input_of(r.op.def, i), output_of(r.op.def, k), difference_of(outputs[k], wanted));
      }
    }
  }
  return "";
}

std::string objection_to_sum(const Run& r) {
  const HostTensor& y = r.outputs.at(0);
  for (std::size_t i = 0; i < r.inputs.size(); ++i)
    if (!r.c.inputs[i].given || r.inputs[i].type() != y.type()) return "";
  for (std::int64_t e = 0; e < y.type().elements(); ++e) {
    double sum = 0;
    for (const HostTensor& x : r.inputs) sum += element(x, e);
    if (!(std::abs(element(y, e) - sum) <= r.c.tolerance * (1 + std::abs(sum)))) return fmt::format("it is said to be the sum of its inputs, and element {} of {} is {:.9g}, not {:.9g}", e, output_of(r.op.def, 0), element(y, e), sum);
  }
  return "";
}

}  // namespace

Objections objections_to_promises(const OpUnderCheck& op, const OpCase& given) {
  if (!given.no_reference.empty()) return {};
  const OpCase c = versions(op, given)[0];
  Run r{op, c, draw_all(c, kCaseRows, false, 23), {}};
  r.outputs = run_op(op.def, c, r.inputs, kCaseRows);
  Objections out;
  auto hold = [&](bool promised, std::string (*objection_to)(const Run&)) {
    if (std::string what = promised ? objection_to(r) : ""; !what.empty()) out.push_back(objection("promise", op.def, given, what + "; leave it out"));
  };
  hold(op.def.commutative, objection_to_order);
  hold(op.def.zero_preserving, objection_to_zeros);
  hold(op.def.by_element, objection_to_places);
  hold(op.def.sum_of_inputs, objection_to_sum);
  return out;
}

}  // namespace belfry
