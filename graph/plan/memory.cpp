#include <belfry/graph/plan/memory.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

constexpr std::int64_t kForever = std::int64_t{1} << 40;

Fit first_fit(const std::vector<Block>& blocks, const std::vector<std::size_t>& order) {
  struct Placed {
    std::int64_t offset, past, start, end;
  };
  Fit out{std::vector<std::int64_t>(blocks.size()), 0};
  std::vector<Placed> placed;  // by offset
  for (std::size_t i : order) {
    const Block& b = blocks[i];
    std::int64_t at = 0;
    for (const Placed& p : placed) {
      if (p.start > b.end || p.end < b.start) continue;
      if (p.offset - at >= b.size) break;
      at = std::max(at, p.past);
    }
    Placed mine{at, at + b.size, b.start, b.end};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), mine, [](const Placed& x, const Placed& y) { return x.offset < y.offset; }), mine);
    out.offsets[i] = at;
    out.total = std::max(out.total, at + b.size);
  }
  return out;
}

}  // namespace

Fit fit(const std::vector<Block>& blocks) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  auto by = [&](auto key) {
    std::vector<std::size_t> sorted = order;
    std::stable_sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) { return key(blocks[a]) < key(blocks[b]); });
    return first_fit(blocks, sorted);
  };
  Fit best = by([](const Block& b) { return -b.size; });
  if (blocks.size() > 5000) return best;
  for (Fit other : {by([](const Block& b) { return -b.size * static_cast<std::int64_t>(std::min<std::int64_t>(b.end, kForever) - b.start + 1) / 1024; }),
                    by([](const Block& b) { return std::pair(b.start, -b.size); })})
    if (other.total < best.total) best = std::move(other);
  return best;
}

std::int64_t live_maximum(const std::vector<Block>& blocks) {
  std::map<std::int64_t, std::int64_t> change;
  for (const Block& b : blocks) {
    change[b.start] += b.size;
    change[b.end + 1] -= b.size;
  }
  std::int64_t now = 0, most = 0;
  for (auto [at, delta] : change) most = std::max(most, now += delta);
  return most;
}

// ---------------------------------------------------------------- groups

namespace {

/// Values that something outside the towers reads.
std::vector<bool> joined_values(const PlacedGraph& plan) {
  std::vector<bool> out(plan.values.size());
  for (const PlanNode& n : plan.nodes)
    if (n.scope != Scope::tower)
      for (ValueIndex v : values_read(n)) out[static_cast<std::size_t>(v)] = true;
  return out;
}

bool in_region(const PlanNode& n, const std::vector<bool>& joined) {
  return n.scope != Scope::tower || std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueIndex v) { return joined[static_cast<std::size_t>(v)]; });
}

/// How many buffers of a node's values each device holds: one per holder, tower or piece.
std::map<int, int> spread(const PlacedGraph& plan, const PlanNode& n) {
  std::map<int, int> out;
  if (n.scope == Scope::tower) {
    for (int d : plan.devices(n))
      if (d >= 0) ++out[d];
  } else if (n.scope == Scope::device) {
    for (const Piece& p : pieces(plan.vectors[static_cast<std::size_t>(n.owners)], plan.towers)) ++out[p.device];
  } else {
    for (int d : n.holders) ++out[d];
  }
  return out;
}

/// Equal spreads share one column, so that the cost does not grow with nodes × devices.
class Columns {
 public:
  Columns(const PlacedGraph& plan, const std::vector<bool>& joined) : of_node_(plan.nodes.size(), -1) {
    std::map<std::tuple<Scope, int, DeviceList, int>, int> known;
    for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
      const PlanNode& n = plan.nodes[i];
      if (!in_region(n, joined)) continue;
      auto [at, fresh] = known.try_emplace({n.scope, n.scope == Scope::tower ? n.vector : -1, n.holders, n.scope == Scope::device ? n.owners : -1}, static_cast<int>(columns_.size()));
      if (fresh) columns_.push_back(spread(plan, n));
      of_node_[i] = at->second;
    }
  }
  std::vector<int> row(int device) const {
    std::vector<int> out;
    for (const auto& c : columns_) {
      auto at = c.find(device);
      out.push_back(at == c.end() ? 0 : at->second);
    }
    return out;
  }
  int count(std::size_t node, int device) const {
    if (of_node_[node] < 0) return 0;
    const auto& c = columns_[static_cast<std::size_t>(of_node_[node])];
    auto at = c.find(device);
    return at == c.end() ? 0 : at->second;
  }

 private:
  std::vector<int> of_node_;
  std::vector<std::map<int, int>> columns_;
};

}  // namespace

