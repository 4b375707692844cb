#include <belfry/frontends/session/compare.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include <fmt/format.h>
#include <xxhash.h>

#include <belfry/frontends/session/gpus.h>
#include <belfry/frontends/session/known_kernels.h>
#include <belfry/frontends/session/stand_ins.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

template <class Unsigned, class Float>
Unsigned ulps(Float a, Float b) {
  constexpr Unsigned kSign = Unsigned{1} << (8 * sizeof(Unsigned) - 1);
  Unsigned x = std::bit_cast<Unsigned>(a), y = std::bit_cast<Unsigned>(b);
  if ((x & kSign) != (y & kSign)) return (x & ~kSign) + (y & ~kSign);
  return x > y ? x - y : y - x;
}

/// Outputs of one step of a plan by (value, tower) and holder, in the order in which they were made.
struct Recorded {
  std::map<std::pair<std::string, int>, std::vector<std::size_t>> at;
  struct Entry {
    std::string node, value;
    int tower;
    std::string device;
    HostTensor tensor;
  };
  std::vector<Entry> entries;
};

class Side {
 public:
  Side(std::shared_ptr<const PlacedGraph> plan, const Library& library, const State& state) : plan_(std::move(plan)), program_(plan_, library.kernels, {}, open_gpus(*plan_, library, KnownGpus())), runner_(program_) {
    for (NodeId id : plan_->graph->variables())
      if (auto value = state.find(plan_->graph->node(id).name); value != state.end()) set(value->first, value->second);
  }

  Recorded step(const Batch& feeds) {
    Recorded out;
    RunOptions options;
    options.after = [&](const Step& s) { record(s, out); };
    Outcome o = runner_.run_interleaved(feeds.all(), [](const std::vector<int>& ready) { return ready[0]; }, nullptr, options);
    if (o.error) std::rethrow_exception(o.error);
    return out;
  }

  State state() const {
    State out;
    for (const StateBuffer& s : program_.bound().state) {
      const std::string& name = plan_->nodes[static_cast<std::size_t>(s.node)].name;
      out.insert_or_assign(name, program_.state(name));
    }
    return out;
  }

 private:
  void set(const std::string& name, const HostTensor& value) {
    for (const StateBuffer& s : program_.bound().state)
      if (plan_->nodes[static_cast<std::size_t>(s.node)].name == name) return program_.set_state(name, value);
  }

  void record(const Step& s, Recorded& out) {
    const PlanNode& n = plan_->nodes[static_cast<std::size_t>(s.node)];
    if (changes_nothing(n) || n.op == kInput) return;
    for (std::size_t k = 0; k < s.writes.size(); ++k) {
      if (s.writes[k].empty() || s.writes[k][0].buffer.space == kFeedSpace) continue;
      const BufferRef& b = s.writes[k][0].buffer;
      const std::string& value = plan_->value(n.outputs[k]).name;
      HostTensor tensor = n.ranged ? whole_of(n, n.outputs[k], s.device, program_.read(b)) : program_.read(b);
      if (!tensor.elements()) continue;  // other ranges of it are still to come
      out.at[{value, s.tower}].push_back(out.entries.size());
      out.entries.push_back({n.name, value, s.tower, to_string(plan_->cluster.devices[static_cast<std::size_t>(s.device)].id), std::move(tensor)});
    }
  }

  /// A value of which each device makes a range, when the last of them is there; before that nothing.
  HostTensor whole_of(const PlanNode& n, ValueIndex v, int device, const HostTensor& range) {
    const LocalType type = local_type(plan_->value(v), plan_->share(-1));
    auto& [whole, holders] = ranges_.try_emplace(v, HostTensor(type.dtype, type.shape), 0).first->second;
    std::memcpy(whole.raw() + range_on(*plan_, n, v, device).first * static_cast<std::int64_t>(size_of(type.dtype)), range.raw(), range.bytes().size());
    if (++holders < static_cast<int>(n.holders.size())) return HostTensor(type.dtype, {0});
    HostTensor out = std::move(whole);
    ranges_.erase(v);
    return out;
  }

  std::shared_ptr<const PlacedGraph> plan_;
  std::map<ValueIndex, std::pair<HostTensor, int>> ranges_;
  Program program_;
  Runner runner_;
};

