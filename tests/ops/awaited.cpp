#include "awaited.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <set>

#include <fmt/format.h>

#include <belfry/ops/half_kernels_internal.h>

#include "gpu_cases.h"
#include "tables.h"

namespace belfry::test {
namespace {

constexpr std::size_t kMargin = 64;
constexpr std::int64_t kAt = 64;  ///< in a device's memory: a plan aligns to no more

/// Bytes with a margin of marked ones behind them, on a device if there is one.
class Guarded {
 public:
  Guarded(std::size_t bytes, Device* device, std::size_t past = 0) : size_(bytes), past_(past), device_(device), memory_(bytes + 2 * kMargin, std::byte{0xA5}) {
    if (device) there_.emplace(device->allocate(kAt + size(), "a test"));
  }
  std::byte* data() { return there_ ? there_->at(kAt) : memory_.data() + past_; }
  void put(const HostTensor* x) {
    if (x && !x->bytes().empty()) std::memcpy(memory_.data() + past_, x->raw(), x->bytes().size());
    if (there_) device_->copy(there_->at(kAt), memory_.data(), size());
  }
  const std::byte* take() {
    if (there_) device_->copy(memory_.data(), there_->at(kAt), size());
    return memory_.data() + past_;
  }
  /// After it was taken.
  bool whole() const {
    return std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(past_ + size_), memory_.end(), [](std::byte b) { return b == std::byte{0xA5}; });
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(memory_.size()); }

  std::size_t size_, past_;
  Device* device_;
  std::vector<std::byte, AlignedAllocator<std::byte>> memory_;
  std::optional<Arena> there_;
};

}  // namespace

std::vector<HostTensor> run(const Awaited& w, const On& on, std::pair<int, int> alias) {
  std::vector<Guarded> in, out;
  for (const HostTensor& x : w.inputs) {
    in.emplace_back(x.bytes().size(), on.device, on.past);
    in.back().put(&x);
  }
  for (const HostTensor& y : w.wanted) out.emplace_back(y.bytes().size(), on.device, on.past).put(nullptr);
  Guarded scratch(static_cast<std::size_t>(w.scratch), on.device);
  scratch.put(nullptr);
  auto over = [&](std::size_t k) { return static_cast<int>(k) == alias.first ? &in[static_cast<std::size_t>(alias.second)] : &out[k]; };
  Arguments a;
  for (std::size_t i = 0; i < in.size(); ++i) a.inputs.push_back(w.given[i] ? in[i].data() : nullptr);
  for (std::size_t k = 0; k < out.size(); ++k) a.outputs.push_back(w.request.wanted[k] ? over(k)->data() : nullptr);
  a.scratch = scratch.data();
  a.queue = on.queue;
  a.stream = on.queue ? on.queue->stream() : nullptr;
  w.kernel->launch(a);
  if (on.queue) on.queue->finish();
  scratch.take();
  EXPECT_TRUE(scratch.whole()) << "wrote behind its scratch";
  std::vector<HostTensor> got;
  for (std::size_t k = 0; k < out.size(); ++k) {
    got.push_back(w.wanted[k]);
    const std::byte* bytes = over(k)->take();
    EXPECT_TRUE(over(k)->whole()) << "wrote behind output " << k;
    if (a.outputs[k] && !got[k].bytes().empty()) std::memcpy(got[k].raw(), bytes, got[k].bytes().size());
  }
  return got;
}

std::vector<HostTensor> expect_as_wanted(const Awaited& w, const On& on) {
  SCOPED_TRACE(w.what);
  std::vector<HostTensor> apart;
  std::vector<std::pair<int, int>> aliases = {{-1, -1}};
  if (w.in_place)
    for (auto [k, i] : w.request.def->in_place)
      if (static_cast<std::size_t>(i) < w.inputs.size() && w.given[static_cast<std::size_t>(i)] && w.inputs[static_cast<std::size_t>(i)].type() == w.wanted[static_cast<std::size_t>(k)].type()) aliases.emplace_back(k, i);
  for (auto alias : aliases) {
    std::vector<HostTensor> got = run(w, on, alias);
    for (std::size_t k = 0; k < got.size(); ++k) {
      bool exact = w.request.def->exact || (!is_float(got[k].dtype()) && !is_half(got[k].dtype()));
      if (exact) EXPECT_TRUE(got[k] == w.wanted[k] || distance(got[k], w.wanted[k]) == 0) << "output " << k << ", aliased " << alias.first << " on " << alias.second << ", differs by " << distance(got[k], w.wanted[k]);
      else EXPECT_LE(distance(got[k], w.wanted[k]), w.tolerance) << "output " << k << ", aliased " << alias.first << " on " << alias.second;
    }
    if (alias.first < 0) apart = std::move(got);
  }
  return apart;
}

