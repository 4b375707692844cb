#include <belfry/executor/structural.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include <belfry/executor/join_request.h>
#include <belfry/executor/joins.h>
#include <belfry/graph/plan/memory.h>
#include <belfry/graph/plan/ranges.h>
#include <belfry/graph/structural.h>

namespace belfry {

namespace {

/// Carries bytes of parts, each by its carrier; `finish` waits where the host does.
class Carrying {
 public:
  explicit Carrying(Carriers carriers) : carriers_(std::move(carriers)) {
    for (Queue* q : carriers_.of_part)
      if (q && !carriers_.own && std::find(foreign_.begin(), foreign_.end(), q) == foreign_.end()) foreign_.push_back(q);
  }
  /// `to` and `from`: where the offsets of the rows are counted from.
  void carry(const CarriedRows& c, std::byte* to, const std::byte* from, Queue* own) const {
    Queue* q = carriers_.own ? own : carriers_.of_part[c.part];
    to += c.to, from += c.from;
    if (!q) {
      for (std::int64_t r = 0; r < c.rows; ++r) std::memmove(to + r * c.to_step, from + r * c.from_step, static_cast<std::size_t>(c.bytes));
      return;
    }
    try {
      if (c.rows == 1 || (c.from_step == c.bytes && c.to_step == c.bytes)) q->copy(to, from, c.rows * c.bytes);
      else q->copy_rows(to, c.to_step, from, c.from_step, c.bytes, c.rows);
    } catch (...) {
      end();
      throw;
    }
  }
  void finish() const {
    for (Queue* q : foreign_) q->finish();
  }
  /// After an error: nothing is under way any more.
  void end() const {
    for (Queue* q : foreign_) {
      try {
        q->finish();
      } catch (const DeviceError&) {  // the first error is the one to tell
      }
    }
  }
  bool lands(std::size_t part) const { return carriers_.of_part[part] != nullptr; }

 private:
  Carriers carriers_;
  std::vector<Queue*> foreign_;
};

/// A kernel that only carries: `each` calls its argument with rows.
template <class F>
std::unique_ptr<Prepared> carrying(Carriers carriers, F each) {
  return prepared([carrying = Carrying(std::move(carriers)), each = std::move(each)](const Arguments& a) {
    each([&](const CarriedRows& c) {
      if (c.bytes) carrying.carry(c, a.outputs[0], a.inputs[c.part], a.queue);
    });
    carrying.finish();
  });
}

/// Some parts are first carried into the scratch; the kernel inside reads them there.
class Landed : public Prepared {
 public:
  Landed(Carriers carriers, std::vector<std::int64_t> bytes, std::unique_ptr<Prepared> inner) : carrying_(std::move(carriers)), bytes_(std::move(bytes)), inner_(std::move(inner)) {}
  void launch(const Arguments& a) override {
    arguments_ = a;
    std::byte* at = a.scratch;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (!carrying_.lands(i)) continue;
      carrying_.carry({.part = i, .bytes = bytes_[i]}, at, a.inputs[i], a.queue);
      arguments_.inputs[i] = at;
      at += aligned_bytes(bytes_[i]);
    }
    carrying_.finish();
    inner_->launch(arguments_);
  }

