// Trees of halves on a GPU have the bits of their members, of NaNs too: how a GPU rounds is in instructions that the host does not have.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <random>

#include <belfry/belfry.h>
#include <belfry/ops/fusions.h>

#include "awaited.h"
#include "machine.h"

namespace belfry::test {
namespace {

constexpr std::int64_t kRowsHere = 6;

HostTensor launched_on(const On& on, KernelRequest r, const std::vector<HostTensor>& inputs) {
  const KernelTable& table = machine().library->kernels.at("gpu");
  Awaited w;
  for (const HostTensor& x : inputs) r.inputs.push_back(x.type());
  r.wanted = {true};
  w.request = r;
  w.inputs = inputs;
  w.given.assign(inputs.size(), true);
  w.wanted = {HostTensor(r.outputs[0].dtype, r.outputs[0].shape)};
  const auto choice = table.choose(r);
  EXPECT_NE(choice.name, kReferenceKernel) << r.op;
  w.scratch = choice.support.scratch_bytes;
  w.kernel = table.prepare(choice.name, r, {w.scratch, false});
  return run(w, on)[0];
}

TEST(GpuTrees, have_the_bits_of_their_members_of_nans_too) {
  if (!machine().why.empty()) GTEST_SKIP() << machine().why;
  auto device = machine().open(parse_device("gpu:0"));
  device->enter();
  auto queue = device->queue(0);
  const On on{device.get(), queue.get()};
  const Attributes none;
  for (DType t : {f16, bf16})
    for (auto* made : {+[](Value x) { return relu6(relu(neg(x))); }, +[](Value x) { return cast(relu(neg(x)), f32); }, +[](Value x) { return relu(maximum(x * x, neg(x)) - x * (x + x)); }, +[](Value x) { return add_n({x, neg(x), x}) * x; }}) {
      Builder b("tree");
      b.output(made(b.input("x", t, {kBatch, 80})));
      const Graph g = std::move(b).build();
      const FusionGroup group = find_gpu_groups(g).at(0);
      HostTensor x(t, {kRowsHere, 80});
      std::mt19937_64 rng(7);
      visit_stored(t, [&]<class T>() {
        for (T& v : x.data<T>()) v = static_cast<T>(std::normal_distribution<double>(0, 3)(rng));
      });
      const std::array<std::uint16_t, 4> bits = {0x7FA1, 0xFFA1, 0x7FFF, 0xFC01};
      std::memcpy(x.raw(), bits.data(), sizeof bits);
      auto request = [&](const std::string& op, const Attributes& attributes, ValueId result) {
        KernelRequest r;
        r.op = op, r.attributes = &attributes;
        r.outputs = {local_type(g.type(result), kRowsHere)}, r.output_types = {g.type(result)};
        return r;
      };
      std::map<ValueId, HostTensor> known = {{ValueId{g.inputs()[0], 0}, x}};
      std::vector<HostTensor> outside;
      for (NodeId id : group.members) {
        std::vector<HostTensor> inputs;
        for (ValueId v : g.node(id).inputs) {
          inputs.push_back(known.at(v));
          if (v.node == g.inputs()[0]) outside.push_back(x);
        }
        KernelRequest r = request(g.node(id).op->name, g.node(id).attributes, {id, 0});
        r.def = g.node(id).op;
        known.insert_or_assign(ValueId{id, 0}, launched_on(on, r, inputs));
      }
      const ValueId last{group.members.back(), 0};
      KernelRequest whole = request(group.kind, none, last);
      for (const HostTensor& v : outside) whole.inputs.push_back(v.type());
      describe_members(g, group, whole);
      whole.inputs.clear();
      const HostTensor got = launched_on(on, whole, outside), &want = known.at(last);
      EXPECT_EQ(std::memcmp(got.raw(), want.raw(), got.bytes().size()), 0) << name_of(t) << ", " << group.members.size() << " members";
    }
}

}  // namespace
}  // namespace belfry::test
