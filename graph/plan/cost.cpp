#include <belfry/graph/plan/cost.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// What neither the time of a launch depends on, nor two graphs agree about.
bool is_label(const std::string& attribute) { return attribute == "stream"; }

std::string text_of(const Attributes& attributes) {
  std::string out;
  for (const auto& [name, value] : attributes.entries())
    if (!is_label(name) && value.kind() != AttributeKind::tensor) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, to_string(value));
  return out.empty() ? out : "{" + out + "}";
}

/// Whether the axis of a value takes the share's rows.
bool takes_rows(const PlanValue& v, std::size_t axis, const Share& share) {
  return v.type.shape[axis].symbolic() && (v.state == rows(static_cast<int>(axis)) || share.rows == share.batch);
}

std::string text_of(const PlanValue& v, const Share& share) {
  std::string out = to_string(TensorType{v.type.dtype, {}});
  out.resize(out.find('('));
  for (std::size_t i = 0; i < v.type.shape.size(); ++i) {
    const Dim& d = v.type.shape[i];
    out += i ? "," : "(";
    out += takes_rows(v, i, share) ? fmt::format("{}*n", d.factor) : std::to_string(d.at(share.batch));
  }
  return out + (v.type.shape.empty() ? "()" : ")");
}

/// The type of a value inside a fused node on a share.
LocalType inner_type(const Graph& graph, ValueId v, const Share& share) {
  if (!v.valid()) return {f32, {0}};
  const TensorType& type = graph.type(v);
  LocalType out{type.dtype, {}};
  bool first = true;
  for (const Dim& d : type.shape) {
    out.shape.push_back(d.at(first && d.symbolic() ? share.rows : share.batch));
    first = first && !d.symbolic();
  }
  return out;
}

double flops_of(const OpDef& op, const std::vector<LocalType>& inputs, const std::vector<LocalType>& outputs, const Attributes& attributes) {
  if (op.flops) return op.flops(inputs, outputs, attributes);
  double out = 0;
  for (const LocalType& t : outputs) out += static_cast<double>(t.elements());
  return op.stores ? 0 : out;
}

double flops_inside(const PlacedGraph& plan, const PlanNode& n, const Share& share) {
  double out = 0;
  for (const Member& m : n.members) {
    const Node& member = plan.graph->node(m.node);
    std::vector<LocalType> inputs, outputs;
    for (ValueId v : member.inputs) inputs.push_back(inner_type(*plan.graph, v, share));
    for (std::size_t k = 0; k < member.types.size(); ++k) outputs.push_back(inner_type(*plan.graph, {m.node, static_cast<int>(k)}, share));
    out += flops_of(*member.op, inputs, outputs, member.attributes);
  }
  return out;
}

/// What a group of several products reads and writes besides: each but the first adds to what stands in the output.
double bytes_between(const PlacedGraph& plan, const PlanNode& n, const LocalType& output) {
  const auto products = std::count_if(n.members.begin(), n.members.end(), [&](const Member& m) { return plan.graph->node(m.node).op->precision == Precision::low; });
  return products > 1 ? static_cast<double>(2 * (products - 1) * output.bytes()) : 0;
}

bool is_product(const PlacedGraph& plan, const PlanNode& n) {
  auto multiplies = [](const OpDef* op) { return op && op->precision == Precision::low; };
  return multiplies(n.def) || std::any_of(n.members.begin(), n.members.end(), [&](const Member& m) { return multiplies(plan.graph->node(m.node).op); });
}

/// Products in TF32 and of halves have rates of their own; of halves not where the kernel computes in f32. Where no GPU's kernels are known ("roofline") what is asked for decides.
double flops_of(const DeviceRate& rate, const PlacedGraph& plan, const PlanNode& n, std::string_view kernel) {
  if (!is_product(plan, n)) return rate.flops;
  if (kernel.find("_tf32") != kernel.npos || (kernel == "roofline" && plan.graph->precision.rounds && !n.outputs.empty() && plan.value(n.outputs[0]).type.dtype == f32)) return rate.flops_tf32;
  const bool halves = std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueIndex v) { return v >= 0 && is_half(plan.value(v).type.dtype); });
  return halves && kernel.find("_in_f32") == kernel.npos ? rate.flops_half : rate.flops;
}

double roofline(const DeviceRate& rate, const Work& work) { return rate.launch + std::max(work.flops / rate.flops, work.bytes / rate.bandwidth); }