namespace {

/// A case with its request, and what it shall give; no kernel yet.
Awaited asked(const OpDef& def, const OpCase& c, std::int64_t batch, bool all_read) {
  std::mt19937_64 rng(29);
  Awaited w;
  for (const CaseInput& i : c.inputs) w.inputs.push_back(draw(i, batch, false, rng)), w.given.push_back(i.given);
  w.wanted = run_op(def, c, w.inputs, batch);
  w.attributes = std::make_shared<Attributes>(checked(def.attributes, c.attributes, def.name));
  w.tolerance = c.tolerance;
  KernelRequest& r = w.request;
  r.op = def.name;
  r.def = &def;
  r.attributes = w.attributes.get();
  r.output_types = c.outputs;
  for (const OutputDef& o : def.outputs) r.wanted.push_back(all_read || !o.optional);
  r.share = Share{0, batch, batch, 1, Combine::global_mean};
  for (std::size_t i = 0; i < w.inputs.size(); ++i) r.inputs.push_back(w.given[i] ? w.inputs[i].type() : LocalType{f32, {0}});
  for (const HostTensor& t : w.wanted) r.outputs.push_back(t.type());
  return w;
}

struct Ask {
  OpCase c;
  std::int64_t batch;
  bool all_read;
};

std::vector<Ask> asks(const OpDef& def) {
  std::vector<OpCase> cases = cases_of(def.name), more = gpu_cases(def.name);
  cases.insert(cases.end(), more.begin(), more.end());
  bool optional = std::any_of(def.outputs.begin(), def.outputs.end(), [](const OutputDef& o) { return o.optional; });
  std::vector<Ask> out;
  for (const OpCase& c : cases) {
    if (!c.no_reference.empty()) continue;
    out.push_back({c, 3, true});
    if (optional) out.push_back({c, 3, false});
    if (&c == &cases[0]) out.push_back({in_f64(def, c), 3, true}), out.push_back({c, 1, true});
    if (&c == &cases[0] && !def.stores && def.precision != Precision::full) out.push_back({in_halves(def, c, def.commutative ? f16 : bf16), 3, true});
  }
  return out;
}

}  // namespace

void await(const KernelTable& table, const OpDef& def, const OpCase& c, std::int64_t batch, bool all_read, std::vector<Awaited>& out) {
  const Awaited w = asked(def, c, batch, all_read);
  const KernelRequest& r = w.request;
  for (const Kernel& k : table.all()) {
    if (k.op != def.name) continue;
    Support s = k.supports(r);
    EXPECT_TRUE(s.ok || !s.reason.empty()) << k.name << " refuses without a reason";
    if (!s.ok) continue;
    Awaited mine = w;
    mine.by = k.name;
    mine.what = fmt::format("{}: {}, kernel {}, batch {}, {}", def.name, c.name, k.name, batch, to_string(r.outputs[0]));
    mine.scratch = s.scratch_bytes;
    mine.in_place = s.in_place;
    // Of each factor 10 bits behind the point are kept; of what attention makes of scores it takes exponentials.
    if (k.leeway.tf32) mine.tolerance = std::max(mine.tolerance, k.name.find("attention") != k.name.npos ? 0x1p-5 : 0x1p-10);
    try {
      mine.kernel = k.prepare(r);
    } catch (const std::exception& e) {
      ADD_FAILURE() << mine.what << " cannot be prepared: " << e.what();
      continue;
    }
    out.push_back(std::move(mine));
  }
}

void await_engines(const KernelTable& table, const OpDef& def, const OpCase& c, std::int64_t batch, std::vector<Awaited>& out) {
  const Awaited w = asked(def, c, batch, true);
  for (const Kernel& k : table.all()) {
    if (k.op != def.name || !k.engines || k.leeway.tf32 || !k.supports(w.request).ok) continue;
    for (const std::string& engine : k.engines(w.request)) {
      Awaited mine = w;
      mine.by = k.name + "@" + engine;
      mine.what = fmt::format("{}: {}, {}", def.name, c.name, mine.by);
      mine.scratch = k.supports(w.request).scratch_bytes;
      mine.kernel = table.prepare(mine.by, w.request, {mine.scratch, false});
      out.push_back(std::move(mine));
    }
  }
}

void await_all(const KernelTable& table, const OpDef& def, std::vector<Awaited>& out) {
  for (const Ask& a : asks(def)) await(table, def, a.c, a.batch, a.all_read, out);
}

std::vector<std::string> unreached(const KernelTable& table, const OpSet& ops) {
  std::vector<std::string> out;
  std::set<std::pair<std::string, std::string>> met, of_reals;
  for (const auto& def : ops.all())
    for (const Ask& a : asks(*def)) {
      const Awaited w = asked(*def, a.c, a.batch, a.all_read);
      for (const Kernel& k : table.all())
        if (k.op == def->name && k.supports(w.request).ok) {
          met.emplace(k.op, k.name);
          auto any = [&](auto is) { return std::any_of(w.inputs.begin(), w.inputs.end(), [&](const HostTensor& x) { return is(x.dtype()); }); };
          if (any([](DType t) { return t == f32; }) && !any(is_half)) of_reals.emplace(k.op, k.name);
        }
    }
  // Every kernel has one that converts, also those that take no halves.
  auto idle = [&](const Kernel& k, const OpDef& def) {
    return k.name.ends_with(kInF32) && (def.stores || def.precision == Precision::full || !of_reals.contains({k.op, k.name.substr(0, k.name.size() - std::strlen(kInF32))}));
  };
  for (const Kernel& k : table.all())
    if (const OpDef* def = ops.find(k.op); def && !idle(k, *def) && !met.contains({k.op, k.name})) out.push_back(k.name + " of " + k.op);
  return out;
}

}  // namespace belfry::test
