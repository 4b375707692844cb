#include <belfry/executor/program.h>

#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/plan/ranges.h>

namespace belfry {

void Program::set_state(const std::string& variable, const HostTensor& value) {
  bool found = false;
  ++store_->changes;
  for (const StateBuffer& s : bound_.state) {
    const PlanNode& n = plan_->nodes[static_cast<std::size_t>(s.node)];
    if (n.name != variable) continue;
    found = true;
    if (LocalType type = local_type(plan_->value(n.outputs[0]), plan_->share(-1)); !(type == value.type()))
      throw UserError(fmt::format("variable '{}' is {}, not {}", variable, to_string(type), to_string(value.type())));
    copy_bytes(address(s.buffer), device_of_space_[static_cast<std::size_t>(s.buffer.space)], value.raw() + s.first * static_cast<std::int64_t>(size_of(value.type().dtype)), nullptr, s.buffer.bytes);
  }
  if (!found) throw UserError(fmt::format("the plan has no variable '{}'", variable));
}

HostTensor Program::state(const std::string& variable) const {
  std::optional<HostTensor> out;
  for (const StateBuffer& s : bound_.state) {
    const PlanNode& n = plan_->nodes[static_cast<std::size_t>(s.node)];
    if (n.name != variable) continue;
    if (!n.ranged) return read(s.buffer);
    LocalType type = local_type(plan_->value(n.outputs[0]), plan_->share(-1));
    if (!out) out.emplace(type.dtype, type.shape);
    copy_bytes(out->raw() + s.first * static_cast<std::int64_t>(size_of(type.dtype)), nullptr, address(s.buffer), device_of_space_[static_cast<std::size_t>(s.buffer.space)], s.buffer.bytes);
  }
  if (!out) throw UserError(fmt::format("the plan has no variable '{}'", variable));
  return std::move(*out);
}

bool Program::holders_agree(const std::string& variable) const {
  std::optional<HostTensor> first;
  for (const StateBuffer& s : bound_.state) {
    const PlanNode& n = plan_->nodes[static_cast<std::size_t>(s.node)];
    if (n.name != variable || n.ranged) continue;
    HostTensor mine = read(s.buffer);
    if (first && std::memcmp(first->raw(), mine.raw(), static_cast<std::size_t>(s.buffer.bytes)) != 0) return false;
    if (!first) first = std::move(mine);
  }
  return true;
}

}  // namespace belfry
