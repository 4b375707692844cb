// What towers hold is joined on a GPU as the executor joins it on the host: the same pairs in the same order.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include <belfry/executor/joins.h>
#include <belfry/executor/kernel.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/cuda/join_internal.h>
#include <belfry/ops/cuda_kernels.h>

#include "host_gpu.h"
#include "op_case.h"
#include "says.h"

namespace belfry::test {
namespace {

struct Joined {
  Joined(const std::string& how, DType t, int parts, std::int64_t elements, int present, std::vector<int> ring, GpuCode& code, std::mt19937_64& rng) : type{t, {elements}} {
    for (int k = 0; k < parts; ++k) data.push_back(draw({{t, {elements}}, -2, 2}, 1, false, rng));
    request = {how, 0, parts, present, {}, std::move(ring)};
    for (int k = 0; k < present; ++k) request.parts.push_back({k, k + 1, type});
    data.resize(static_cast<std::size_t>(present));
    request.tree = join_tree(request);
    kernel = join_source(request.tree, how, present, type).prepare(code);
  }
  void expect_as_the_executor() {
    HostTensor wanted(type.dtype, type.shape), got(type.dtype, type.shape);
    Arguments a;
    for (const HostTensor& part : data) a.inputs.push_back(part.raw());
    a.outputs = {got.raw()};
    Join(request, type)(a.inputs, wanted.raw());
    kernel->launch(a);
    EXPECT_EQ(got, wanted) << request.how << " of " << name_of(type.dtype) << ", " << data.size() << " parts";
  }
  LocalType type;
  std::vector<HostTensor> data;
  JoinRequest request;
  std::unique_ptr<Prepared> kernel;
};

TEST(JoinsOnGpu, go_along_the_tree) {
  auto host = std::make_shared<HostGpu>();
  std::mt19937_64 rng(31);
  std::vector<Joined> all;
  for (auto [type, how] : {std::pair{f32, "sum"}, {f32, "max"}, {f32, "mean"}, {i64, "sum"}, {boolean, "max"}}) all.emplace_back(how, type, 5, 1003, 5, std::vector<int>{}, *host, rng);
  for (const Joined& j : all) EXPECT_EQ(j.request.tree, (std::vector<int>{0, 1, -1, 2, 3, -1, -1, 4, -1}));  // ((0 + 1) + (2 + 3)) + 4
  host->build();
  for (Joined& j : all) j.expect_as_the_executor();
}

/// More than stand in a text line by line; some are absent, or stand in the order of a ring.
TEST(JoinsOnGpu, of_many_towers_go_along_the_tree) {
  auto host = std::make_shared<HostGpu>();
  std::mt19937_64 rng(32);
  std::vector<int> ring;
  for (int k = 0; k < 65; ++k) ring.push_back((k * 7 + 3) % 65);
  std::vector<Joined> all;
  for (auto [type, how] : {std::pair{f32, "sum"}, {f64, "max"}, {f32, "mean"}, {i32, "sum"}, {boolean, "max"}}) all.emplace_back(how, type, 128, 37, 101, std::vector<int>{}, *host, rng);
  all.emplace_back("sum", f32, 65, 1, 65, ring, *host, rng);
  all.emplace_back("mean", f32, static_cast<int>(kMostJoinedByGpu), 5, static_cast<int>(kMostJoinedByGpu), std::vector<int>{}, *host, rng);
  host->build();
  for (Joined& j : all) j.expect_as_the_executor();
  Joined& last = all.back();
  KernelRequest r;
  r.op = kAggregate;
  r.outputs = {last.type};
  r.join = &last.request;
  const Kernel kernel = join_cuda(host).at(0);
  EXPECT_TRUE(kernel.supports(r).ok);
  last.request.tree.insert(last.request.tree.end(), {0, -1});
  EXPECT_EQ(kernel.supports(r).reason, "a GPU joins at most 3072 parts at once, not 3073: take fewer towers");
}

}  // namespace
}  // namespace belfry::test
