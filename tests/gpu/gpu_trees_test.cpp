// Trees of halves on a GPU have the bits of their members, and NaNs where those have NaNs: how a GPU rounds is in instructions that the host does not have.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include <belfry/belfry.h>
#include <belfry/ops/fusions.h>

#include "awaited.h"
#include "drawn_group.h"
#include "machine.h"

namespace belfry::test {
namespace {

constexpr std::int64_t kRowsHere = 6;

/// All NaNs as one: instructions that select keep the sign of a NaN, others give it none.
std::vector<std::uint64_t> bits(const HostTensor& x) {
  std::vector<std::uint64_t> out;
  visit_stored(x.dtype(), [&]<class T>() {
    for (T e : x.data<T>()) {
      std::uint64_t& as = out.emplace_back(0);
      if (const auto value = static_cast<float>(e); value != value) as = ~as;
      else std::memcpy(&as, &e, sizeof e);
    }
  });
  return out;
}

TEST(GpuTrees, have_the_bits_of_their_members) {
  if (!machine().why.empty()) GTEST_SKIP() << machine().why;
  auto device = machine().open(parse_device("gpu:0"));
  device->enter();
  auto queue = device->queue(0);
  const KernelTable& table = machine().library->kernels.at("gpu");
  auto launched = [&](const DrawnGroup::Alone& k, const std::vector<HostTensor>& inputs) {
    Awaited w;
    w.request = k.request;
    w.inputs = inputs;
    w.given.assign(inputs.size(), true);
    for (const LocalType& t : k.request.outputs) w.wanted.emplace_back(t.dtype, t.shape);
    w.scratch = k.scratch_bytes;
    w.kernel = {std::shared_ptr<void>(), k.kernel.get()};
    return run(w, {device.get(), queue.get()});
  };
  for (DType t : {f16, bf16})
    for (auto* made : {+[](Value x) { return relu6(relu(neg(x))); }, +[](Value x) { return relu(neg(x)); }, +[](Value x) { return cast(relu(neg(x)), f32); }, +[](Value x) { return relu(maximum(x * x, neg(x)) - x * (x + x)); }, +[](Value x) { return add_n({x, neg(x), x}) * x; }}) {
      Builder b("tree");
      b.output(made(b.input("x", t, {kBatch, 80})));
      const Graph g = std::move(b).build();
      DrawnGroup drawn(g, find_gpu_groups(g).at(0), kRowsHere);
      const std::array<std::uint16_t, 4> nans = {0x7FA1, 0xFFA1, 0x7FFF, 0xFC01};
      for (HostTensor& x : drawn.inputs) std::memcpy(x.raw(), nans.data(), sizeof nans);
      const std::vector<DrawnGroup::Alone> alone = drawn.own_kernels(table);
      const auto choice = table.choose(drawn.request);
      EXPECT_NE(choice.name, kReferenceKernel) << name_of(t);
      const DrawnGroup::Alone whole{drawn.request, table.prepare(choice.name, drawn.request, {choice.support.scratch_bytes, false}), choice.support.scratch_bytes};
      const std::vector<HostTensor> got = launched(whole, drawn.inputs), want = drawn.one_by_one(alone, launched);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t k = 0; k < got.size(); ++k) EXPECT_EQ(bits(got[k]), bits(want[k])) << name_of(t) << ", " << drawn.group.members.size() << " members, output " << k;
    }
}

}  // namespace
}  // namespace belfry::test
