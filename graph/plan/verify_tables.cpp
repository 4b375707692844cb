#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/schedule.h>
#include <belfry/graph/plan/stream_frames.h>
#include <belfry/graph/plan/verify_parts_internal.h>

namespace belfry {

namespace {

class TableChecker : public PlanChecker {
 public:
  using PlanChecker::PlanChecker;

  void run() {
    check();
    if (found_.empty()) check_sizes();
  }

 private:
  static bool sizes_fit(std::initializer_list<std::int64_t> sizes) {
    return std::all_of(sizes.begin(), sizes.end(), [](std::int64_t n) { return n >= 0 && n <= kMostSummable && n % kAlignment == 0; });
  }

  /// Vectors, classes, groups, frames and streams speak of towers and devices that are there.
  void check() {
    if (plan_.towers < 1 || plan_.batch < 1) return object("phase: {} towers share {} rows", plan_.towers, plan_.batch);
    if (std::none_of(plan_.cluster.devices.begin(), plan_.cluster.devices.end(), [](const ClusterDevice& d) { return d.id.kind == "cpu" && d.id.host == 0; }))
      return object("no device: feeds and results live on a cpu of the first host, and there is none");
    if (plan_.threads < 1 || plan_.threads > kMostThreads) object("thread: a tower has {} threads; 1 to {} can be", plan_.threads, kMostThreads);
    std::set<DeviceId> ids;
    std::map<std::string_view, DeviceId> lies_in;  // the first device of a memory space
    for (const ClusterDevice& d : plan_.cluster.devices) {
      if (const std::string why = clash(ids, d.id); !why.empty()) object("no device: {}", why);
      ids.insert(d.id);
      const DeviceId& first = lies_in.try_emplace(d.space, d.id).first->second;
      if (first != d.id && (first.kind == "gpu" || d.id.kind == "gpu")) object("memory: {} and {} are said to share the memory space '{}'; a GPU has one of its own", to_string(first), to_string(d.id), d.space);
    }
    for (const auto& v : plan_.vectors) {
      if (static_cast<int>(v.size()) != plan_.towers) object("no device: a vector speaks of {} of {} towers", v.size(), plan_.towers);
      for (int d : v)
        if (d != -1 && !is_device(d)) object("no device: a vector names device {} of {}", d, plan_.cluster.devices.size());
      for (std::size_t t = static_cast<std::size_t>(plan_.present()); t < v.size(); ++t)
        if (v[t] != -1) object("no device: tower {} has no rows, but is said to be on {}", t, is_device(v[t]) ? name_of(v[t]) : "none");
    }
    if (!found_.empty()) return;
    check_classes();
    std::vector<int> groups(plan_.cluster.devices.size());
    for (const DeviceGroup& g : plan_.groups) {
      if (!sizes_fit({g.state, g.region})) object("memory: a group has {} bytes of state and a region of {}", g.state, g.region);
      for (int d : g.devices)
        if (!is_device(d)) object("unbound: a group names device {} of {}", d, plan_.cluster.devices.size());
        else ++groups[static_cast<std::size_t>(d)];
    }
    for (std::size_t d = 0; d < groups.size(); ++d)
      if (groups[d] != 1) object("unbound: {} is in {} groups", name_of(static_cast<int>(d)), groups[d]);
    if (plan_.frames.size() != plan_.cluster.devices.size()) object("memory: there are {} frames for {} devices", plan_.frames.size(), plan_.cluster.devices.size());
    for (const FrameSize& f : plan_.frames)
      if (!sizes_fit({f.kept, f.transient, f.tail})) object("memory: a frame has {} kept bytes, {} more and {} transient bytes", f.kept, f.tail, f.transient);
    std::map<int, DeviceId> gpu_of_thread;
    for (const PlanStream& s : plan_.streams) {
      if (!is_device(s.device)) object("stream of another device: '{}' is a stream of device {} of {}", s.name, s.device, plan_.cluster.devices.size());
      else if (const DeviceId gpu = plan_.cluster.devices[static_cast<std::size_t>(s.device)].id.whole(); gpu.kind == "gpu")
        if (const auto& first = gpu_of_thread.try_emplace(s.thread, gpu).first->second; first != gpu) object("thread: host thread {} launches on {} and on {}; each GPU has one of its own", s.thread, to_string(first), to_string(gpu));
      if (s.thread < 0 || s.thread >= static_cast<int>(plan_.streams.size())) object("thread: stream '{}' runs on thread {}, but there are {} streams", s.name, s.thread, plan_.streams.size());
      if (s.slots < 0 || s.slots > plan_.towers) object("outside: stream '{}' has {} slots for {} towers", s.name, s.slots, plan_.towers);
    }
  }

  /// Every tower with rows is in one class, whose share, kinds and pattern are the tower's.
  void check_classes() {
    std::vector<int> classes(static_cast<std::size_t>(plan_.present()));
    const auto class_of_tower = classes_of_towers(plan_);
    for (const TowerClass& c : plan_.classes) {
      if (c.towers.empty()) object("phase: a class has no tower");
      if (c.pattern.size() != plan_.vectors.size()) object("no device: a class speaks of {} of {} vectors", c.pattern.size(), plan_.vectors.size());
      for (int t : c.towers) {
        if (t < 0 || t >= plan_.present()) {
          object("phase: a class has tower {} of {}", t, plan_.present());
          continue;
        }
        ++classes[static_cast<std::size_t>(t)];
        const TowerClass own = class_of_tower(t);
        if (c.pattern != own.pattern) object("no device: tower {} is in a class whose pattern has other devices", t);
        if (c.kinds != own.kinds) object("no device: tower {} is in a class for devices of other kinds", t);
        if (c.share != own.share) object("phase: tower {} has {} rows, but is in a class of {}", t, own.share, c.share);
      }
    }
    for (std::size_t t = 0; t < classes.size(); ++t)
      if (classes[t] != 1) object("phase: tower {} is in {} classes", t, classes[t]);
  }

  /// Sums of sizes stay inside what a device has, so that no address overflows.
  void check_sizes() {
    std::vector<__int128> total(plan_.cluster.devices.size());
    auto add = [&](int d, std::int64_t count, std::int64_t bytes) {
      if (!is_device(d)) return object("memory: device {} is not there", d);
      if (count < 0 || bytes < 0) return object("memory: a size of {} is negative", to_string(plan_.cluster.devices[static_cast<std::size_t>(d)].id));
      total[static_cast<std::size_t>(d)] += static_cast<__int128>(count) * bytes;
    };
    for (const PlanStream& s : plan_.streams) {
      if (!is_device(s.device)) return object("stream of another device: '{}'", s.name);
      if (s.name == "main") continue;  // it runs no towers: they alone have frames
      add(s.device, 1, stream_frames(plan_, s).past);
    }
    for (const DeviceGroup& g : plan_.groups)
      for (int d : g.devices) {
        if (is_device(d)) total[static_cast<std::size_t>(d)] = std::max<__int128>(total[static_cast<std::size_t>(d)], g.region);  // it lies in the gaps of the frames
        add(d, 1, g.state);
      }
    for (std::size_t d = 0; d < total.size(); ++d)
      if (total[d] > plan_.cluster.devices[d].memory)
        object("memory: {} needs {} bytes, but has {}", to_string(plan_.cluster.devices[d].id), static_cast<std::int64_t>(std::min<__int128>(total[d], std::numeric_limits<std::int64_t>::max())), plan_.cluster.devices[d].memory);
  }
};

}  // namespace

std::vector<std::string> check_tables(const PlacedGraph& plan) { return found_by<TableChecker>(plan); }

}  // namespace belfry
