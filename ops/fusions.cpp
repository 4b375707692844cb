#include <belfry/ops/fusions.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <belfry/graph/structural.h>
#include <belfry/ops/fusion_rules_internal.h>
#include <belfry/ops/gpu_kernel_names.h>
#include <belfry/ops/row_sums.h>

namespace belfry {

using namespace fusion_rules;

namespace {

/// Trees add the bias on the way.
bool read_by_trees_alone(const Graph& g, NodeId id) {
  const std::vector<NodeId>& readers = g.readers(id);
  return !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](NodeId r) { return fits_trees(*g.node(r).op); });
}

/// Kernels take so many operands; more would spill registers.
constexpr std::size_t kMostMembers = 16, kMostInputs = 6;
/// A norm's gradient reads its dy twice: of more inputs it is better made once, as where others read it. A convolution holds the others than x beside its sums.
constexpr std::size_t kMostBeforeNorm = 2, kMostBeforeConvolution = 3;
/// Beside the sums of a pack of columns a thread has room for the rows ahead of few inputs.
constexpr std::size_t kMostBesideSums = 4;
/// Of halves a thread has twice the sums: with more taps it would spill.
constexpr std::int64_t kMostTapsOfHalves = 9;

/// Whether GPUs have an expression for the node's types: halves are converted from and to f32 alone.
bool is_expression(const Graph& g, const Node& n) {
  const DType to = n.types[0].dtype;
  auto fits = [&](ValueId v) {
    if (!v.valid()) return false;
    const DType from = g.type(v).dtype;
    const bool known = is_float(from) || is_half(from) || from == boolean;
    return known && (from == to || ((!is_half(from) || to == f32) && (!is_half(to) || from == f32 || (from == boolean && n.inputs.size() > 1))));
  };
  return is_gpu_kernel("nvrtc_elementwise", n.op->name) && (is_float(to) || is_half(to) || to == boolean) && std::all_of(n.inputs.begin(), n.inputs.end(), fits);
}

/// Who is requested where: gradients go with what they are of.
std::optional<DeviceId> requested(const Graph& g, NodeId id) {
  while (!g.node(id).device && g.node(id).of >= 0) id = g.node(id).of;
  return g.node(id).device;
}

/// Nodes whose first value somebody asks for, per node.
std::vector<bool> asked_for(const Graph& g) {
  std::vector<bool> out(static_cast<std::size_t>(g.size()));
  auto keep = [&](ValueId v) { out[static_cast<std::size_t>(v.node)] = out[static_cast<std::size_t>(v.node)] || v.output == 0; };
  for (const auto& [variable, u] : g.updates) keep(u);
  for (const auto& [name, v] : g.metrics) keep(v);
  for (const std::vector<ValueId>* values : {&g.outputs, &g.losses})
    for (ValueId v : *values) keep(v);
  if (g.train)
    for (ValueId v : g.train->losses) keep(v);
  return out;
}

/// Of halves each product rounds what the ones before have left.
constexpr std::size_t kMostTerms = 8;

/// Sums of products. Where a tree would hold the sum it reads the products in the same pass, and as many bytes are moved; else the sum is saved a pass of its own.
class SumsOfProducts {
 public:
  explicit SumsOfProducts(const Graph& g) : g_(g), asked_(asked_for(g)) {}

  /// The last first, so that it is known which sums are read by sums of products.
  std::vector<FusionGroup> find() {
    std::vector<FusionGroup> out;
    for (NodeId id = g_.size(); id-- > 0;) {
      FusionGroup group{kMatmulAdd, members_of(id)};
      if (group.members.empty()) group = {kConv2dBiasAdd, with_convolution(id)};
      if (group.members.empty() || in_a_tree(id)) continue;
      taken_.insert(id);
      out.push_back(std::move(group));
    }
    return out;
  }

