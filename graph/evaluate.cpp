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

}  // namespace belfry
