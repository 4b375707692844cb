// Generated kernels run on the host, held to the references: the cases of all rooms, and sizes that their forms need.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <random>

#include <belfry/executor/joins.h>
#include <belfry/graph/error.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/cuda/join_internal.h>
#include <belfry/ops/cuda/nvrtc_internal.h>
#include <belfry/ops/cuda_kernels.h>

#include "host_gpu.h"
#include "gpu_cases.h"
#include "tables.h"

namespace belfry::test {
namespace {

/// A kernel that was prepared, and what it shall give. Texts are compiled between preparing and running, all at once.
struct Awaited {
  std::string what;
  double tolerance = 0;
  std::shared_ptr<Attributes> attributes;
  KernelRequest request;
  std::vector<bool> given;
  std::vector<HostTensor> inputs, wanted;
  std::int64_t scratch = 0;
  bool in_place = false;
  std::shared_ptr<Prepared> kernel;
};

constexpr std::size_t kMargin = 64;

/// A copy with a margin of marked bytes behind it.
struct Guarded {
  explicit Guarded(std::size_t bytes) : size(bytes), memory(bytes + 2 * kMargin, std::byte{0xA5}) {}
  std::byte* data() { return memory.data(); }
  bool whole() const {
    return std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(size), memory.end(), [](std::byte b) { return b == std::byte{0xA5}; });
  }
  std::size_t size;
  std::vector<std::byte, AlignedAllocator<std::byte>> memory;
};

/// Output k on the bytes of input i where they are given.
std::vector<HostTensor> run(const Awaited& w, std::pair<int, int> alias = {-1, -1}) {
  std::vector<Guarded> in, out;
  for (const HostTensor& x : w.inputs) {
    in.emplace_back(x.bytes().size());
    if (!x.bytes().empty()) std::memcpy(in.back().data(), x.raw(), x.bytes().size());
  }
  for (const HostTensor& y : w.wanted) out.emplace_back(y.bytes().size());
  Guarded scratch(static_cast<std::size_t>(w.scratch));
  Arguments a;
  for (std::size_t i = 0; i < in.size(); ++i) a.inputs.push_back(w.given[i] ? in[i].data() : nullptr);
  for (std::size_t k = 0; k < out.size(); ++k) a.outputs.push_back(!w.request.wanted[k] ? nullptr : static_cast<int>(k) == alias.first ? in[static_cast<std::size_t>(alias.second)].data() : out[k].data());
  a.scratch = scratch.data();
  w.kernel->launch(a);
  EXPECT_TRUE(scratch.whole()) << "wrote behind its scratch";
  std::vector<HostTensor> got;
  for (std::size_t k = 0; k < out.size(); ++k) {
    EXPECT_TRUE(out[k].whole()) << "wrote behind output " << k;
    got.push_back(w.wanted[k]);
    if (a.outputs[k] && !got[k].bytes().empty()) std::memcpy(got[k].raw(), a.outputs[k], got[k].bytes().size());
  }
  return got;
}

void expect_as_wanted(const Awaited& w) {
  SCOPED_TRACE(w.what);
  std::vector<std::pair<int, int>> aliases = {{-1, -1}};
  if (w.in_place)
    for (auto [k, i] : w.request.def->in_place)
      if (static_cast<std::size_t>(i) < w.inputs.size() && w.given[static_cast<std::size_t>(i)] && w.inputs[static_cast<std::size_t>(i)].type() == w.wanted[static_cast<std::size_t>(k)].type()) aliases.emplace_back(k, i);
  for (auto alias : aliases) {
    std::vector<HostTensor> got = run(w, alias);
    for (std::size_t k = 0; k < got.size(); ++k) {
      bool exact = w.request.def->exact || (!is_float(got[k].dtype()) && !is_half(got[k].dtype()));
      if (exact) EXPECT_TRUE(got[k] == w.wanted[k] || distance(got[k], w.wanted[k]) == 0) << "output " << k << ", aliased " << alias.first << " on " << alias.second << ", differs by " << distance(got[k], w.wanted[k]);
      else EXPECT_LE(distance(got[k], w.wanted[k]), w.tolerance) << "output " << k << ", aliased " << alias.first << " on " << alias.second;
    }
  }
}

/// Every generated kernel that accepts a case, prepared.
void await(const KernelTable& table, const OpDef& def, const OpCase& c, std::int64_t batch, bool all_read, std::vector<Awaited>& out) {
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
  for (const Kernel& k : table.all()) {
    if (k.op != def.name) continue;
    Support s = k.supports(r);
    EXPECT_TRUE(s.ok || !s.reason.empty()) << k.name << " refuses without a reason";
    if (!s.ok) continue;
    Awaited mine = w;
    mine.what = fmt::format("{}: {}, kernel {}, batch {}, {}", def.name, c.name, k.name, batch, to_string(r.outputs[0]));
    mine.scratch = s.scratch_bytes;
    mine.in_place = s.in_place;
    mine.kernel = k.prepare(r);
    out.push_back(std::move(mine));
  }
}

/// All kernels of all cases, prepared on the host.
struct AllKernels {
  AllKernels() {
    for (const auto& def : ops.all()) {
      std::vector<OpCase> cases = cases_of(def->name), more = gpu_cases(def->name);
      cases.insert(cases.end(), more.begin(), more.end());
      for (const OpCase& c : cases) {
        if (!c.no_reference.empty()) continue;
        bool optional = std::any_of(def->outputs.begin(), def->outputs.end(), [](const OutputDef& o) { return o.optional; });
        std::size_t before = awaited.size();
        await(table, *def, c, 3, true, awaited);
        if (optional) await(table, *def, c, 3, false, awaited);
        if (&c == &cases[0]) await(table, *def, in_f64(*def, c), 3, true, awaited), await(table, *def, c, 1, true, awaited);
        if (&c == &cases[0] && !def->stores && def->precision != Precision::full) await(table, *def, in_halves(*def, c, def->commutative ? f16 : bf16), 3, true, awaited);
        met[def->name] += static_cast<int>(awaited.size() - before);
      }
    }
  }
  std::shared_ptr<HostGpu> host = std::make_shared<HostGpu>();
  KernelTable table = generated_kernels(host);
  OpSet ops = standard_ops();
  std::vector<Awaited> awaited;
  std::map<std::string, int> met;
};

TEST(GeneratedKernels, agree_with_the_references_of_their_ops) {
  AllKernels all;
  for (const Kernel& k : all.table.all())
    EXPECT_TRUE(k.op == kAggregate || all.met[k.op] > 0) << "no case of " << k.op << " reaches a kernel";  // a join is no op
  all.host->build();
  for (const Awaited& w : all.awaited) expect_as_wanted(w);
  RecordProperty("runs", static_cast<int>(all.awaited.size()));
  RecordProperty("texts", static_cast<int>(all.host->sources().size()));
}

/// Sums of blocks are those of the CPU's kernels, bit for bit, not only near the reference.
TEST(GeneratedKernels, sum_in_the_blocks_of_the_cpu) {
  auto host = std::make_shared<HostGpu>();
  const KernelTable gpu = generated_kernels(host), cpu = cpu_kernels();
  const OpSet ops = standard_ops();
  std::vector<Awaited> all;
  for (const char* op : {"reduce_sum", "reduce_mean"})
    for (OpCase c : gpu_cases("reduce_sum")) {
      await(gpu, ops.at(op), c, 3, true, all);
      Awaited& w = all.back();
      KernelTable::Choice on_cpu = cpu.choose(w.request);
      if (on_cpu.name == kReferenceKernel) continue;
      Awaited same = w;
      same.scratch = on_cpu.support.scratch_bytes;
      same.kernel = cpu.prepare(on_cpu.name, w.request, {same.scratch, false});
      w.wanted = run(same);
    }
  host->build();
  for (const Awaited& w : all) EXPECT_EQ(run(w), w.wanted) << w.what;
}

/// The same pairs in the same order as the executor's join, which walks the same program.
TEST(GeneratedKernels, join_towers_along_the_tree) {
  struct Case {
    const char* how;
    LocalType type;
    std::vector<HostTensor> parts;
    JoinRequest request;
    std::unique_ptr<Prepared> kernel;
  };
  auto host = std::make_shared<HostGpu>();
  std::vector<Case> cases;
  std::mt19937_64 rng(31);
  for (auto [type, how] : {std::pair{f32, "sum"}, {f32, "max"}, {f32, "mean"}, {i64, "sum"}, {boolean, "max"}}) {
    Case& c = cases.emplace_back(Case{how, {type, {1003}}, {}, {}, nullptr});
    for (int k = 0; k < 5; ++k) c.parts.push_back(draw({{type, {1003}}, -2, 2}, 1, false, rng));
    c.request = {how, 0, 5, 5, {}};
    for (int k = 0; k < 5; ++k) c.request.parts.push_back({k, k + 1, c.type});
    c.request.tree = join_tree(c.request);
    EXPECT_EQ(c.request.tree, (std::vector<int>{0, 1, -1, 2, 3, -1, -1, 4, -1}));  // ((0 + 1) + (2 + 3)) + 4
    c.kernel = join_source(c.request.tree, how, 5, c.type).prepare(*host);
  }
  host->build();
  for (Case& c : cases) {
    HostTensor wanted(c.type.dtype, c.type.shape), got(c.type.dtype, c.type.shape);
    Arguments a;
    for (const HostTensor& part : c.parts) a.inputs.push_back(part.raw());
    a.outputs = {got.raw()};
    Join(c.request, c.type)(a.inputs, wanted.raw());
    c.kernel->launch(a);
    EXPECT_EQ(got, wanted) << c.how << " of " << name_of(c.type.dtype);
  }
}

void expect_compiled(std::size_t stride, std::initializer_list<const char*> archs) {
  Nvrtc nvrtc(new_toolkit(), "");
  try {
    nvrtc.compile("", "sm_90");
  } catch (const DeviceError& e) {
    GTEST_SKIP() << "NVRTC is not here: " << e.what();
  }
  AllKernels all;
  std::vector<std::string> texts = all.host->sources();
  for (std::size_t i = 0; i < texts.size(); i += stride)
    for (const char* arch : archs) {
      std::shared_ptr<const Compiled> c;
      ASSERT_NO_THROW(c = nvrtc.compile(texts[i], arch)) << texts[i];
      EXPECT_TRUE(c->spilled == 0 || std::string_view(arch) != "sm_90") << c->spilled << " bytes are spilled for " << arch << "\n" << texts[i];
      EXPECT_GT(c->registers, 0) << "ptxas did not say how many";
      EXPECT_LE(c->registers, 128) << arch << "\n" << texts[i];
    }
}

TEST(GeneratedKernels, compile_without_spills) { expect_compiled(29, {"sm_80", "sm_90", "sm_100"}); }
/// Half a minute and more.
TEST(GeneratedKernels, DISABLED_all_compile_without_spills) { expect_compiled(1, {"sm_90"}); }

}  // namespace
}  // namespace belfry::test