void set_groups(PlacedGraph& plan) {
  std::vector<bool> joined = joined_values(plan);
  Columns columns(plan, joined);
  std::map<std::pair<std::vector<int>, std::string>, std::size_t> known;
  plan.groups.clear();
  for (std::size_t d = 0; d < plan.cluster.devices.size(); ++d) {
    auto [at, fresh] = known.try_emplace({columns.row(static_cast<int>(d)), plan.cluster.devices[d].kernels()}, plan.groups.size());
    if (fresh) plan.groups.emplace_back();
    plan.groups[at->second].devices.push_back(static_cast<int>(d));
  }
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    PlanNode& n = plan.nodes[i];
    n.by_class.assign(n.scope == Scope::tower ? plan.classes.size() : 0, Variant{});
    n.by_group.assign(plan.groups.size(), Variant{});
    for (std::size_t g = 0; g < plan.groups.size(); ++g)
      if (columns.count(i, plan.groups[g].devices[0])) n.by_group[g].outputs.assign(n.outputs.size(), Slot{});
    for (std::size_t c = 0; c < n.by_class.size(); ++c)
      if (n.phases[c] >= 0) n.by_class[c].outputs.assign(n.outputs.size(), Slot{});
  }
}

// ---------------------------------------------------------------- frames

namespace {

class FramePlanner {
 public:
  explicit FramePlanner(PlacedGraph& plan) : plan_(plan), instances_(plan), readers_(readers_of(plan)), joined_(joined_values(plan)) {}

  void run() {
    for (std::size_t c = 0; c < plan_.classes.size(); ++c) {
      std::map<int, std::vector<int>> by_device;
      for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
        const PlanNode& n = plan_.nodes[i];
        if (n.scope == Scope::tower && n.phases[c] >= 0) by_device[plan_.classes[c].pattern[static_cast<std::size_t>(n.vector)].device].push_back(static_cast<int>(i));
      }
      plan_.classes[c].frame.assign(by_device.empty() ? 0 : static_cast<std::size_t>(by_device.rbegin()->first) + 1, FrameSize{});
      for (auto& [local, nodes] : by_device) lay_out(c, local, nodes);
    }
  }

 private:
  struct Life {
    Block block;
    bool kept = false;
    std::pair<int, int> phase;
  };

  std::pair<int, int> phase(int node, std::size_t c) const {
    const PlanNode& n = plan_.nodes[static_cast<std::size_t>(node)];
    return {n.epoch, n.phases[c]};
  }

  void lay_out(std::size_t c, int local, std::vector<int>& mine) {
    TowerClass& cls = plan_.classes[c];
    int tower = cls.towers[0];
    Share share = plan_.share(tower);
    std::stable_sort(mine.begin(), mine.end(), [&](int a, int b) {
      return std::tuple(phase(a, c), plan_.nodes[static_cast<std::size_t>(a)].order) < std::tuple(phase(b, c), plan_.nodes[static_cast<std::size_t>(b)].order);
    });
    std::map<int, std::int64_t> position;
    for (std::size_t i = 0; i < mine.size(); ++i) position[mine[i]] = static_cast<std::int64_t>(i);
    std::vector<Life> lives;
    std::map<ValueIndex, std::size_t> root;          // value → its block
    std::map<int, std::size_t> scratch;              // node → its block
    for (std::size_t i = 0; i < mine.size(); ++i) {
      PlanNode& n = plan_.nodes[static_cast<std::size_t>(mine[i])];
      auto at = static_cast<std::int64_t>(i);
      for (std::size_t k = 0; k < n.outputs.size(); ++k) {
        ValueIndex v = n.outputs[k];
        if (joined_[static_cast<std::size_t>(v)] || !plan_.value(v).read) continue;
        Life life{{aligned_bytes(local_type(plan_.value(v), share).bytes()), at, at}, false, phase(mine[i], c)};
        bool far = read_until(c, tower, mine[i], n.op == kCopy ? n.inputs[0] : v, position, life);
        std::optional<std::size_t> reused = far ? std::nullopt : reusable(n, c, k, at, share, lives, root);
        if (far) life.block.start = 0, life.block.end = kForever, life.kept = true;
        if (reused) {
          Life& old = lives[*reused];
          old.block.end = life.block.end;
          old.kept = old.kept || life.kept || life.phase != old.phase;
          root[v] = *reused;
        } else {
          root[v] = lives.size();
          lives.push_back(life);
        }
      }
      if (std::int64_t bytes = n.by_class[c].scratch_bytes) {
        scratch[mine[i]] = lives.size();
        lives.push_back({{aligned_bytes(bytes), at, at}, false, phase(mine[i], c)});
      }
    }
    std::vector<Slot> slots(lives.size());
    for (bool kept : {true, false}) {
      std::vector<Block> blocks;
      std::vector<std::size_t> which;
      for (std::size_t b = 0; b < lives.size(); ++b)
        if (lives[b].kept == kept) blocks.push_back(lives[b].block), which.push_back(b);
      Fit f = fit(blocks);
      for (std::size_t b = 0; b < which.size(); ++b) slots[which[b]] = {kept ? Slot::kKept : Slot::kTransient, f.offsets[b], 0};
      (kept ? cls.frame[static_cast<std::size_t>(local)].kept : cls.frame[static_cast<std::size_t>(local)].transient) = f.total;
    }
    for (int i : mine) {
      PlanNode& n = plan_.nodes[static_cast<std::size_t>(i)];
      for (std::size_t k = 0; k < n.outputs.size(); ++k)
        if (auto b = root.find(n.outputs[k]); b != root.end()) n.by_class[c].outputs[k] = slots[b->second];
      if (auto b = scratch.find(i); b != scratch.end()) n.by_class[c].scratch = slots[b->second];
    }
  }