 private:
  Carrying carrying_;
  std::vector<std::int64_t> bytes_;  // per part
  std::unique_ptr<Prepared> inner_;
  Arguments arguments_;              // with the landed parts: assigned anew by each launch, without taking memory again
};

/// Parts [first, first + count) of a sum become an output.
struct Sum {
  std::size_t first = 0, count = 0, output = 0;
  std::unique_ptr<Prepared> kernel;
  Arguments arguments = {};
};

std::unique_ptr<Prepared> sum_kernel(JoinRequest request, const Step& step, const BufferRef& to, const KernelTable* kernels) {
  const LocalType& type = to.type;
  if (!kernels) return prepared([join = Join(std::move(request), type)](const Arguments& a) mutable { join(a.inputs, a.outputs[0]); });
  request.tree = join_tree(request);
  KernelRequest r;
  Attributes attributes = {{"how", request.how}};
  r.op = kAggregate;
  r.attributes = &attributes;
  for (const JoinPart& p : request.parts) r.inputs.push_back(p.type);
  r.outputs = {type};
  r.wanted = {true};
  r.join = &request;
  const bool in_place = std::any_of(step.reads[0].begin(), step.reads[0].end(), [&](const Part& p) { return p.buffer.space == to.space && p.buffer.at == to.at; });
  return kernels->prepare(kAggregate, r, {0, in_place});
}

/// The sums of a join, or of a pre-aggregate's pieces: each piece is a whole subtree, so that joined by itself it has the tree's shape.
std::vector<Sum> sums_of(const PlanNode& n, const Step& step, JoinRequest request, const KernelTable* kernels) {
  std::vector<Sum> out;
  if (n.op != kPreAggregate) {
    out.push_back({0, request.parts.size(), 0, sum_kernel(request, step, step.writes[0][0].buffer, kernels)});
    return out;
  }
  for (std::size_t w = 0; w < step.writes[0].size(); ++w) {
    const Part& piece = step.writes[0][w];
    JoinRequest mine{request.how, request.axis, piece.high - piece.low, std::min(request.present, piece.high) - piece.low, {}};
    std::size_t first = 0;
    for (std::size_t i = 0; i < request.parts.size(); ++i) {
      const JoinPart& p = request.parts[i];
      if (p.low < piece.low) first = i + 1;
      else if (p.low < piece.high) mine.parts.push_back({p.low - piece.low, p.high - piece.low, p.type});
    }
    std::size_t count = mine.parts.size();
    out.push_back({first, count, w, sum_kernel(mine, step, piece.buffer, kernels)});
  }
  return out;
}

/// Parts from the holder behind this one round to its own, those of one device in their order.
std::vector<int> ring_order(const PlanNode& n, const Step& step) {
  const std::vector<int>& holders = n.holders;
  auto place = [&](int device) { return static_cast<std::size_t>(std::find(holders.begin(), holders.end(), device) - holders.begin()); };
  std::vector<int> out(step.reads[0].size());
  std::iota(out.begin(), out.end(), 0);
  auto way = [&](int part) { return (place(step.reads[0][static_cast<std::size_t>(part)].buffer.tag.device) + holders.size() - place(step.device) - 1) % holders.size(); };
  std::stable_sort(out.begin(), out.end(), [&](int a, int b) { return way(a) < way(b); });
  return out;
}

std::unique_ptr<Prepared> summing(const PlanNode& n, const Step& step, const JoinRequest& request, const Carriers& carriers, const KernelTable* kernels) {
  if (carriers.own && !kernels) throw UserError(fmt::format("unbound: '{}' sums on a device for whose kind there are no kernels", n.name));
  auto inner = prepared([is_pre = n.op == kPreAggregate, sums = sums_of(n, step, request, carriers.own ? kernels : nullptr)](const Arguments& a) mutable {
    for (Sum& s : sums) {
      if (is_pre && s.count == 1 && a.inputs[s.first] == a.outputs[s.output]) continue;  // it lies there
      s.arguments.inputs.assign(a.inputs.begin() + static_cast<std::ptrdiff_t>(s.first), a.inputs.begin() + static_cast<std::ptrdiff_t>(s.first + s.count));
      s.arguments.outputs.assign(1, a.outputs[s.output]);
      s.arguments.stream = a.stream;
      s.arguments.queue = a.queue;
      s.kernel->launch(s.arguments);
    }
  });
  std::vector<std::int64_t> bytes;
  std::int64_t needed = 0;
  for (std::size_t i = 0; i < request.parts.size(); ++i) {
    bytes.push_back(request.parts[i].type.bytes());
    if (carriers.of_part[i]) needed += aligned_bytes(bytes.back());
  }
  if (!needed) return inner;
  if (needed > step.scratch.bytes) throw UserError(fmt::format("unbound: '{}' must land {} bytes of other memory spaces and has {} bytes of scratch; derive the plan anew with belfry place", n.name, needed, step.scratch.bytes));
  return std::make_unique<Landed>(carriers, std::move(bytes), std::move(inner));
}

}  // namespace

std::unique_ptr<Prepared> structural_kernel(const BoundPlan& bound, const Step& step, const Carriers& carriers, const KernelTable* kernels) {
  const PlacedGraph& plan = bound.plan;
  const PlanNode& n = plan.nodes[static_cast<std::size_t>(step.node)];
  if (n.op == kInput) return prepared([](const Arguments&) {});
  if (n.op == kCopy || n.op == kStore) {
    std::int64_t bytes = step.writes[0].empty() ? 0 : step.writes[0][0].buffer.bytes;
    return carrying(carriers, [bytes](const CarryRows& carry) { carry({.bytes = bytes}); });
  }
  const LocalType& type = step.writes[0][0].buffer.type;
  if (n.op == kAllGather && !joins_ranges(plan, n))  // the host has gathered them
    return carrying(carriers, [bytes = type.bytes()](const CarryRows& carry) { carry({.bytes = bytes}); });
  if (n.op == kSplit) {
    const PlanValue& v = plan.value(n.outputs[0]);
    Share share = bound.shares[static_cast<std::size_t>(step.tower)];
    std::int64_t factor = v.type.shape[static_cast<std::size_t>(v.state.axis)].factor;
    return carrying(carriers, [from = step.reads[0][0].buffer.type, axis = v.state.axis, first = factor * share.first_row, count = factor * share.rows](const CarryRows& carry) { carry_rows(from, axis, first, count, carry); });
  }
  if (joins_ranges(plan, n)) {
    std::vector<std::int64_t> bytes;
    for (const Part& p : step.reads[0]) bytes.push_back(p.buffer.bytes);
    return carrying(carriers, [bytes](const CarryRows& carry) {
      std::int64_t at = 0;
      for (std::size_t h = 0; h < bytes.size(); at += bytes[h++]) carry({.part = h, .to = at, .bytes = bytes[h]});
    });
  }
  JoinRequest request{n.attributes.text("how"), n.attributes.find("axis") ? static_cast<int>(n.attributes.integer("axis")) : 0, plan.towers, plan.present(), {}};
  for (const Part& p : step.reads[0]) request.parts.push_back({p.low, p.high, p.buffer.type});
  if (n.sum == SumWay::ring) request.ring = ring_order(n, step);
  if (computes(request)) return summing(n, step, request, carriers, kernels);
  return carrying(carriers, [request, type](const CarryRows& carry) { carry_join(request, type, carry); });
}

}  // namespace belfry