 private:
  /// Of each product the nodes, then the sum; none where it is no sum of products.
  std::vector<NodeId> members_of(NodeId id) const {
    const Node& sum = g_.node(id);
    if ((sum.op->name != "add" && !sum.op->sum_of_inputs) || sum.inputs.size() > kMostTerms || symbolic_axes(sum.types[0].shape).empty()) return {};
    std::vector<NodeId> out;
    std::size_t others = 0;
    for (ValueId v : sum.inputs) {
      if (g_.type(v) != sum.types[0]) return {};
      std::vector<NodeId> product;
      if (auto sole = maker(g_, v, "matmul")) product = {*sole};
      else if (auto with_bias = biased(g_, v, "matmul")) product = {with_bias->first, with_bias->second};
      const bool alone = !product.empty() && std::all_of(product.begin(), product.end(), [&](NodeId p) { return is_inner(p, p == product.back() ? id : product.back(), id); });
      if (alone && std::count(sum.inputs.begin(), sum.inputs.end(), v) == 1) out.insert(out.end(), product.begin(), product.end());
      else if (++others > 1) return {};
    }
    if (!out.empty()) out.push_back(id);
    return out;
  }

  /// A product of one tap with its bias and the sum of that and another value.
  std::vector<NodeId> with_convolution(NodeId id) const {
    const Node& sum = g_.node(id);
    if (sum.op->name != "add" || symbolic_axes(sum.types[0].shape).empty()) return {};
    for (std::size_t side : {0u, 1u}) {
      const ValueId v = sum.inputs[side], other = sum.inputs[1 - side];
      const auto made = biased(g_, v, "conv2d");
      if (made && v != other && g_.type(v) == sum.types[0] && g_.type(other) == sum.types[0] && is_product(g_, made->first) && is_inner(made->first, made->second, id) && is_inner(made->second, id, id)) return {made->first, made->second, id};
    }
    return {};
  }

  /// Read by the next alone, and of the sum's role and device.
  bool is_inner(NodeId id, NodeId reader, NodeId sum) const {
    return !asked_[static_cast<std::size_t>(id)] && g_.readers(id) == std::vector<NodeId>{reader} && g_.node(id).role == g_.node(sum).role && requested(g_, id) == requested(g_, sum);
  }

  bool in_a_tree(NodeId id) const {
    auto by_tree = [&](NodeId r) { return fits_trees(*g_.node(r).op) && g_.node(r).role == g_.node(id).role && !taken_.contains(r); };
    const std::vector<NodeId>& readers = g_.readers(id);
    return !asked_[static_cast<std::size_t>(id)] && !readers.empty() && std::all_of(readers.begin(), readers.end(), by_tree);
  }

  const Graph& g_;
  std::vector<bool> asked_;
  std::set<NodeId> taken_;
};

/// From each node that others than one tree read, the tree of those that it alone reads.
class Trees {
 public:
  Trees(const Graph& g, const std::vector<FusionGroup>& others) : g_(g), root_(static_cast<std::size_t>(g.size()), -1), apart_(asked_for(g)) {
    for (const FusionGroup& group : others)
      for (NodeId id : group.members) taken_.insert(id);
  }

  std::vector<FusionGroup> find() {
    for (NodeId id = g_.size(); id-- > 0;)
      if (computes_by_element(g_.node(id)) && !taken_.contains(id) && is_expression(g_, g_.node(id))) add(id);
    std::vector<FusionGroup> out;
    for (NodeId id = 0; id < g_.size(); ++id) {
      const std::string& op = g_.node(id).op->name;
      const bool depthwise = is_depthwise(g_, id);
      const NodeId behind = depthwise || op == "batch_norm" || op == "layer_norm_gradient" || op == "group_norm_gradient" ? root_behind(id) : -1;
      const NodeId before = depthwise ? root_before(id, 0, behind) : op == "batch_norm_gradient" ? root_before(id, g_.node(id).inputs.size() - 1) : -1;
      if (before < 0 && behind < 0) continue;
      FusionGroup& group = out.emplace_back(FusionGroup{kWithElementwise, {}});
      if (before >= 0 && !is_read_once(before)) group.kept.push_back(before);
      take(before, group.members);
      group.members.push_back(id);
      take(behind, group.members);
    }
    for (NodeId id = 0; id < g_.size(); ++id)
      if (g_.node(id).op->name == "layer_norm_gradient" && is_of_last_axis(id)) add_asides(id, out, adds_beside_norms);
      else if (g_.node(id).op->name == "batch_norm_gradient") add_asides(id, out, adds_beside_batch_norms);
    for (auto& [root, tree] : trees_)
      if (std::optional<FusionGroup> with_sum = summed(root, tree.members)) out.push_back(std::move(*with_sum));
      else if (tree.members.size() > 1) out.push_back({kElementwise, {tree.members.rbegin(), tree.members.rend()}});
    return out;
  }

