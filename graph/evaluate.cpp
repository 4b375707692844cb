#include <belfry/graph/evaluate.h>

namespace belfry {

std::vector<HostTensor> evaluate(const OpDef& op, const Attributes& attributes, const std::vector<const HostTensor*>& inputs,
                                 const std::vector<TensorType>& output_types, const std::vector<LocalType>& local, const Share& share) {
  std::vector<HostTensor> out;
  for (const LocalType& t : local) out.emplace_back(t.dtype, t.shape);
  std::vector<ConstView> in;
  for (const HostTensor* t : inputs) in.push_back(t ? ConstView{t->type(), t->raw()} : ConstView{{f32, {0}}, nullptr});
  std::vector<View> views;
  for (HostTensor& t : out) views.push_back({t.type(), t.raw()});
  op.reference(Call{attributes, in, views, output_types, share});
  return out;
}

std::vector<std::vector<HostTensor>> evaluate(const Graph& graph, std::int64_t batch, const std::function<HostTensor(const Node&)>& given, std::int64_t first_row) {
  std::vector<std::vector<HostTensor>> values;
  const Share share{first_row, batch, batch, 1, Combine::global_mean};
  for (const Node& n : graph.nodes()) {
    if (n.op->name == kInput || n.op->name == kVariable) {
      values.push_back({given(n)});
      continue;
    }
    std::vector<const HostTensor*> inputs;
    for (ValueId v : n.inputs) inputs.push_back(v.valid() ? &values[static_cast<std::size_t>(v.node)][static_cast<std::size_t>(v.output)] : nullptr);
    std::vector<LocalType> local;
    for (const TensorType& t : n.types) local.push_back(local_type(t, batch));
    values.push_back(evaluate(*n.op, n.attributes, inputs, n.types, local, share));
  }
  return values;
}

}  // namespace belfry
