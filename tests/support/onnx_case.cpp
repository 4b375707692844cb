#include "onnx_case.h"

namespace belfry::test::onnx {

Value Case::operator()(std::size_t i) const {
  const std::string& name = node_.inputs.at(i);
  Slot& slot = whole.slots.at(name);
  if (!slot.value) {
    const HostTensor& x = slot.tensor.value();
    std::string feed = "input_" + name;
    slot.value = whole.builder.input(feed, x.dtype(), Shape(x.shape().begin(), x.shape().end()));
    whole.feeds.emplace(feed, x);
  }
  return slot.value;
}

std::vector<Value> Case::all() const {
  std::vector<Value> out;
  for (std::size_t i = 0; i < count(); ++i) out.push_back((*this)(i));
  return out;
}

std::vector<std::int64_t> Case::sizes(std::size_t i) const {
  std::vector<std::int64_t> out;
  for (const Dim& d : (*this)(i).shape()) out.push_back(d.factor);
  return out;
}

const HostTensor& Case::tensor(std::size_t i) const {
  const Slot& slot = whole.slots.at(node_.inputs.at(i));
  if (!slot.tensor) throw LeftOut{"dynamic shape", "input " + std::to_string(i) + " of " + node_.op + " is computed"};
  return *slot.tensor;
}

Integers Case::integers(std::size_t i) const {
  HostTensor wide = converted(tensor(i), i64);
  return {wide.data<std::int64_t>().begin(), wide.data<std::int64_t>().end()};
}

std::vector<double> Case::numbers(std::size_t i) const {
  HostTensor wide = converted(tensor(i), f64);
  return {wide.data<double>().begin(), wide.data<double>().end()};
}

}  // namespace belfry::test::onnx
