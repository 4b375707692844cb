#include <algorithm>
#include <optional>

#include <belfry/graph/plan/accumulated.h>
#include <belfry/graph/plan/memory_parts_internal.h>
#include <belfry/graph/plan/offsets.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// More entries than this (nodes times devices of a tower) are not kept to know when another device has read a value.
constexpr std::size_t kMostClocks = std::size_t{1} << 25;

struct Life {
  Block block;
  std::int64_t known = 0;  ///< FrameBlock::known
  bool kept = false;
  std::pair<int, int> phase;
  int run = 0;             ///< FramePlanner::run_of
  ValueIndex joined = -1;  ///< as FrameBlock's
  std::int64_t own = 0;
  bool of_last = false;
};

/// The frames of one class of towers.
class FramePlanner {
 public:
  FramePlanner(PlacedGraph& plan, MemoryParts& parts, int cls)
      : plan_(plan), parts_(parts), c_(static_cast<std::size_t>(cls)), tower_(plan.classes[c_].towers[0]), share_(plan.share(tower_)), position_(parts.position[c_]), root_(plan.values.size(), -1),
        scratch_(plan.nodes.size(), -1) {}

  void run() {
    struct Place {
      int epoch, phase, order, node;
      auto operator<=>(const Place&) const = default;
    };
    std::vector<Place> places;
    places.reserve(plan_.nodes.size());
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& n = plan_.nodes[i];
      if (n.scope != Scope::tower || n.phases[c_] < 0) continue;
      places.push_back({n.epoch, n.phases[c_], n.order, static_cast<int>(i)});
      auto l = static_cast<std::size_t>(local(static_cast<int>(i)));
      if (l >= own_.size()) own_.resize(l + 1);
    }
    std::sort(places.begin(), places.end());
    order_.reserve(places.size());
    for (const Place& p : places) order_.push_back(p.node);
    for (int i : order_) {
      auto& mine = own_[static_cast<std::size_t>(local(i))];
      position_[static_cast<std::size_t>(i)] = static_cast<int>(mine.size());
      mine.push_back(i);
    }
    set_clocks();
    plan_.classes[c_].frame.assign(own_.size(), FrameSize{});
    for (std::size_t l = 0; l < own_.size(); ++l)
      if (!own_[l].empty()) lay_out(l);
    for (std::size_t l = 0; l < own_.size(); ++l) parts_.nodes[{static_cast<int>(c_), static_cast<int>(l)}] = std::move(own_[l]);
  }

 private:
  PlanNode& node(int i) const { return plan_.nodes[static_cast<std::size_t>(i)]; }
  int local(int i) const { return parts_.local(static_cast<int>(c_), node(i).vector); }
  std::pair<int, int> phase(int i) const { return {node(i).epoch, node(i).phases[c_]}; }
  int run(int i) const { return run_of_.empty() ? 0 : run_of_[static_cast<std::size_t>(i)]; }
  std::int64_t bytes(ValueIndex v) const { return local_bytes(plan_.value(v), share_); }

  /// The node of the tower whose buffer a reader of the tower reads as v.
  int source(int reader, ValueIndex v) const {
    const PlanNode& r = node(reader);
    return is_op(r, kCopy) ? plan_.value(v).maker : parts_.instances.own(v, tower_, plan_.device_of(r, tower_)).node;
  }

  /// Per node and local device: how far the tower has come there when the node runs.
  void set_clocks() {
    const std::size_t n = own_.size();
    if (n < 2 || n * plan_.nodes.size() > kMostClocks) return;
    clocks_.assign(n * plan_.nodes.size(), -1);
    std::vector<std::vector<int>> now(n, std::vector<int>(n, -1));
    for (int i : order_) {
      auto l = static_cast<std::size_t>(local(i));
      std::vector<int>& mine = now[l];
      for_values_read(node(i), [&](ValueIndex v) {
        if (plan_.maker(v).scope != Scope::tower) return;
        const int from = source(i, v);
        if (local(from) == static_cast<int>(l)) return;
        const int* clock = &clocks_[static_cast<std::size_t>(from) * n];
        for (std::size_t k = 0; k < n; ++k) mine[k] = std::max(mine[k], clock[k]);
      });
      mine[l] = position_[static_cast<std::size_t>(i)];
      std::copy(mine.begin(), mine.end(), clocks_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(i) * n));
    }
  }

  /// Per node of a device, a number that grows where another tower may run between it and the node before.
  void set_runs(std::size_t l) {
    std::vector<std::pair<int, int>> cuts;  // phases before which another tower runs
    const auto x = static_cast<std::size_t>(node(own_[l][0]).vector);
    std::vector<bool> mine(static_cast<std::size_t>(plan_.towers));
    for (int t : plan_.classes[c_].towers) mine[static_cast<std::size_t>(t)] = true;
    for (const PlanStream& s : plan_.streams) {
      if (s.name == "main") continue;
      for (std::size_t e = 0; e < s.entries.size(); ++e)
        if (const StreamEntry& at = s.entries[e]; mine[static_cast<std::size_t>(at.tower)] && plan_.vectors[x][static_cast<std::size_t>(at.tower)] == s.device && (e == 0 || s.entries[e - 1].tower != at.tower))
          cuts.emplace_back(at.epoch, at.phase);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    run_of_.resize(plan_.nodes.size());
    for (int i : own_[l]) run_of_[static_cast<std::size_t>(i)] = static_cast<int>(std::upper_bound(cuts.begin(), cuts.end(), phase(i)) - cuts.begin());
  }

  /// The first position on a device at which another device has passed `reader`; kForever: none.
  std::int64_t knows(std::size_t l, int reader) const {
    if (clocks_.empty()) return kForever;
    const auto k = static_cast<std::size_t>(local(reader));
    auto past = [&](int i) { return clocks_[static_cast<std::size_t>(i) * own_.size() + k] < position_[static_cast<std::size_t>(reader)]; };
    auto at = std::partition_point(own_[l].begin(), own_[l].end(), past);
    return at == own_[l].end() ? kForever : at - own_[l].begin();
  }

  /// The most slots of a stream that runs these towers: with one, nothing is gained by telling kept bytes from others. 0: several that
  /// share a device with another class. `last`: some tower leaves its slot to nobody; `all_last`: each does.
  std::int64_t look_at_streams(std::size_t l, bool& last, bool& all_last) const {
    std::int64_t most = 1;
    bool shared = false;
    all_last = true;
    const TowerClass& cls = plan_.classes[c_];
    std::vector<int> slots(plan_.cluster.devices.size());
    for (const PlanStream& s : plan_.streams) slots[static_cast<std::size_t>(s.device)] = std::max(slots[static_cast<std::size_t>(s.device)], s.slots);
    const auto x = static_cast<std::size_t>(node(own_[l][0]).vector);
    for (int t : cls.towers) {
      auto d = static_cast<std::size_t>(plan_.vectors[x][static_cast<std::size_t>(t)]);
      most = std::max<std::int64_t>(most, slots[d]);
      shared = shared || parts_.frames_on[d].size() > 1;
      last = last || parts_.last[d][static_cast<std::size_t>(t)];
      all_last = all_last && parts_.last[d][static_cast<std::size_t>(t)];
    }
    return most > 1 && shared ? 0 : most;
  }

  void lay_out(std::size_t l) {
    bool last = false, all_last = false;
    const std::int64_t slots = look_at_streams(l, last, all_last);
    const bool one_slot = slots == 1;
    if (!one_slot) set_runs(l);
    std::vector<Life> lives;
    lives.reserve(own_[l].size());
    for (int i : own_[l]) {
      const PlanNode& n = node(i);
      const std::int64_t at = position_[static_cast<std::size_t>(i)];
      for (std::size_t k = 0; k < n.outputs.size(); ++k) {
        ValueIndex v = n.outputs[k];
        const bool joined = parts_.joined[static_cast<std::size_t>(v)];
        if ((joined && !last) || accumulates(n) || !plan_.value(v).read) continue;
        Life life{{aligned_bytes(bytes(v)), at, at}, at, one_slot, phase(i), run(i), -1, at};
        read_until(l, i, v, life);
        if (is_op(n, kCopy)) read_until(l, i, copied_by(plan_, n), life);
        life.own = life.known;
        if (joined) life.block.end = life.known = kForever, life.kept = true, life.joined = v;
        // Where slots are used again, what is joined lies elsewhere for some towers, and its input with it for none.
        std::optional<std::size_t> reused = joined && !one_slot ? std::nullopt : reusable(n, k, at, lives);
        root_[static_cast<std::size_t>(v)] = static_cast<int>(reused.value_or(lives.size()));
        if (reused) {
          Life& old = lives[*reused];
          old.block.end = life.block.end, old.known = life.known, old.joined = life.joined, old.own = life.own;
          old.kept = old.kept || life.kept || life.run != old.run;
        } else {
          life.of_last = joined;
          lives.push_back(life);
        }
      }
      if (std::int64_t wanted = n.by_class[c_].scratch_bytes) {
        scratch_[static_cast<std::size_t>(i)] = static_cast<int>(lives.size());
        lives.push_back({{aligned_bytes(wanted), at, at}, at, one_slot, phase(i), run(i), -1, at});
      }
    }
    fit(l, lives, slots, all_last);
  }

  void fit(std::size_t l, std::vector<Life>& lives, std::int64_t slots, bool all_last) {
    const FrameKey key{static_cast<int>(c_), static_cast<int>(l)};
    std::vector<FrameBlock>& layout = parts_.layouts[key];
    layout.resize(lives.size());
    for (std::size_t b = 0; b < lives.size(); ++b) layout[b] = {{}, lives[b].block.size, lives[b].block.start, lives[b].known, lives[b].block.end, lives[b].joined, lives[b].own, lives[b].of_last};
    FrameSize& frame = plan_.classes[c_].frame[l];
    const std::pair<int, int> last = phase(own_[l].back());
    const std::vector<Life> before = slots > 1 ? lives : std::vector<Life>();
    frame = arrange(lives, layout, slots, last, all_last);
    if (slots > 1 && frame.transient) {  // with few slots it can be less to keep everything than to have a transient part besides
      std::vector<Life> all = before;
      for (Life& x : all) x.kept = true;
      std::vector<FrameBlock> other = layout;
      const FrameSize whole = arrange(all, other, slots, last, all_last);
      if (slots * whole.kept + whole.tail < slots * frame.kept + frame.tail + frame.transient) frame = whole, layout = std::move(other);
    }
    for (int i : own_[l]) {
      const PlanNode& n = node(i);
      for (std::size_t k = 0; k < n.outputs.size(); ++k)
        if (int b = root_[static_cast<std::size_t>(n.outputs[k])]; b >= 0) parts_.owners.push_back({static_cast<std::size_t>(i), static_cast<int>(k), key, static_cast<std::size_t>(b)});
      if (int b = scratch_[static_cast<std::size_t>(i)]; b >= 0) parts_.owners.push_back({static_cast<std::size_t>(i), -1, key, static_cast<std::size_t>(b)});
    }
  }

  static FrameSize arrange(std::vector<Life>& lives, std::vector<FrameBlock>& layout, std::int64_t slots, std::pair<int, int> last, bool all_last) {
    FrameSize out;
    out.kept = put(lives, layout, Slot::kKept, 0, [](const Life& x) { return x.kept; });
    const std::int64_t floor = slots > 1 ? overlap(lives, layout, slots, last, all_last, out) : 0;
    fill(lives, layout, floor, out.kept + out.tail);
    out.transient = put(lives, layout, Slot::kTransient, 0, [](const Life& x) { return !x.kept; });
    return out;
  }

  /// Packs the lives that are wanted from `base` on; gives the bytes that they take.
  template <class Wanted>
  static std::int64_t put(const std::vector<Life>& lives, std::vector<FrameBlock>& layout, Slot::Region region, std::int64_t base, Wanted wanted) {
    std::vector<Block> blocks;
    std::vector<std::size_t> which;
    for (std::size_t b = 0; b < lives.size(); ++b)
      if (wanted(lives[b])) blocks.push_back(lives[b].block), which.push_back(b);
    const std::int64_t least = live_maximum(blocks);
    Packing packed = pack(blocks, least + least / 200);  // as near is enough, as it is where frames and regions are placed as one
    for (std::size_t b = 0; b < which.size(); ++b) layout[which[b]].slot = {region, base + packed.offsets[b], 0};
    return packed.peak;
  }

  /// What need not be kept lies in the tower's own kept part where there is room at the time, the largest first.
  static void fill(std::vector<Life>& lives, std::vector<FrameBlock>& layout, std::int64_t floor, std::int64_t room) {
    std::vector<std::size_t> kept, order;
    for (std::size_t b = 0; b < lives.size(); ++b) (lives[b].kept ? kept : order).push_back(b);
    if (lives.size() * order.size() > kMostClocks) return;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return lives[a].block.size > lives[b].block.size; });
    std::vector<Taken> taken;
    for (std::size_t b : order) {
      taken.assign(1, {0, floor});
      for (std::size_t other : kept)
        if (const Block &x = lives[b].block, &y = lives[other].block; x.start <= y.end && y.start <= x.end) taken.push_back({layout[other].slot.offset, layout[other].slot.offset + y.size});
      const std::int64_t at = first_gap(taken, lives[b].block.size);
      if (at + lives[b].block.size > room) continue;
      layout[b].slot = {Slot::kKept, at, 0};
      lives[b].kept = true;
      kept.push_back(b);
    }
  }

  /// What towers make for others in their last phase lies over what the tower before them is done with by then, if that is smaller.
  /// Towers that leave their slot to another keep what is joined elsewhere, but not what other devices read.
  /// Gives the bytes at the beginning that the tower before it may be using.
  static std::int64_t overlap(const std::vector<Life>& lives, std::vector<FrameBlock>& layout, std::int64_t slots, std::pair<int, int> last, bool all_last, FrameSize& frame) {
    auto is_late = [&](const Life& x) { return x.kept && (x.joined >= 0 || (all_last && x.known == kForever)) && x.phase == last; };
    auto stays = [&](const Life& x) { return x.kept && !is_late(x) && x.known == kForever; };
    std::vector<FrameBlock> other = layout;
    const std::int64_t late = put(lives, other, Slot::kKept, 0, is_late);
    const std::int64_t staying = put(lives, other, Slot::kKept, late, stays);
    const std::int64_t rest = staying + put(lives, other, Slot::kKept, late + staying, [&](const Life& x) { return x.kept && !is_late(x) && !stays(x); });
    const std::int64_t apart = std::max(rest, late + staying);
    if ((slots - 1) * apart + late + rest >= slots * frame.kept) return 0;
    layout = std::move(other);
    frame.kept = apart, frame.tail = late + rest - apart;
    return late + staying;
  }

  /// Extends a life to the last reader here, and to where the tower knows that other devices have read it.
  void read_until(std::size_t l, int maker, ValueIndex value, Life& life) const {
    for (int r : parts_.readers[static_cast<std::size_t>(value)]) {
      const PlanNode& reader = node(r);
      if (reader.scope != Scope::tower || reader.phases[c_] < 0 || r == maker || source(r, value) != maker) continue;
      if (local(r) == static_cast<int>(l)) {
        const std::int64_t at = position_[static_cast<std::size_t>(r)];
        life.block.end = std::max(life.block.end, at), life.known = std::max(life.known, at);
        life.kept = life.kept || run(r) != life.run;
      } else {
        const std::int64_t at = knows(l, r);
        life.block.end = std::max(life.block.end, at == kForever ? at : at - 1), life.known = std::max(life.known, at);
        life.kept = life.kept || at == kForever || run(own_[l][static_cast<std::size_t>(at)]) != life.run;
      }
    }
  }

  /// Whether a value lies in the frame of the device that runs a node.
  bool is_here(ValueIndex v, const PlanNode& n) const {
    return root_[static_cast<std::size_t>(v)] >= 0 && parts_.local(static_cast<int>(c_), plan_.maker(v).vector) == parts_.local(static_cast<int>(c_), n.vector);
  }

  /// The block of an input that ends here, has as many bytes, and that op and kernel allow to be written over.
  std::optional<std::size_t> reusable(const PlanNode& n, std::size_t output, std::int64_t at, const std::vector<Life>& lives) const {
    if (!n.by_class[c_].in_place) return {};
    for (auto [k, i] : in_place_pairs(plan_, n)) {
      if (k != static_cast<int>(output) || i >= static_cast<int>(n.inputs.size()) || n.inputs[static_cast<std::size_t>(i)] < 0) continue;
      const ValueIndex input = n.inputs[static_cast<std::size_t>(i)];
      if (!is_here(input, n)) continue;
      const int b = root_[static_cast<std::size_t>(input)];
      if (lives[static_cast<std::size_t>(b)].block.end != at || lives[static_cast<std::size_t>(b)].known != at) continue;
      // To the byte: what stretches an operand would overtake its own reading.
      if (bytes(input) != bytes(n.outputs[output])) continue;
      // Another input in the same bytes is read by other indices than it is written.
      auto same = std::count_if(n.inputs.begin(), n.inputs.end(), [&](ValueIndex v) { return v >= 0 && is_here(v, n) && root_[static_cast<std::size_t>(v)] == b; });
      if (same == 1) return static_cast<std::size_t>(b);
    }
    return {};
  }

  PlacedGraph& plan_;
  MemoryParts& parts_;
  std::size_t c_;
  int tower_;
  Share share_;
  std::vector<int> order_;              ///< the class's nodes, by (epoch, phase, list)
  std::vector<std::vector<int>> own_;   ///< per local device, in order
  std::vector<int>& position_;
  std::vector<int> clocks_;
  std::vector<int> run_of_;             ///< set_runs
  std::vector<int> root_, scratch_;     ///< per value and node: its life
};

}  // namespace

void plan_frames(PlacedGraph& plan, MemoryParts& parts) {
  parts.owners.reserve(plan.nodes.size());
  parts.position.assign(plan.classes.size(), std::vector<int>(plan.nodes.size(), -1));
  for (std::size_t c = 0; c < plan.classes.size(); ++c) FramePlanner(plan, parts, static_cast<int>(c)).run();
}

}  // namespace belfry
