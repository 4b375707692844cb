// Kernels of a program's launches, prepared on the threads that launch them.
#include <belfry/executor/program.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <typeinfo>

#include <fmt/format.h>

#include <belfry/executor/collectives.h>
#include <belfry/executor/device/faults.h>
#include <belfry/executor/structural.h>

namespace belfry {

namespace {

/// Outputs lie over inputs wholly or not at all; those without bytes lie anywhere.
bool writes_in_place(const Arguments& a, const KernelRequest& r) {
  for (std::size_t k = 0; k < a.outputs.size(); ++k)
    if (a.outputs[k] && r.outputs[k].bytes() && std::find(a.inputs.begin(), a.inputs.end(), a.outputs[k]) != a.inputs.end()) return true;
  return false;
}

/// Errors say what is prepared, and the device once. One that is more than a DeviceError says what is missing.
template <class F>
void with_place(const std::string& what, const std::string& device, const F& prepare) {
  try {
    prepare();
  } catch (const UserError& e) {
    throw UserError(fmt::format("{}: {}", what, e.what()));
  } catch (const DeviceError& e) {
    if (typeid(e) != typeid(DeviceError)) throw;
    const std::string_view said = e.what();
    throw DeviceError(fmt::format("{}: {}", what, said.starts_with(device + ": ") ? said.substr(device.size() + 2) : said));
  }
}

std::string device_name(const PlacedGraph& plan, int device) { return to_string(plan.cluster.devices[static_cast<std::size_t>(device)].id); }

}  // namespace

/// A word per launch that finds faults, so that each has its own node and its own first position.
void Program::bind_faults(int thread) {
  FaultWords& f = faults_[static_cast<std::size_t>(thread)];
  for (const std::vector<Task>* tasks : {&once_.tasks[static_cast<std::size_t>(thread)], &tasks_[static_cast<std::size_t>(thread)]})
    for (const Task& task : *tasks)
      if (auto* finds = task.drive ? dynamic_cast<FindsFaults*>(task.kernel) : nullptr) f.of.emplace_back(&task, finds);
  if (f.of.empty()) return;
  const auto bytes = static_cast<std::int64_t>(f.of.size() * sizeof(std::uint64_t));
  Device* device = device_of(plan_->streams[static_cast<std::size_t>(f.of[0].first->stream)].device);
  f.words.emplace(device->allocate(bytes, "the faults that kernels find"));
  f.seen.emplace(device->allocate_host(bytes));
  std::memset(f.seen->at(0), 0xFF, static_cast<std::size_t>(bytes));
  device->copy(f.words->at(0), f.seen->at(0), bytes);
  for (std::size_t i = 0; i < f.of.size(); ++i) f.of[i].second->watch(reinterpret_cast<std::uint64_t*>(f.words->at(0)) + i);
}

void Program::prepare(Launch& l) {
  const PlanNode& n = plan_->nodes[static_cast<std::size_t>(l.step->node)];
  const std::string kind = plan_->cluster.devices[static_cast<std::size_t>(l.step->device)].kernels();
  auto table = kernels_.find(kind);
  if (Device* device = queue(l.step->stream) ? device_of(l.step->device) : nullptr) device->enter();
  if (collectors_ && is_collective(l.step->variant)) l.kernel = collectors_->kernel(*l.step, [&](const BufferRef& b) { return address(b); }, table->second);
  else if (!n.def && n.op != kFused) l.kernel = structural_kernel(bound_, *l.step, carriers(*l.step), table == kernels_.end() ? nullptr : &table->second);
  else if (n.op == kInput) l.kernel = prepared([](const Arguments&) {});
  else if (table == kernels_.end()) throw UserError(fmt::format("there are no kernels for devices of kind '{}'", kind));
  else if (queue(l.step->stream) && l.step->variant->kernel == kReferenceKernel) throw UserError(fmt::format("unbound: '{}' is computed by a reference, which runs on a host, but stands on {}; derive the plan anew with belfry place", n.name, device_name(*plan_, l.step->device)));
  else with_place(fmt::format("'{}' on {}", n.name, device_name(*plan_, l.step->device)), device_name(*plan_, l.step->device), [&] {
    const KernelRequest r = request(*l.step);
    l.kernel = table->second.prepare(l.step->variant->kernel, r, {l.step->variant->scratch_bytes, writes_in_place(l.arguments, r)});
  });
}

void Program::prepare_thread(int thread) {
  std::set<int> devices;
  auto prepare_all = [&](std::vector<Launch>& launches) {
    for (Launch& l : launches)
      if (l.thread == thread && !l.kernel) prepare(l), devices.insert(l.step->device);
  };
  for (auto& stream : launches_) prepare_all(stream);
  prepare_all(once_.launches);
  for (int d : devices) {
    if (Device* device = device_of(d)) device->enter();
    const auto table = kernels_.find(plan_->cluster.devices[static_cast<std::size_t>(d)].kernels());
    if (table != kernels_.end()) with_place("the kernels of " + device_name(*plan_, d), device_name(*plan_, d), [&] { table->second.finish(); });
  }
  for (Task& task : tasks_[static_cast<std::size_t>(thread)]) task.kernel = launches_[static_cast<std::size_t>(task.stream)][static_cast<std::size_t>(task.index)].kernel.get();
  for (Task& task : once_.tasks[static_cast<std::size_t>(thread)]) task.kernel = once_.launches[static_cast<std::size_t>(task.step - bound_.once.data())].kernel.get();
  bind_faults(thread);
}

}  // namespace belfry
