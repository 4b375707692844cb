#include <belfry/graph/split_rules.h>

#include <algorithm>
#include <utility>

namespace belfry {

namespace {

using States = std::vector<SplitState>;

States all(std::size_t n, SplitState s) { return States(n, s); }

States read_whole(States states) {
  for (SplitState& s : states)
    if (s.is_partial() || s.is_rows()) s = kReplicated;
  return states;
}

std::int64_t size(const Shape& shape, std::int64_t batch) { return elements(extents_of(shape, batch)); }

/// No operand has rows: linearity decides.
Split split_partials(const SplitContext& c, std::optional<Reduction> joint, const std::vector<int>& each, bool can_cut) {
  auto one = [&](const States& reads, SplitState s) { return Split{reads, all(c.outputs.size(), s)}; };
  std::vector<int> parts;
  for (std::size_t i = 0; i < c.states.size(); ++i) {
    // Beside a partial this is an error, which is judged on the final states.
    if (c.states[i].is_per_tower()) return one(c.states, kPerTower);
    if (c.states[i].is_partial()) parts.push_back(static_cast<int>(i));
  }
  if (parts.empty()) return one(c.states, kReplicated);
  SplitState first = c.states[static_cast<std::size_t>(parts[0])];
  bool uniform = std::all_of(c.states.begin(), c.states.end(), [&](const SplitState& s) { return s == first; });
  if (joint == first.reduction && uniform) return one(c.states, first);
  if (can_cut && std::count(c.states.begin(), c.states.end(), partial(Reduction::sum)) > 1) {
    States reads = c.states;
    for (SplitState& s : reads)
      if (s != partial(Reduction::sum)) s = kReplicated;
    return one(reads, kReplicated);
  }
  bool alone = parts.size() == 1 && first.reduction == Reduction::sum && std::find(each.begin(), each.end(), parts[0]) != each.end();
  // A partial is never enlarged: every tower would send more than it computed.
  if (alone && size(c.outputs[0].shape, c.batch) <= size(c.inputs[static_cast<std::size_t>(parts[0])].shape, c.batch)) return one(c.states, first);
  return one(read_whole(c.states), kReplicated);
}

Split elementwise(const SplitContext& c, std::optional<Reduction> joint, const std::vector<int>& each, bool can_cut) {
  int rank = static_cast<int>(c.outputs[0].shape.size());
  for (std::size_t i = 0; i < c.states.size(); ++i) {
    if (!c.states[i].is_rows()) continue;
    // The first operand with rows sets the axis.
    int axis = c.states[i].axis + rank - static_cast<int>(c.inputs[i].shape.size());
    Split out{{}, all(c.outputs.size(), rows(axis))};
    for (std::size_t k = 0; k < c.states.size(); ++k)
      out.reads.push_back(c.states[k].is_per_tower() ? c.states[k] : aligned(c.inputs[k].shape, axis, rank));
    return out;
  }
  return split_partials(c, joint, each, can_cut);
}

}  // namespace

SplitState aligned(const Shape& shape, int axis, int rank) {
  int i = axis - (rank - static_cast<int>(shape.size()));
  return i >= 0 && shape[static_cast<std::size_t>(i)].symbolic() ? rows(i) : kReplicated;
}

SplitState settled(const Shape& shape, SplitState state) {
  std::vector<int> axes = symbolic_axes(shape);
  return !axes.empty() && (state.is_partial() || state.is_replicated()) ? rows(axes[0]) : state;
}

SplitRule split_of_source() {
  return [](const SplitContext& c) {
    Split out{all(c.states.size(), kReplicated), {}};
    for (const TensorType& t : c.outputs) out.gives.push_back(settled(t.shape, kReplicated));
    return out;
  };
}

SplitRule held_whole() {
  return [](const SplitContext& c) { return Split{{}, all(c.outputs.size(), kReplicated)}; };
}

SplitRule split_elementwise(std::optional<Reduction> joint, std::vector<int> each) {
  return [joint, each = std::move(each)](const SplitContext& c) { return elementwise(c, joint, each, false); };
}

SplitRule split_sum() {
  return [](const SplitContext& c) { return elementwise(c, Reduction::sum, {}, true); };
}

Split split_contraction(const SplitContext& c, const std::string& a, const std::string& b, const std::string& out) {
  const std::string* letters[] = {&a, &b};
  auto letter = [&](std::size_t i) { return c.states[i].is_rows() ? (*letters[i])[static_cast<std::size_t>(c.states[i].axis)] : '\0'; };
  char first = letter(0), second = letter(1);
  auto in = [](char l, const std::string& s) { return s.find(l) != s.npos; };
  if (!first && !second) return split_partials(c, {}, {0, 1}, false);
  char stays = first ? first : second;
  if (first && second && !in(first, out) && in(second, out)) stays = second;  // whole: the one whose rows are summed
  Split s;
  for (std::size_t i = 0; i < 2; ++i) {
    if (c.states[i].is_per_tower()) s.reads.push_back(kPerTower);
    else if (in(stays, *letters[i])) s.reads.push_back(rows(static_cast<int>(letters[i]->find(stays))));
    else s.reads.push_back(kReplicated);
  }
  s.gives = {in(stays, out) ? rows(static_cast<int>(out.find(stays))) : partial(Reduction::sum)};
  return s;
}

SplitRule split_reduction(Reduction reduction) {
  return [=](const SplitContext& c) -> Split {
    SplitState s = c.states[0];
    int rank = static_cast<int>(c.inputs[0].shape.size());
    std::vector<int> axes = axes_from_front(c.attributes.integers("axes"), rank);
    auto reduced = [&](int axis) { return axes.empty() || std::find(axes.begin(), axes.end(), axis) != axes.end(); };
    if (s.is_rows()) {
      if (reduced(s.axis)) return {{s}, {partial(reduction)}};
      int before = 0;
      for (int a = 0; a < s.axis; ++a) before += reduced(a);
      return {{s}, {c.attributes.flag("keep") ? s : rows(s.axis - before)}};
    }
    if (s.is_partial() && s.reduction != reduction) return {{kReplicated}, {kReplicated}};
    return {{s}, {s}};
  };
}

std::optional<int> reshaped_axis(const Shape& before, const Shape& after, int axis) {
  struct Item { int at; Dim dim; };
  auto wide = [](const Shape& s) {
    std::vector<Item> out;
    for (std::size_t i = 0; i < s.size(); ++i)
      if (s[i] != Dim(1)) out.push_back({static_cast<int>(i), s[i]});
    return out;
  };
  std::vector<Item> a = wide(before), b = wide(after);
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    std::size_t i0 = i, j0 = j;
    auto measure = [](const std::vector<Item>& x, std::size_t from, std::size_t to) {
      std::pair<int, std::int64_t> out{0, 1};
      for (std::size_t k = from; k < to; ++k) {
        out.first += x[k].dim.symbolic();
        out.second *= x[k].dim.factor;
      }
      return out;
    };
    ++i, ++j;
    while (measure(a, i0, i) != measure(b, j0, j)) {
      if (measure(a, i0, i) < measure(b, j0, j)) {
        if (i == a.size()) return {};
        ++i;
      } else {
        if (j == b.size()) return {};
        ++j;
      }
    }
    for (std::size_t k = i0; k < i; ++k)
      if (a[k].at == axis) return k == i0 && b[j0].dim.symbolic() ? std::optional<int>(b[j0].at) : std::nullopt;
  }
  return {};
}