Difference difference_of(const Recorded::Entry& a, const Recorded::Entry& other) {
  const HostTensor& b = other.tensor;
  Difference d;
  d.first_device = a.device;
  d.second_device = other.device;
  d.node = a.node;
  d.value = a.value;
  d.tower = a.tower;
  if (!(a.tensor.type() == b.type())) {
    d.elements = a.tensor.elements();
    d.types = fmt::format("{} and {}", to_string(a.tensor.type()), to_string(b.type()));
    return d;
  }
  visit_stored(b.dtype(), [&]<class T>() {
    auto x = a.tensor.data<T>(), y = b.data<T>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::memcmp(&x[i], &y[i], sizeof(T)) == 0) continue;  // NOLINT(bugprone-suspicious-memory-comparison): bits are compared
      if (!d.elements++) {
        d.first_element = static_cast<std::int64_t>(i);
        d.a = static_cast<double>(x[i]);
        d.b = static_cast<double>(y[i]);
      }
      std::uint64_t distance = 1;
      if constexpr (std::is_floating_point_v<T>) distance = ulp_distance(x[i], y[i]);
      else if constexpr (is_half(dtype_of<T>())) distance = ulps<std::uint16_t>(x[i], y[i]);
      else if constexpr (!std::is_same_v<T, bool>) distance = x[i] > y[i] ? static_cast<std::uint64_t>(x[i]) - static_cast<std::uint64_t>(y[i]) : static_cast<std::uint64_t>(y[i]) - static_cast<std::uint64_t>(x[i]);
      d.ulps = std::max(d.ulps, distance);
    }
  });
  return d;
}

}  // namespace

std::uint64_t ulp_distance(float a, float b) { return ulps<std::uint32_t>(a, b); }
std::uint64_t ulp_distance(double a, double b) { return ulps<std::uint64_t>(a, b); }

std::string hash_of(const State& state) {
  XXH3_state_t* h = XXH3_createState();
  XXH3_128bits_reset(h);
  for (const auto& [name, t] : state) {
    std::string head = name + to_string(t.type());
    XXH3_128bits_update(h, head.data(), head.size());
    XXH3_128bits_update(h, t.raw(), t.bytes().size());
  }
  XXH128_hash_t out = XXH3_128bits_digest(h);
  XXH3_freeState(h);
  return fmt::format("{:016x}{:016x}", out.high64, out.low64);
}

namespace {

/// The results of which the plans do not have the same value.
std::vector<std::string> results_apart(const PlacedGraph& a, const PlacedGraph& b) {
  std::map<std::string, std::pair<std::string, std::string>> both;
  auto value = [](const PlacedGraph& plan, ValueIndex v) {
    while (changes_nothing(plan.maker(v)) || plan.maker(v).op == kFetch) v = plan.maker(v).inputs[0];
    return plan.value(v).name;
  };
  for (const auto& [name, v] : a.fetches) both[name].first = value(a, v);
  for (const auto& [name, v] : b.fetches) both[name].second = value(b, v);
  std::vector<std::string> out;
  for (const auto& [name, values] : both)
    if (values.first != values.second) out.push_back(name);
  return out;
}

}  // namespace

Comparison compare(std::shared_ptr<const PlacedGraph> a, std::shared_ptr<const PlacedGraph> b, const Library& library, const std::vector<Batch>& feeds, const State& state,
                   const State& second_state) {
  Comparison out;
  for (const auto& [plan, name] : {std::pair(&a, "first"), {&b, "second"}})
    if (auto found = verify(**plan, library.kernels); !found.empty()) throw UserError(fmt::format("the {} plan does not hold: {}; derive it anew with belfry place", name, fmt::join(found, "; ")));
  out.first_arithmetic = arithmetic_hash(*a);
  out.second_arithmetic = arithmetic_hash(*b);
  out.apart = results_apart(*a, *b);
  auto whole = std::make_shared<const Library>(library);
  for (const auto& plan : {a, b}) whole = with_gpu_kernels(whole, used_devices(*plan), used_devices(*plan), stand_ins_of(*plan, {}));
  std::optional<Side> first, second;
  with_words_of_absence(*a, stand_ins_of(*a, {}), [&] { first.emplace(a, *whole, state); });
  with_words_of_absence(*b, stand_ins_of(*b, {}), [&] { second.emplace(b, *whole, second_state.empty() ? state : second_state); });
  for (std::size_t k = 0; k < feeds.size() && !out.difference; ++k) {
    Recorded x = first->step(feeds[k]), y = second->step(feeds[k]);
    ++out.steps;
    for (const Recorded::Entry& e : x.entries) {
      auto twin = y.at.find({e.value, e.tower});
      // The first holder meets all of the other plan's, the others its first: so all are equal if none differs.
      bool first_holder = &e == &x.entries[x.at.at({e.value, e.tower})[0]];
      if (twin == y.at.end()) {
        out.alone += first_holder;
        continue;
      }
      for (std::size_t h = 0; h < (first_holder ? twin->second.size() : 1) && !out.difference; ++h) {
        const Recorded::Entry& other = y.entries[twin->second[h]];
        if (!(e.tensor == other.tensor)) out.difference = difference_of(e, other);
      }
      if (first_holder) ++out.values, out.bytes += e.tensor.type().bytes();
      if (!out.difference) continue;
      out.difference->step = static_cast<std::int64_t>(k);
      break;
    }
    for (const auto& [value, entries] : y.at) out.alone += !x.at.contains(value);
  }
  out.first_hash = hash_of(first->state());
  out.second_hash = hash_of(second->state());
  return out;
}

}  // namespace belfry