 private:
  /// Of a sum of inputs that has no rows some may be parts of a sum over towers, which are added first.
  static bool computes_by_element(const Node& n) { return n.op->elementwise() || (fits_trees(*n.op) && !symbolic_axes(n.types[0].shape).empty()); }

  struct Tree {
    std::vector<NodeId> members;  // the last first
    std::size_t inputs = 0;
  };

  void add(NodeId id) {
    const Node& n = g_.node(id);
    const NodeId root = only_reader(id);
    if (root >= 0) {
      Tree& t = trees_.at(root);
      const Node& last = g_.node(root);
      // In its place the tree reads what it reads.
      const std::size_t inputs = t.inputs + n.inputs.size() - uses(id);
      if (last.types[0].shape == n.types[0].shape && last.role == n.role && requested(g_, root) == requested(g_, id) && t.members.size() < kMostMembers && inputs <= kMostInputs) {
        t.members.push_back(id);
        t.inputs = inputs;
        root_[static_cast<std::size_t>(id)] = root;
        return;
      }
    }
    root_[static_cast<std::size_t>(id)] = id;
    trees_[id] = {{id}, n.inputs.size()};
  }

  /// The root of the one tree that reads it; -1: others read it, or it is more than a value on the way.
  NodeId only_reader(NodeId id) const {
    if (apart_[static_cast<std::size_t>(id)]) return -1;
    NodeId out = -1;
    for (NodeId r : g_.readers(id)) {
      const NodeId root = root_[static_cast<std::size_t>(r)];
      if (root < 0 || (out >= 0 && out != root)) return -1;
      out = root;
    }
    return out;
  }

  /// How often its readers read it.
  std::size_t uses(NodeId id) const {
    std::size_t out = 0;
    std::set<NodeId> readers(g_.readers(id).begin(), g_.readers(id).end());
    for (NodeId r : readers) out += static_cast<std::size_t>(std::count(g_.node(r).inputs.begin(), g_.node(r).inputs.end(), ValueId{id, 0}));
    return out;
  }

  /// Of the tree that alone reads the y of a norm or of a convolution, or dx.
  NodeId root_behind(NodeId norm) const {
    if (apart_[static_cast<std::size_t>(norm)]) return -1;
    NodeId out = -1;
    for (NodeId r : g_.readers(norm)) {
      const std::vector<ValueId>& inputs = g_.node(r).inputs;
      if (std::find(inputs.begin(), inputs.end(), ValueId{norm, 0}) == inputs.end()) continue;
      const NodeId root = root_[static_cast<std::size_t>(r)];
      if (root < 0 || (out >= 0 && out != root)) return -1;
      out = root;
    }
    const bool by_channel = g_.node(norm).op->name == "conv2d";
    const TensorType& y = g_.node(norm).types[0];
    if (!by_channel && g_.type(g_.node(norm).inputs[0]) != y) return -1;
    const auto read = read_beside(norm, out, y, by_channel);
    return read && distinct(*read) <= kMostInputs ? out : -1;
  }

  bool is_read_once(NodeId id) const { return !apart_[static_cast<std::size_t>(id)] && g_.readers(id).size() == 1; }