SplitRule split_reshape() {
  return [](const SplitContext& c) -> Split {
    SplitState s = c.states[0];
    if (!s.is_rows()) return {{s}, {s}};
    auto axis = reshaped_axis(c.inputs[0].shape, c.outputs[0].shape, s.axis);
    if (!axis) return {{kReplicated}, {kReplicated}};
    return {{s}, {rows(*axis)}};
  };
}

SplitRule split_transpose() {
  return [](const SplitContext& c) -> Split {
    SplitState s = c.states[0];
    if (!s.is_rows()) return {{s}, {s}};
    const Integers& order = c.attributes.integers("order");
    for (std::size_t i = 0; i < order.size(); ++i)
      if (from_front(order[i], static_cast<int>(order.size())) == s.axis) return {{s}, {rows(static_cast<int>(i))}};
    return {{kReplicated}, {kReplicated}};
  };
}

SplitRule split_broadcast_like() {
  return [](const SplitContext& c) -> Split {
    SplitState g = c.states[0], like = c.states[1];
    int rank = static_cast<int>(c.inputs[1].shape.size());
    int from = static_cast<int>(c.inputs[0].shape.size());
    int axis = like.is_rows() ? like.axis : g.is_rows() ? g.axis + rank - from : -1;
    if (axis >= 0) return {{g.is_per_tower() ? g : aligned(c.inputs[0].shape, axis, rank), like}, {rows(axis)}};
    if (g.is_partial() && size(c.inputs[1].shape, c.batch) > size(c.inputs[0].shape, c.batch)) return {{kReplicated, like}, {kReplicated}};
    return {{g, like}, {g}};
  };
}

SplitRule rows_unless_along(std::string attribute, bool removes) {
  return [attribute = std::move(attribute), removes](const SplitContext& c) -> Split {
    SplitState s = c.states[0].is_partial() ? kReplicated : c.states[0];
    int rank = static_cast<int>(c.inputs[0].shape.size());
    int axis = from_front(c.attributes.integer(attribute), rank);
    if (s == rows(axis)) {
      s = kReplicated;
      for (int other : symbolic_axes(c.inputs[0].shape))
        if (other != axis && !s.is_rows()) s = rows(other);
    }
    States reads = {s};
    for (std::size_t i = 1; i < c.states.size(); ++i)
      reads.push_back(s.is_rows() ? aligned(c.inputs[i].shape, s.axis, rank) : c.states[i].is_per_tower() ? kPerTower : kReplicated);
    if (removes && s.is_rows() && s.axis > axis) return {reads, all(c.outputs.size(), rows(s.axis - 1))};
    return {reads, all(c.outputs.size(), s)};
  };
}

SplitRule row_by_row(int lead, int axis) {
  return [=](const SplitContext& c) -> Split {
    SplitState s = c.states[static_cast<std::size_t>(lead)];
    if (s.is_partial() || (s.is_rows() && axis >= 0 && s.axis != axis)) s = kReplicated;
    Split out;
    for (std::size_t i = 0; i < c.states.size(); ++i)
      out.reads.push_back(static_cast<int>(i) == lead ? s : c.states[i].is_per_tower() && !c.op.inputs[std::min(i, c.op.inputs.size() - 1)].shape_only ? kPerTower : kReplicated);
    if (!s.is_rows() && std::find(out.reads.begin(), out.reads.end(), kPerTower) != out.reads.end()) s = kPerTower;
    out.gives = all(c.outputs.size(), s);
    return out;
  };
}

SplitRule all_replicated() {
  return [](const SplitContext& c) { return Split{all(c.states.size(), kReplicated), all(c.outputs.size(), kReplicated)}; };
}

SplitRule split_of_join() {
  return [](const SplitContext& c) { return Split{{c.states[0].is_per_tower() ? kPerTower : kReplicated}, {kReplicated}}; };
}

}  // namespace belfry
