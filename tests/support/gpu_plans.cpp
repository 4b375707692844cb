#include "gpu_plans.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include <belfry/belfry.h>
#include <belfry/executor/joins.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/graph/plan/verify.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/fusions.h>
#include <belfry/placer/choose.h>

#include "joint_on_stream.h"
#include "on_stream.h"
#include "op_case.h"
#include "ran_as_planned.h"

namespace belfry::test {

Graph trained_in(const std::string& name, DType precision) {
  Graph graph = built(name);
  graph.precision = precision;
  return run_passes(training_passes(), graph);
}

Graph without_requests(Graph graph) {
  for (NodeId id = 0; id < graph.size(); ++id) graph.edit(id).device.reset();
  return graph;
}

KernelTables GpuPlans::tables(const std::set<std::string>& without) {
  KernelTables out;
  KernelTable &gpu = out["gpu"], &cpu = out["cpu"];
  auto add = [&](Kernel k, const std::function<std::unique_ptr<Prepared>(const KernelRequest&)>& host) {
    k.prepare = [this, k, host](const KernelRequest& r) { return on_stream(k, r, host(r)); };
    if (!without.contains(k.op)) gpu.add(std::move(k));
  };
  const KernelTables& plain = kernels();
  for (const Kernel& k : plain.at("cpu").all()) {
    add(k, k.prepare);
    Kernel own = k;
    own.prepare = [k, host = function<fake_cuda::Host>("fake_cuda_host")](const KernelRequest& r) { return std::make_unique<OnHost>(host, Touches(k, r), k.prepare(r)); };
    cpu.add(std::move(own));
  }
  auto references = std::make_shared<const KernelTable>();
  const OpSet ops = standard_ops();
  for (const auto& op : ops.all())
    add({"on_host_" + op->name, op->name, [](const KernelRequest&) { return Support{.in_place = false}; }, {}}, [references](const KernelRequest& r) { return references->prepare(kReferenceKernel, r); });
  add({kAggregate, kAggregate, [](const KernelRequest&) { return Support{}; }, {}},
      [](const KernelRequest& r) { return prepared([join = Join(*r.join, r.outputs[0])](const Arguments& a) mutable { join(a.inputs, a.outputs[0]); }); });
  return out;
}

std::unique_ptr<Prepared> GpuPlans::on_stream(const Kernel& kernel, const KernelRequest& r, std::unique_ptr<Prepared> host) {
  auto* declare = function<fake_cuda::Declare>("fake_cuda_declare");
  if (dynamic_cast<FindsFaults*>(host.get())) return std::make_unique<WatchedOnStream>(toolkit_->driver(), declare, Touches(kernel, r), std::move(host));
  if (jointly && (dynamic_cast<LaunchesJointly*>(host.get()) || !r.def || r.def->by_element || r.def->elementwise()))
    return std::make_unique<JointOnStream>(toolkit_->driver(), declare, Touches(kernel, r), std::move(host));
  return std::make_unique<OnStream>(toolkit_->driver(), declare, Touches(kernel, r), std::move(host));
}

std::shared_ptr<const PlacedGraph> GpuPlans::placed(const std::shared_ptr<const Graph>& graph, const Strategy& strategy, const std::string& devices, std::int64_t batch, const KernelTables& kernels) {
  std::vector<DeviceId> all = parse_devices(devices);
  for (NodeId id = 0; id < graph->size(); ++id)
    if (auto asked = graph->node(id).device; asked && !std::count(all.begin(), all.end(), *asked)) all.push_back(*asked);
  if (!std::count(all.begin(), all.end(), cpu(0))) all.push_back(cpu(0));
  Cluster cluster = local_cluster(all, 2);
  cluster.peers = peers;
  const PlaceOptions options{.fetches = fetches_of(*graph), .kernels = chooser(kernels), .groups = find_gpu_groups};
  const Strategy taken = strategy.choice ? choose(graph, strategy, cluster, batch, options).front().strategy : strategy;
  auto plan = std::make_shared<const PlacedGraph>(place(graph, taken, cluster, batch, options));
  auto objections = verify(*plan);
  EXPECT_TRUE(objections.empty()) << objections[0];
  return plan;
}

void GpuPlans::find_nccl() {
  std::filesystem::create_symlink(BELFRY_FAKE_CUDA, libraries_ / "libnccl.so.2");
  environment.set("BELFRY_CUDA_PATH", libraries_.path().string());
  toolkit_ = std::make_shared<CudaToolkit>();
}

Devices GpuPlans::open(const PlacedGraph& plan) {
  Devices out;
  for (const PlanStream& s : plan.streams)
    if (const DeviceId& id = plan.cluster.devices[static_cast<std::size_t>(s.device)].id; id.kind == "gpu") out.try_emplace(to_string(id), open_cuda_device(toolkit_, id, std::chrono::seconds(1)));
  return out;
}

namespace {

/// Where waits are left out, what a step has begun can still read feeds and memory that end with the program.
void settle(const PlacedGraph& plan, const Program& program) {
  for (std::size_t s = 0; s < plan.streams.size(); ++s)
    if (Queue* q = program.queue(static_cast<int>(s))) try {
        q->enter();
        q->finish();
      } catch (const std::exception&) {  // the step has told it
      }
}

}  // namespace

Tensors GpuPlans::train(const std::shared_ptr<const Graph>& graph, const std::shared_ptr<const PlacedGraph>& plan, const KernelTables& kernels, const std::function<void()>& prepared) {
  Program program(plan, kernels, {}, open(*plan));
  Runner runner(program);
  if (prepared) prepared();
  for (const auto& [name, value] : state_for(*graph)) program.set_state(name, value);
  Tensors out;
  std::vector<Tensors> data;
  std::vector<Feeds> feeds;
  for (std::size_t k = 0; k < steps; ++k) data.push_back(feeds_for(*graph, plan->batch, k));
  for (const Tensors& d : data) feeds.push_back(views(d));
  for (std::size_t k = 0; k < steps; ++k) {
    const bool last = k + 1 == steps;
    const bool ahead = k < told.size() && told[k] && !last;
    RunOptions options{.trace = last, .graphs = recorded, .staged = true};  // where it was told
    if (ahead) options.next = [&, k] { return feeds[k + 1]; };
    Outcome o = runner.run(feeds[k], options);
    if (lost_feeds && ahead)  // what was staged is not read again
      for (auto& [name, t] : data[k + 1]) std::memset(t.raw(), 0x7F, t.bytes().size());
    if (o.error) {
      settle(*plan, program);
      std::rethrow_exception(o.error);
    }
    out = std::move(o.fetched);
  }
  if (may_race) settle(*plan, program);
  if (!may_race) {
    EXPECT_TRUE(ran_as_planned(*plan, program, runner.trace()));
  }
  for (NodeId id : graph->variables()) {
    out.insert_or_assign(graph->node(id).name, program.state(graph->node(id).name));
    EXPECT_TRUE(may_race || program.holders_agree(graph->node(id).name));
  }
  return out;
}

KernelTables GpuPlans::generated_tables(const std::shared_ptr<HostGpu>& host) {
  KernelTables all = kernels();
  const KernelTable generated = generated_kernels(host);
  host->strict = true;
  all["gpu"].finish = [host] { host->load(); };
  for (const Kernel& given : generated.all()) {
    Kernel k = given;
    k.prepare = [this, given](const KernelRequest& r) { return on_stream(given, r, given.prepare(r)); };
    all["gpu"].add(std::move(k));
  }
  return all;
}

SessionOptions GpuSessions::options() {
  auto library = std::make_shared<Library>(*standard_library());
  library->kernels = tables();
  library->open_gpu = [toolkit = toolkit_](const DeviceId& id) { return open_cuda_device(toolkit, id, std::chrono::seconds(1)); };
  return {.library = library};
}

SessionOptions GpuSessions::generated_options() {
  SessionOptions out = options();
  auto library = std::make_shared<Library>(*out.library);
  library->kernels = generated_tables(std::make_shared<HostGpu>());
  out.library = library;
  return out;
}

}  // namespace belfry::test