  /// Of the tree that makes what a norm's gradient reads as dy, or what a convolution alone, which has the tree `behind` it or none, reads as x: that it puts through the tree at each of its taps' rows.
  NodeId root_before(NodeId core, std::size_t input, NodeId behind = -1) const {
    const Node& n = g_.node(core);
    const bool by_channel = n.op->name == "conv2d";
    const NodeId root = n.inputs[input].node;
    if (root_[static_cast<std::size_t>(root)] != root || (by_channel && !is_read_once(root)) || std::count(n.inputs.begin(), n.inputs.end(), n.inputs[input]) != 1) return -1;
    const TensorType& type = by_channel ? g_.type(n.inputs[input]) : n.types[0];
    if (!by_channel && g_.type(n.inputs[0]) != type) return -1;
    auto read = read_beside(core, root, type, by_channel);
    if (!by_channel) return read && (is_read_once(root) ? distinct(*read) <= kMostBeforeNorm : read->size() <= kMostBesideSums) ? root : -1;
    if (!read) return -1;
    const Shape& filter = g_.type(n.inputs[1]).shape;
    if (is_half(type.dtype) && filter[0].factor * filter[1].factor > kMostTapsOfHalves) return -1;
    const std::size_t inputs = read->size(), beside = behind < 0 ? 0 : read_beside(core, behind, n.types[0], true)->size();
    std::erase_if(*read, [&](ValueId v) { return g_.type(v).shape != type.shape; });
    return distinct(*read) == 1 && inputs <= kMostBeforeConvolution && inputs + beside <= kMostInputs ? root : -1;
  }

  /// Rows of several axes are not those that a bias's gradient adds.
  bool is_of_last_axis(NodeId norm) const {
    const int rank = static_cast<int>(g_.node(norm).types[0].shape.size());
    return from_front(g_.node(norm).attributes.integer("axis"), rank) == rank - 1;
  }

  /// To the gradient of a norm, with a tree beside it or alone: the sum over rows of what it makes, which a bias's gradient is, and that as halves. Others read it, too.
  void add_asides(NodeId gradient, std::vector<FusionGroup>& groups, bool (*adds_beside)(const TensorType&)) {
    auto of = std::find_if(groups.begin(), groups.end(), [&](const FusionGroup& g) { return std::find(g.members.begin(), g.members.end(), gradient) != g.members.end(); });
    const NodeId made = of == groups.end() ? gradient : of->members.back();
    std::optional<NodeId> sum, halves;
    bool others = apart_[static_cast<std::size_t>(made)];
    for (NodeId r : g_.readers(made)) {
      const Node& n = g_.node(r);
      const bool beside = n.inputs == std::vector<ValueId>{{made, 0}} && n.role == g_.node(made).role && requested(g_, r) == requested(g_, made) && !taken_.contains(r);
      const auto tree = trees_.find(r);
      if (!sum && adds(r, made) && adds_beside(g_.type({made, 0}))) sum = r;
      else if (beside && !halves && n.op->name == kCast && is_half(n.types[0].dtype) && tree != trees_.end() && tree->second.members.size() == 1) halves = r;
      else others = others || std::find(n.inputs.begin(), n.inputs.end(), ValueId{made, 0}) != n.inputs.end();
    }
    if (!sum) return;
    FusionGroup group = of == groups.end() ? FusionGroup{kWithElementwise, {gradient}} : *of;
    if (others) group.kept.push_back(made);
    group.members.push_back(*sum);
    if (halves) {
      group.kept.push_back(*sum);
      group.members.push_back(*halves);
      trees_.erase(*halves);
    }
    if (of == groups.end()) groups.push_back(std::move(group));
    else *of = std::move(group);
  }

  /// To a tree whose root others read or not: the sum over rows of what it makes.
  std::optional<FusionGroup> summed(NodeId root, const std::vector<NodeId>& members) const {
    const TensorType& type = g_.node(root).types[0];
    if (!adds_beside_trees(type) || symbolic_axes(type.shape).empty()) return {};
    std::set<ValueId> read;
    for (NodeId id : members)
      for (ValueId v : g_.node(id).inputs) {
        if (std::find(members.begin(), members.end(), v.node) != members.end()) continue;
        if (g_.type(v).shape != type.shape || !row_width(g_.type(v))) return {};
        read.insert(v);
      }
    if (read.size() > kMostBesideSums) return {};
    FusionGroup out{kWithElementwise, {members.rbegin(), members.rend()}};
    bool others = apart_[static_cast<std::size_t>(root)], found = false;
    for (NodeId r : g_.readers(root))
      if (!found && adds(r, root)) out.members.push_back(r), found = true;
      else others = true;
    if (others) out.kept.push_back(root);
    return found ? std::optional(std::move(out)) : std::nullopt;
  }

