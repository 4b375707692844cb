// Convolutions by unfolded windows and products, beside the references: the generated kernels that unfold run on the host, the products as cuBLAS is told of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include <belfry/executor/device/cuda/toolkit_internal.h>

#include "cudnn_on_host.h"
#include "kernel_case.h"

namespace belfry::test {
namespace {

using namespace cudnn;

Sequence unfolded_of(const KernelRequest& r) {
  for (const SequenceKernel& k : kernels_of_rooms())
    if (k.op == r.op) return k.unfolded ? k.unfolded(r) : none("no such way");
  return none("no kernel");
}

/// By the forward's tensors; in three directions.
struct Form {
  const char* what;
  Shape x, filter, y;
  Integers strides;
  const char* padding;
  Integers dilations = {1, 1};
  std::int64_t groups = 1;

  std::vector<KernelCase> directions() const {
    const Attributes a = {{"strides", strides}, {"padding", padding}, {"dilations", dilations}, {"groups", groups}};
    return {{"cudnn", "conv2d", {real(x), real(filter)}, a}, {"cudnn", "conv2d_input_gradient", {real(y), real(filter), real(x)}, a}, {"cudnn", "conv2d_filter_gradient", {real(x), real(y), real(filter)}, a}};
  }
};
const Form kForms[] = {{"padding that is larger behind", {kBatch, 8, 7, 4}, {3, 3, 4, 8}, {kBatch, 4, 4, 8}, {2, 2}, "same"},
                       {"taps apart", {kBatch, 9, 9, 8}, {3, 2, 8, 5}, {kBatch, 5, 7, 5}, {1, 1}, "valid", {2, 2}},
                       {"channels that are no pack", {kBatch, 6, 5, 3}, {2, 5, 3, 4}, {kBatch, 6, 5, 4}, {1, 1}, "same"},
                       {"pixels that no window holds", {kBatch, 8, 8, 4}, {2, 1, 4, 4}, {kBatch, 3, 3, 4}, {3, 3}, "valid"},
                       {"three images at a time", {6, 100, 100, 16}, {5, 5, 16, 1}, {6, 100, 100, 1}, {1, 1}, "same"},
                       {"an image at a time", {kBatch, 100, 100, 16}, {5, 5, 16, 1}, {kBatch, 100, 100, 1}, {1, 1}, "same"}};

TEST(Unfolded, computes_what_the_references_do) {
  std::vector<std::pair<std::string, KernelCase>> cases;
  for (const Form& f : kForms)
    for (const KernelCase& c : f.directions()) cases.emplace_back(c.op + ", " + f.what, c);
  cases.emplace_back("conv2d_transpose", KernelCase{"cudnn", "conv2d_transpose", {real({kBatch, 3, 3, 8}), real({3, 3, 4, 8})}, {{"strides", Integers{2, 2}}, {"padding", "same"}}});
  for (const auto& [what, c] : cases) {
    Asked a(c);
    const Sequence s = unfolded_of(a.request);
    expect_as_reference(s, a.request, a.inputs, what);
    const std::size_t parts = what.ends_with("an image at a time") ? kRows : what.ends_with("three images at a time") ? 2 : 1;
    EXPECT_EQ(s.steps.size(), 2 * parts) << what;
  }
}

TEST(Unfolded, is_of_f32_that_is_no_product_as_it_lies) {
  auto refused = [](const KernelCase& c) { return !unfolded_of(Asked(c).request).refusal.empty(); };
  const Form one_tap{"", {kBatch, 4, 4, 8}, {1, 1, 8, 12}, {kBatch, 4, 4, 12}, {1, 1}, "valid"}, groups{"", {kBatch, 6, 6, 8}, {3, 3, 4, 16}, {kBatch, 6, 6, 16}, {1, 1}, "same", {1, 1}, 2}, fitting = kForms[0];
  for (std::size_t k = 0; k < 3; ++k) {
    EXPECT_TRUE(refused(one_tap.directions()[k])) << k;
    EXPECT_TRUE(refused(groups.directions()[k])) << k;
    KernelCase c = fitting.directions()[k];
    EXPECT_FALSE(refused(c)) << k;
    for (TensorType& t : c.inputs) t.dtype = bf16;
    EXPECT_TRUE(refused(c)) << k;
  }
  // 900 MB of windows an image.
  EXPECT_TRUE(refused(Form{"", {kBatch, 300, 300, 4}, {25, 25, 4, 1}, {kBatch, 300, 300, 1}, {1, 1}, "same"}.directions()[0]));
}

/// A plan reserves what the engine takes that it names. Products round where their kernel may.
TEST(Unfolded, has_its_room_where_a_plan_names_it) {
  const auto toolkit = std::make_shared<CudaToolkit>();
  const std::vector<Kernel> kernels = kernels_of(kernels_of_rooms(), toolkit);
  std::set<std::string> met;
  for (const KernelCase& c : Form{"", {32, 28, 28, 64}, {3, 3, 64, 64}, {32, 28, 28, 64}, {1, 1}, "same"}.directions()) {
    Asked a(c);
    const std::int64_t unfolded = unfolded_of(a.request).scratch_bytes();
    EXPECT_GE(unfolded, 32 * 28 * 28 * 9 * 64 * 4 + cublas_lt::kWorkspaceBytes);
    for (const Kernel& k : kernels) {
      if (k.op != c.op) continue;
      met.insert(k.name + " " + k.op);
      for (auto [engine, here] : {std::pair{"unfolded_algo1", true}, {"eng1", false}, {"", false}}) {
        a.request.engine = engine;
        const std::int64_t reserved = k.supports(a.request).scratch_bytes;
        EXPECT_TRUE(here ? reserved == unfolded : reserved < unfolded) << k.name << " " << engine;
      }
      a.request.engine = "";
    }
    for (const SequenceKernel& k : kernels_of_rooms())
      for (const SequenceKernel& each : k.op == c.op ? with_leeways(k) : std::vector<SequenceKernel>{}) EXPECT_EQ(std::get<Multiply>(each.unfolded(a.request).steps.at(c.op == "conv2d_input_gradient" ? 0 : 1)).product.tf32, each.leeway.tf32) << each.name;
  }
  EXPECT_EQ(met.size(), 2u + 2u + 4u);
}

}  // namespace
}  // namespace belfry::test
