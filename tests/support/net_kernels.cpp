#include "net_kernels.h"

#include <utility>

#include <belfry/executor/joint_launch.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/place.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry::test {

std::shared_ptr<GpuFunction> CollectedTexts::make(const std::string& source, const std::string&, std::size_t) {
  AskedFor& known = texts.try_emplace(source, asking).first->second;
  known.ops.insert(asking.ops.begin(), asking.ops.end());
  return nullptr;
}

KernelTable collecting(const std::shared_ptr<CollectedTexts>& code) {
  const KernelTable all = generated_kernels(code);
  KernelTable out;
  for (const Kernel& inner : all.all()) {
    Kernel k = inner;
    k.prepare = [inner, code](const KernelRequest& r) {
      code->asking = {inner.name, {r.op}};
      auto kernel = inner.prepare(r);
      const bool small = r.op == "cast" || r.op == "reshape" || (r.outputs[0].shape.size() == 1 && (!r.def || r.def->elementwise()));  // what values of variables are made of
      auto* joint = small || (r.def && (r.def->by_element || r.op == "where")) ? dynamic_cast<LaunchesJointly*>(kernel.get()) : nullptr;  // or updates
      code->asking.kernel += " of several";
      if (joint) joint->prepare_joint();
      return kernel;
    };
    k.supports = [inner, prepare = k.prepare](const KernelRequest& r) {
      Support s = inner.supports(r);
      if (s.ok) prepare(r);
      return s;
    };
    out.add(std::move(k));
  }
  return out;
}

NodesOfNet look_at(const std::string& net, DType precision, bool training, const KernelTable& table) {
  Graph source = net_named(net).build(std::make_shared<const OpSet>(standard_ops()), {});
  source.precision = precision;
  std::vector<std::string> outputs;
  for (ValueId v : source.outputs) outputs.push_back(source.name_of(v));
  auto graph = std::make_shared<const Graph>(training ? run_passes(training_passes(), source) : run_passes(inference_passes(), for_serving(source, outputs)));
  Cluster cluster;
  cluster.devices.push_back({cpu(0), "host", 1});
  NodesOfNet out;
  PlaceOptions options;
  options.updates = training;
  for (const std::string& name : outputs)
    if (auto v = graph->find(name)) options.fetches.emplace_back(name, *v);
  options.kernels = [&, choose = chooser({{"cpu", table}})](const KernelQuery& q) {
    KernelChoice c = choose(q);
    ++out.nodes;
    if (c.name == kReferenceKernel) ++out.without[q.node.op + (q.node.def ? "" : " " + q.node.attributes.text("kind"))];
    else ++out.with;
    return c;
  };
  options.groups = [](const Graph& g) {  // libraries have the others
    std::vector<FusionGroup> groups = find_gpu_groups(g);
    std::erase_if(groups, [](const FusionGroup& group) { return group.kind != kElementwise && group.kind != kWithElementwise; });
    return groups;
  };
  place(graph, to_strategy(Single{.device = cpu(0), .threads = 1}), cluster, 32, options);
  return out;
}

}  // namespace belfry::test
