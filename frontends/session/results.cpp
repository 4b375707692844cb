#include <belfry/frontends/session/results.h>

#include <vector>

#include <fmt/format.h>

namespace belfry {

const HostTensor& Results::operator[](const std::string& name) const& {
  if (auto at = tensors_.find(name); at != tensors_.end()) return at->second;
  std::vector<std::string> names;
  for (const auto& [n, t] : tensors_) names.push_back(n);
  throw UserError(fmt::format("'{}' was not fetched; fetched were: {}{}", name, fmt::join(names, ", "), did_you_mean(name, names)));
}

const HostTensor& Results::checked(const std::string& name, DType dtype, bool one) const {
  const HostTensor& t = (*this)[name];
  if (t.dtype() != dtype) throw UserError(fmt::format("'{}' is {}, and was read as {}", name, to_string(t.type()), name_of(dtype)));
  if (one && t.elements() != 1) throw UserError(fmt::format("'{}' is {}: item() is of one element, data() of all", name, to_string(t.type())));
  return t;
}

}  // namespace belfry
