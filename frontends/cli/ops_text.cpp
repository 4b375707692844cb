#include <belfry/frontends/cli/ops_text_internal.h>

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include <belfry/frontends/json/values.h>

namespace belfry {

namespace {

std::string joined(const std::vector<std::string>& parts, const char* between = ", ") { return fmt::format("{}", fmt::join(parts, between)); }

std::string signature(const OpDef& op) {
  std::vector<std::string> in, out;
  for (const InputDef& i : op.inputs) in.push_back(i.name + (i.variadic ? "…" : i.optional ? "?" : ""));
  for (const OutputDef& o : op.outputs) out.push_back(o.name + (o.optional ? "?" : ""));
  return fmt::format("{}({}) -> {}", op.name, joined(in), joined(out));
}

std::string default_of(const AttributeDef& a) {
  if (!a.fallback) return "";
  if (const auto* t = std::get_if<std::string>(&static_cast<const AttributeVariant&>(*a.fallback))) return "\"" + *t + "\"";
  return to_string(*a.fallback);
}

std::vector<std::string> kernels_for(const OpDef& op, const KernelTable& table) {
  std::vector<std::string> out;
  for (const Kernel& k : table.all())
    if (k.op == op.name) out.push_back(k.name);
  return out;
}

/// Fused kinds of which the op can be a member.
std::vector<std::string> fused_with(const OpDef& op, const KernelTable& table) {
  std::vector<std::string> out;
  for (const Kernel& k : table.all())
    if (std::find(k.members.begin(), k.members.end(), op.name) != k.members.end()) out.push_back(k.name);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::string attribute_line(const AttributeDef& a) {
  std::string line = fmt::format("  {:<16} {}", a.name, name_of(a.kind));
  line += a.fallback ? fmt::format(", by default {}", default_of(a)) : ", must be given";
  if (!a.choices.empty()) line += "; one of " + joined(a.choices);
  if (a.range) line += fmt::format("; {:.10g} to {:.10g}", a.range->first, a.range->second);
  return line + "\n";
}

std::string input_line(const InputDef& i) {
  std::vector<std::string> facts;
  if (i.optional) facts.push_back("may be left out");
  if (i.variadic) facts.push_back("one or more");
  if (i.shape_only) facts.push_back("only its shape is read");
  if (i.wide) facts.push_back("stays f32 beside halves");
  return facts.empty() ? fmt::format("  {}\n", i.name) : fmt::format("  {:<16} {}\n", i.name, joined(facts));
}

std::string precision_text(const OpDef& op) {
  if (op.stores) return "moves elements: any dtype as it is";
  switch (op.precision) {
    case Precision::low: return "halves wherever --precision asks for them";
    case Precision::follow: return "halves where an input is one";
    default: return "never halves";
  }
}

std::vector<const OpDef*> by_name(const OpSet& ops) {
  std::vector<const OpDef*> all;
  for (const auto& op : ops.all()) all.push_back(op.get());
  std::sort(all.begin(), all.end(), [](const OpDef* a, const OpDef* b) { return a->name < b->name; });
  return all;
}

std::string attribute_json(const AttributeDef& a) {
  LineWriter out;
  out.add("kind", json_text(name_of(a.kind)));
  if (a.fallback) out.add("default", json_of(*a.fallback, {}));
  if (!a.choices.empty()) out.add("choices", json_texts(a.choices));
  if (a.range) out.add("range", json_list({json_real(a.range->first), json_real(a.range->second)}));
  return out.text();
}

}  // namespace

std::string ops_text(const OpSet& ops, const KernelTables& kernels) {
  const std::vector<const OpDef*> all = by_name(ops);
  std::string out;
  for (const OpDef* op : all) {
    std::vector<std::string> parts{signature(*op)}, attributes, kinds;
    for (const AttributeDef& a : op->attributes) attributes.push_back(a.fallback ? fmt::format("{}={}", a.name, default_of(a)) : a.name);
    for (const auto& [kind, table] : kernels)
      if (!kernels_for(*op, table).empty()) kinds.push_back(kind);
    out += fmt::format("{:<60}  {:<10}  {}", parts[0], kinds.empty() ? "reference" : joined(kinds, " "), joined(attributes));
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
  }
  return out + fmt::format("{} ops; beside every kernel stands the reference, on the host. show --ops NAME says more of one\n", all.size());
}

std::string op_text(const OpDef& op, const KernelTables& kernels) {
  std::string out = signature(op) + "\n";
  if (!op.inputs.empty()) out += "inputs\n";
  for (const InputDef& i : op.inputs) out += input_line(i);
  if (!op.attributes.empty()) out += "attributes\n";
  for (const AttributeDef& a : op.attributes) out += attribute_line(a);
  out += fmt::format("gradient           {}\n", op.differentiable() ? "yes" : "none: " + op.gradient.no_gradient_reason);
  out += fmt::format("precision          {}\n", precision_text(op));
  if (op.elementwise()) out += fmt::format("each element       {}\n", op.scalar);
  std::vector<std::string> over;
  for (auto [o, i] : op.in_place) over.push_back(fmt::format("{} over {}", op.outputs.at(static_cast<std::size_t>(o)).name, op.inputs.at(std::min(static_cast<std::size_t>(i), op.inputs.size() - 1)).name));
  if (!over.empty()) out += fmt::format("in place           {}\n", joined(over));
  for (const auto& [kind, table] : kernels) {
    const std::vector<std::string> own = kernels_for(op, table), fused = fused_with(op, table);
    out += fmt::format("{:<18} {}\n", "kernels on " + kind, own.empty() ? "the reference" : joined(own) + ", the reference");
    if (!fused.empty()) out += fmt::format("{:<18} {}\n", "  fused in", joined(fused));
  }
  return out;
}

std::string op_json(const OpDef& op, const KernelTables& kernels) {
  std::vector<std::string> in, out;
  LineWriter line, attributes, own, fused;
  for (const InputDef& i : op.inputs) in.push_back(i.name);
  for (const OutputDef& o : op.outputs) out.push_back(o.name);
  for (const AttributeDef& a : op.attributes) attributes.add(a.name, attribute_json(a));
  for (const auto& [kind, table] : kernels) own.add(kind, json_texts(kernels_for(op, table))), fused.add(kind, json_texts(fused_with(op, table)));
  line.add("op", json_text(op.name));
  line.add("inputs", json_texts(in));
  line.add("outputs", json_texts(out));
  line.add("attributes", attributes.text());
  line.add("differentiable", op.differentiable() ? "true" : "false");
  line.add("kernels", own.text());
  line.add("fused_in", fused.text());
  return line.text();
}

std::string ops_json(const OpSet& ops, const KernelTables& kernels) {
  std::vector<std::string> out;
  for (const OpDef* op : by_name(ops)) out.push_back(op_json(*op, kernels));
  return json_lines(out) + "\n";
}

}  // namespace belfry