std::string family_of(const std::string& key) {
  auto last = key.rfind(' ');
  return last == key.npos ? key : key.substr(0, key.find(' ')) + key.substr(last);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// What the table says of the key at other rows: along the line through the two that are nearest, never above what is
/// proportional nor below what is constant where only one was measured.
double at_rows(const std::vector<Measurement>& known, std::int64_t rows, double scaled) {
  if (known.size() == 1) return scaled;
  auto above = std::lower_bound(known.begin(), known.end(), rows, [](const Measurement& m, std::int64_t r) { return m.rows < r; });
  if (above == known.end()) --above;
  if (above == known.begin()) ++above;
  const Measurement &a = *(above - 1), &b = *above;
  double along = a.seconds + (b.seconds - a.seconds) * static_cast<double>(rows - a.rows) / static_cast<double>(b.rows - a.rows);
  const Measurement& nearest = rows < a.rows ? a : b;
  double share = static_cast<double>(rows) / static_cast<double>(nearest.rows);
  return rows >= a.rows && rows <= b.rows ? along : std::clamp(along, nearest.seconds * std::min(share, 1.0), nearest.seconds * std::max(share, 1.0));
}

}  // namespace

std::string_view to_string(CostSource source) {
  constexpr std::array<std::string_view, kCostSources> kNames = {"measured", "between", "scaled", "roofline", "guessed"};
  return kNames[static_cast<std::size_t>(source)];
}

std::string cost_key(const PlacedGraph& plan, const PlanNode& n, const Variant& variant, const Share& share, int parts) {
  std::string out = fmt::format("{} {}{}", variant.kernel.empty() ? "-" : variant.kernel, n.op, text_of(n.attributes));
  for (const Member& m : n.members) out += fmt::format(" [{}{}]", plan.graph->node(m.node).op->name, text_of(plan.graph->node(m.node).attributes));
  std::vector<ValueIndex> read = values_read(n);
  for (ValueIndex v : n.inputs) out += v < 0 ? " -" : (std::count(read.begin(), read.end(), v) ? " " : " shape of ") + text_of(plan.value(v), share);
  out += " ->";
  for (ValueIndex v : n.outputs) out += plan.value(v).read ? " " + text_of(plan.value(v), share) : " -";
  if (is_join(n) || is_op(n, kPreAggregate)) out += fmt::format(" of {} parts", parts);
  if (n.ranged) out += fmt::format(" over {} devices", n.holders.size());
  return out + fmt::format(" threads {}", plan.threads);
}

std::int64_t cost_rows(const PlacedGraph& plan, const PlanNode& n, const Share& share) {
  for (const auto* values : {&n.inputs, &n.outputs})
    for (ValueIndex v : *values)
      for (std::size_t a = 0; v >= 0 && a < plan.value(v).type.shape.size(); ++a)
        if (takes_rows(plan.value(v), a, share)) return share.rows;
  return 0;
}

Work work_of(const PlacedGraph& plan, const PlanNode& n, const Share& share, int parts) {
  if (is_op(n, kInput)) return {};
  std::vector<LocalType> inputs, outputs;
  auto local = [&](ValueIndex v) { return n.ranged ? type_on(plan, n, v, n.holders.get().front()) : local_type(plan.value(v), share); };
  for (ValueIndex v : n.inputs) inputs.push_back(v < 0 ? LocalType{f32, {0}} : local(v));
  for (ValueIndex v : n.outputs) outputs.push_back(local(v));
  double read = 0, written = 0;
  std::vector<ValueIndex> needed = values_read(n);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (std::count(needed.begin(), needed.end(), n.inputs[i])) read += static_cast<double>(inputs[i].bytes());
  for (std::size_t k = 0; k < outputs.size(); ++k)
    if (plan.value(n.outputs[k]).read) written += static_cast<double>(outputs[k].bytes());
  if (is_op(n, kFused)) return {flops_inside(plan, n, share), read + written + bytes_between(plan, n, outputs[0])};
  if (n.def) return {flops_of(*n.def, inputs, outputs, n.attributes), (n.def->stores ? std::min(read, written) : read) + written};
  // Joins and moves. Rows side by side and stacks are written once, whatever the parts; sums read every part whole.
  const AttributeValue* how = n.attributes.find("how");
  bool adds = how && (*how == AttributeValue("sum") || *how == AttributeValue("max") || *how == AttributeValue("mean"));
  if (!adds) return {0, 2 * written};
  return {std::max(0, parts - 1) * written / 4, (parts + 1) * written};
}