  /// Extends the life to the last reader here; true if another device reads it.
  bool read_until(std::size_t c, int tower, int node, ValueIndex value, const std::map<int, std::int64_t>& position, Life& life) {
    bool far = false;
    for (int r : readers_[static_cast<std::size_t>(value)]) {
      const PlanNode& reader = plan_.nodes[static_cast<std::size_t>(r)];
      if (reader.scope != Scope::tower || reader.phases[c] < 0 || r == node) continue;
      int source = reader.op == kCopy ? plan_.value(value).maker : instances_.own(value, tower, plan_.device_of(reader, tower)).node;
      if (source != node) continue;
      if (auto at = position.find(r); at != position.end()) {
        life.block.end = std::max(life.block.end, at->second);
        life.kept = life.kept || phase(r, c) != life.phase;
      } else far = true;
    }
    return far;
  }

  /// The block of an input that ends here, has as many bytes, and that op and kernel allow to be written over.
  std::optional<std::size_t> reusable(const PlanNode& n, std::size_t c, std::size_t output, std::int64_t at, const Share& share, const std::vector<Life>& lives,
                                      const std::map<ValueIndex, std::size_t>& root) const {
    if (!n.def || !n.by_class[c].in_place) return {};
    for (auto [k, i] : n.def->in_place) {
      if (k != static_cast<int>(output) || i >= static_cast<int>(n.inputs.size()) || n.inputs[static_cast<std::size_t>(i)] < 0) continue;
      auto b = root.find(n.inputs[static_cast<std::size_t>(i)]);
      if (b == root.end() || lives[b->second].block.end != at) continue;
      // To the byte: what stretches an operand would overtake its own reading.
      auto bytes = [&](ValueIndex v) { return local_type(plan_.value(v), share).bytes(); };
      if (bytes(n.inputs[static_cast<std::size_t>(i)]) != bytes(n.outputs[output])) continue;
      // Another input in the same bytes is read by other indices than it is written.
      auto same = std::count_if(n.inputs.begin(), n.inputs.end(), [&](ValueIndex v) { auto r = root.find(v); return r != root.end() && r->second == b->second; });
      if (same == 1) return b->second;
    }
    return {};
  }

  PlacedGraph& plan_;
  Instances instances_;
  std::vector<std::vector<int>> readers_;
  std::vector<bool> joined_;
};

// ---------------------------------------------------------------- regions

class RegionPlanner {
 public:
  explicit RegionPlanner(PlacedGraph& plan) : plan_(plan), readers_(readers_of(plan)), joined_(joined_values(plan)), columns_(plan, joined_) {
    for (const TowerClass& c : plan.classes)
      if (c.share > largest_.rows) largest_ = plan.share(c.towers[0]);
    for (const auto& [name, v] : plan.fetches) fetched_.insert(v);
  }

  void run() {
    for (std::size_t g = 0; g < plan_.groups.size(); ++g) lay_out(g);
  }