  /// Whether it adds the rows of that node alone, where that is made.
  bool adds(NodeId sum, NodeId of) const {
    const Node& n = g_.node(sum);
    return is_sum_aside(*n.op) && n.inputs[0] == ValueId{of, 0} && is_sum_of_rows(n, g_.type({of, 0})) && n.role == g_.node(of).role && requested(g_, sum) == requested(g_, of) && !taken_.contains(sum);
  }

  static std::size_t distinct(const std::vector<ValueId>& values) { return std::set<ValueId>(values.begin(), values.end()).size(); }

  /// What a tree reads, each time, but for `core`, where that and all that it makes has the type, and it goes with `core`; else none. `by_channel`: of any dtype, and what it reads may be one value
  /// or one per channel.
  std::optional<std::vector<ValueId>> read_beside(NodeId core, NodeId root, const TensorType& type, bool by_channel) const {
    const auto tree = trees_.find(root);
    if (tree == trees_.end()) return {};
    const std::vector<NodeId>& members = tree->second.members;
    auto fits = [&](const TensorType& t) { return t == type || (by_channel && (t.shape == type.shape || t.shape.empty() || t.shape == Shape{type.shape.back()})); };
    std::vector<ValueId> read;
    for (NodeId id : members) {
      const Node& n = g_.node(id);
      if (!fits(n.types[0]) || !n.op->exact || n.role != g_.node(core).role || requested(g_, id) != requested(g_, core)) return {};
      for (ValueId v : n.inputs)
        if (!v.valid() || !fits(g_.type(v))) return {};
        else if (v.node != core && std::find(members.begin(), members.end(), v.node) == members.end()) read.push_back(v);
    }
    return read;
  }

  /// Adds the members of the tree of that root, where there is one.
  void take(NodeId root, std::vector<NodeId>& to) {
    const auto tree = trees_.find(root);
    if (tree == trees_.end()) return;
    to.insert(to.end(), tree->second.members.rbegin(), tree->second.members.rend());
    trees_.erase(tree);
  }

  const Graph& g_;
  std::set<NodeId> taken_;
  std::vector<NodeId> root_;   // per node, the last of its tree
  std::vector<bool> apart_;
  std::map<NodeId, Tree> trees_;
};

}  // namespace

std::vector<FusionGroup> find_cpu_groups(const Graph& g) {
  std::vector<FusionGroup> out;
  for (NodeId id = 0; id < g.size(); ++id)
    if (g.node(id).op->name == "relu")
      if (auto sum = biased(g, g.node(id).inputs[0], "conv2d")) out.push_back({kConv2dBiasRelu, {sum->first, sum->second, id}});
  return out;
}

std::vector<FusionGroup> find_gpu_groups(const Graph& g) {
  std::vector<FusionGroup> out = SumsOfProducts(g).find();
  for (NodeId id = 0; id < g.size(); ++id)
    if (g.node(id).op->name == "gelu_tanh")
      if (auto sum = biased(g, g.node(id).inputs[0], "matmul")) out.push_back({kMatmulBiasGeluTanh, {sum->first, sum->second, id}});
  for (NodeId id = 0; id < g.size(); ++id)
    if (g.node(id).op->name == "add")
      if (auto sum = biased(g, {id, 0}, "matmul")) out.push_back({kMatmulBias, {sum->first, sum->second}});
  for (NodeId id = 0; id < g.size(); ++id)
    if (g.node(id).op->name == "add" && !read_by_trees_alone(g, id))
      if (auto sum = biased(g, {id, 0}, "conv2d"); sum && (is_product(g, sum->first) || is_few_channels(g, sum->first))) out.push_back({kConv2dBias, {sum->first, sum->second}});
  for (FusionGroup& tree : Trees(g, out).find()) out.push_back(std::move(tree));
  return out;
}

}  // namespace belfry