DeviceRate rate_of(const ClusterDevice& d, int threads) {
  const bool gpu = d.id.kind == "gpu";
  DeviceRate out{d.flops * d.efficiency, d.bandwidth * d.efficiency, d.launch, d.flops <= 0 || d.bandwidth <= 0};
  if (d.flops <= 0) out.flops = gpu ? 1e13 : 4e10 * threads;
  out.flops_tf32 = d.flops_tf32 > 0 ? d.flops_tf32 * d.efficiency : out.flops;
  out.flops_half = d.flops_half > 0 ? d.flops_half * d.efficiency : out.flops;
  if (d.bandwidth <= 0) out.bandwidth = gpu ? 5e11 : 8e9;
  if (out.guessed && out.launch <= 0) out.launch = gpu ? 4e-6 : 3e-7;
  return out;
}

bool is_measured(const ClusterDevice& d) { return d.kernels() == "cpu" && rate_of(d, 1).guessed; }

CostModel::CostModel(const PlacedGraph& plan, const CostTable& table) : plan_(plan), table_(table) {
  for (std::size_t d = 0; d < plan.cluster.devices.size(); ++d) {
    auto like = [&](int other) { return plan.cluster.devices[d].runs_as(plan.cluster.devices[static_cast<std::size_t>(other)]); };
    speed_.push_back(d && like(speed_.back()) ? speed_.back() : static_cast<int>(d));
  }
  // Measured times are beside the roofline of a host of which nothing is said: what scales it carries all that it lacks.
  std::map<std::string, std::vector<double>> ratios;
  const ClusterDevice host{cpu(0), "host"};
  for (const auto& [key, measurements] : table.kernels)
    for (const Measurement& m : measurements)
      if (double r = roofline(rate_of(host, plan.threads), m.work); r > 0) ratios[family_of(key)].push_back(m.seconds / r);
  for (auto& [family, all] : ratios) above_roofline_[family] = median(std::move(all));
}

Cost CostModel::operator()(int node, const Variant& variant, int tower, int device, int parts) {
  const PlanNode& n = plan_.nodes[static_cast<std::size_t>(node)];
  const char what = is_op(n, kCopy) ? 'c' : is_op(n, kStore) ? 's' : is_op(n, kPreAggregate) ? 'p' : 'm';
  const auto value = static_cast<std::size_t>(what == 'm' ? n.outputs.at(0) : n.inputs.at(0));
  const int speed = speed_[static_cast<std::size_t>(device)];
  const std::int64_t rows = tower < 0 ? plan_.batch : share_of(plan_.batch, plan_.towers, tower).count();
  const std::size_t ranges = n.ranged ? n.holders.size() : 0;
  if (value >= known_.size()) known_.resize(plan_.values.size());
  std::vector<Known>& all = known_[value];
  for (const Known& k : all)
    if (k.what == what && k.speed == speed && k.parts == parts && k.rows == rows && k.ranges == ranges && k.kernel == variant.kernel) return k.cost;
  return all.emplace_back(Known{what, speed, parts, rows, ranges, variant.kernel, cost(n, variant, plan_.share(tower), plan_.cluster.devices[static_cast<std::size_t>(device)], parts)}).cost;
}

void CostModel::keep(std::size_t values) { known_.resize(std::min(values, known_.size())); }

Cost CostModel::cost(const PlanNode& n, const Variant& variant, const Share& share, const ClusterDevice& device, int parts) const {
  const Work work = work_of(plan_, n, share, parts);
  if (work.flops == 0 && work.bytes == 0) return {0, 0, CostSource::measured};
  DeviceRate rate = rate_of(device, plan_.threads);
  rate.flops = flops_of(rate, plan_, n, variant.kernel);
  Cost out{roofline(rate, work), rate.launch, rate.guessed ? CostSource::guessed : CostSource::roofline, work.bytes / rate.bandwidth};
  if (!is_measured(device) || table_.empty()) return out;
  const std::string key = cost_key(plan_, n, variant, share, parts);
  const DeviceRate unsaid = rate_of({cpu(0), "host"}, plan_.threads);
  if (auto at = table_.kernels.find(key); at != table_.kernels.end() && !at->second.empty()) {
    const std::int64_t rows = cost_rows(plan_, n, share);
    for (const Measurement& m : at->second)
      if (m.rows == rows) return {m.seconds, 0, CostSource::measured};
    const Measurement& first = at->second.front();
    return {at_rows(at->second, rows, first.seconds * roofline(unsaid, work) / roofline(unsaid, first.work)), 0, CostSource::between};
  }
  if (!n.def && !is_op(n, kFused) && table_.memmove > 0) return {(work.bytes / 2) / table_.memmove, 0, CostSource::scaled};
  if (auto at = above_roofline_.find(family_of(key)); at != above_roofline_.end()) return {at->second * roofline(unsaid, work), 0, CostSource::scaled};
  return out;
}

}  // namespace belfry