  /// Blocks of a group's values: what lay_out fits, and what its live maximum is taken of.
  struct Item {
    std::size_t node;
    std::size_t output;
    std::int64_t size;
    bool scratch;
  };
  std::vector<Block> blocks_of(std::size_t g, std::vector<Item>& items, std::int64_t& state) {
    std::vector<Block> blocks;
    int device = plan_.groups[g].devices[0];
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      PlanNode& n = plan_.nodes[i];
      int count = columns_.count(i, device);
      if (!count) continue;
      for (std::size_t k = 0; k < n.outputs.size(); ++k) {
        ValueIndex v = n.outputs[k];
        if (n.scope == Scope::tower && !joined_[static_cast<std::size_t>(v)]) continue;
        if (std::any_of(n.donates.begin(), n.donates.end(), [&](auto p) { return p.first == v; })) continue;
        if (!plan_.value(v).read) continue;
        std::int64_t size = aligned_bytes((n.ranged ? type_on(plan_, n, v, n.holders.get().front()) : local_type(plan_.value(v), n.scope == Scope::tower ? largest_ : plan_.share(-1))).bytes());
        if (n.op == kInput) {
          n.by_group[g].outputs[k] = {Slot::kFeed, 0, size};
        } else if (n.scope == Scope::state) {
          n.by_group[g].outputs[k] = {Slot::kState, state, size};
          state += size;
        } else {
          bool mine = n.scope == Scope::shared && n.op != kCopy && !fetched_.contains(v);
          std::int64_t end = n.order;
          for (int r : readers_[static_cast<std::size_t>(v)]) {
            const PlanNode& reader = plan_.nodes[static_cast<std::size_t>(r)];
            mine = mine && reader.holders == n.holders && reader.scope == Scope::shared && reader.op != kCopy && n.ranged == reader.ranged;
            end = std::max<std::int64_t>(end, reader.order);
          }
          blocks.push_back({size * count, mine ? n.order : -1, mine ? end : kForever});
          items.push_back({i, k, size, false});
        }
      }
      if (n.scope != Scope::tower && n.by_group[g].scratch_bytes) {
        blocks.push_back({aligned_bytes(n.by_group[g].scratch_bytes), n.order, n.order});
        items.push_back({i, 0, aligned_bytes(n.by_group[g].scratch_bytes), true});
      }
    }
    return blocks;
  }

 private:
  void lay_out(std::size_t g) {
    std::vector<Item> items;
    std::int64_t state = 0;
    std::vector<Block> blocks = blocks_of(g, items, state);
    Fit f = fit(blocks);
    for (std::size_t b = 0; b < items.size(); ++b) {
      Variant& variant = plan_.nodes[items[b].node].by_group[g];
      (items[b].scratch ? variant.scratch : variant.outputs[items[b].output]) = {Slot::kRegion, f.offsets[b], items[b].size};
    }
    plan_.groups[g].state = state;
    plan_.groups[g].region = f.total;
  }

  PlacedGraph& plan_;
  std::vector<std::vector<int>> readers_;
  std::vector<bool> joined_;
  Columns columns_;
  Share largest_;
  std::set<ValueIndex> fetched_;
};

}  // namespace

void plan_memory(PlacedGraph& plan) {
  FramePlanner(plan).run();
  RegionPlanner(plan).run();
  plan.frames.assign(plan.cluster.devices.size(), FrameSize{});
  for (const TowerClass& c : plan.classes)
    for (int t : c.towers)
      for (std::size_t x = 0; x < plan.vectors.size(); ++x) {
        int local = c.pattern[x].device;
        if (local < 0 || local >= static_cast<int>(c.frame.size())) continue;
        FrameSize& f = plan.frames[static_cast<std::size_t>(plan.vectors[x][static_cast<std::size_t>(t)])];
        f.kept = std::max(f.kept, c.frame[static_cast<std::size_t>(local)].kept);
        f.transient = std::max(f.transient, c.frame[static_cast<std::size_t>(local)].transient);
      }
}

std::vector<DeviceBytes> device_bytes(const PlacedGraph& plan) {
  std::vector<DeviceBytes> out(plan.cluster.devices.size());
  for (const DeviceGroup& g : plan.groups)
    for (int device : g.devices)
      if (auto d = static_cast<std::size_t>(device); d < out.size()) out[d].state = g.state, out[d].region = g.region;
  for (const PlanStream& s : plan.streams) {
    auto d = static_cast<std::size_t>(s.device);
    if (s.name == "main" || d >= std::min(out.size(), plan.frames.size())) continue;
    out[d].kept += s.slots * plan.frames[d].kept;
    out[d].transient += plan.frames[d].transient;
  }
  return out;
}

}  // namespace belfry
