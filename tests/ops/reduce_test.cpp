#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <belfry/frontends/builder/builder.h>
#include <belfry/graph/contexts.h>
#include <belfry/graph/gradients.h>
#include <belfry/graph/structural.h>
#include <belfry/ops/all_ops.h>
#include <belfry/ops/passes/passes.h>
#include <belfry/placer/expand.h>

#include "interpreter.h"
#include "tables.h"

namespace belfry::test {

OpTables reduce_cases() {
  OpTables out;
  for (const char* op : {"reduce_sum", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod", "reduce_logsumexp", "reduce_any", "reduce_all"}) {
    std::string name_of_op = op;
    bool mean = name_of_op == "reduce_mean" || name_of_op == "reduce_logsumexp", logic = name_of_op == "reduce_any" || name_of_op == "reduce_all";
    auto of = [&](const char* name, Shape x, Integers axes, bool keep, Shape y) {
      return OpCase{.name = name, .attributes = {{"axes", std::move(axes)}, {"keep", keep}}, .inputs = {logic ? bits(std::move(x)) : real(std::move(x))}, .outputs = {{logic ? boolean : f32, std::move(y)}}, .exact_sums = !mean};
    };
    OpTable t{op,
              {of("inside a row", {kBatch, 4}, {1}, false, {kBatch}), of("over rows", {kBatch, 4}, {0}, false, {4}), of("over rows, kept", {kBatch, 4}, {0}, true, {1, 4}), of("all", {kBatch, 2, 3}, {}, false, {}),
               of("all, kept", {kBatch, 3}, {}, true, {1, 1}), of("last axis by -1", {kBatch, 2, 3}, {-1}, false, {kBatch, 2}), of("without rows", {2, 3}, {1}, false, {2}), of("without rows, kept", {2, 3}, {-2}, true, {1, 3}),
               of("one of two row axes", {kBatch, kBatch}, {0}, false, {kBatch}), of("both row axes", {kBatch, kBatch}, {}, false, {}), of("time-major", {3, kBatch, 2}, {0}, false, {kBatch, 2}),
               of("time-major over rows", {3, kBatch, 2}, {1, 0}, false, {2}), of("factor of rows", {2 * kBatch, 3}, {0}, false, {3}), of("second of two row axes, kept", {kBatch, 2, kBatch}, {2}, true, {kBatch, 2, 1})}};
    DType right = logic ? boolean : f32, wrong = logic ? f32 : boolean;
    t.cases[0].refused = {{{{right, {2, 3}}}, {"axes has 2, out of range"}, {{"axes", Integers{2}}}},
                          {{{right, {2, 3}}}, {"names an axis twice"}, {{"axes", Integers{1, -1}}}},
                          {{{wrong, {2}}}, {mean ? "must be f32 or f64" : "cast first"}, {{"axes", Integers{}}}}};
    if (!mean && !logic) t.cases.push_back({.name = "integers", .inputs = {whole_numbers({kBatch, 2})}, .outputs = {{i32, {}}}});
    out.push_back(std::move(t));
  }
  return out;
}

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// The op over rows of a graph, of `x`, before and after the passes, and by towers that join maxima and sums.
void expect_joined_by_towers(const std::string& op, const HostTensor& x, bool keep, double tolerance, Integers axes = {0}) {
  SCOPED_TRACE(op + (keep ? ", kept" : ""));
  Builder b("rows");
  Shape shape(x.shape().begin(), x.shape().end());
  shape[0] = kBatch;
  Value y = emit(op, {b.input("x", x.dtype(), shape)}, {{"axes", axes}, {"keep", keep}}, {}, "y");
  b.output(y);
  std::int64_t batch = x.shape()[0];
  HostTensor want = run_whole(b.graph(), {{"x", x}}, {}, batch, {{"y", y.id}}).fetched.at("y");
  auto graph = std::make_shared<const Graph>(run_passes(inference_passes(), std::move(b).build()));
  for (const Node& n : graph->nodes()) EXPECT_NE(n.op->name, op) << "is not written out";
  for (int towers : {1, 2, 3}) {
    TowerGraph tg = expand(graph, {.towers = towers, .batch = batch, .fetches = {{"y", graph->outputs.at(0)}}});
    for (const PlanNode& n : tg.nodes)
      for (ValueIndex i : n.inputs) {
        const PlanValue& v = tg.values[static_cast<std::size_t>(i)];
        EXPECT_TRUE(towers == 1 || n.op == kSplit || v.state.is_rows() || symbolic_axes(v.type.shape).empty()) << n.name << " reads all rows of " << v.name;
      }
    HostTensor got = run_towers(tg, {{"x", x}}, {}).fetched.at("y");
    ASSERT_EQ(got.type(), want.type());
    HostTensor p = converted(got, f64), q = converted(want, f64);
    for (std::size_t i = 0; i < q.data<double>().size(); ++i) {
      double a = p.data<double>()[i], e = q.data<double>()[i];
      EXPECT_TRUE(a == e || std::abs(a - e) <= tolerance * (1 + std::abs(e)) || (std::isnan(a) && std::isnan(e))) << "element " << i << ": " << a << " is not " << e;
    }
  }
}

TEST(ReduceOverRows, without_a_partial_form_goes_by_the_row_axis_that_stays) {
  static const OpSet ops = standard_ops();
  const OpDef& def = ops.at("reduce_prod");
  auto split = [&](Shape x, Integers axes) {
    const Attributes a = checked(def.attributes, {{"axes", std::move(axes)}}, "reduce_prod");
    SplitContext c{def, a, {{f64, std::move(x)}}, {rows(0)}, {}, 4};
    return def.split(c);
  };
  EXPECT_EQ(split({kBatch, 2, kBatch}, {0}).reads[0], rows(2));
  EXPECT_EQ(split({kBatch, 2, kBatch}, {0}).gives[0], rows(1));
  EXPECT_EQ(split({kBatch, 2, kBatch}, {}).reads[0], kReplicated);
  EXPECT_EQ(split({kBatch, 2}, {0}).reads[0], kReplicated);
}

TEST(ReduceOverRows, is_written_as_what_towers_join) {
  HostTensor reals = HostTensor::of<double>({4, 5}, {1, -kInf, kInf, 800, -800, 2, -kInf, 0, 801, -801, -3, -kInf, 1, 2, -802, 0.5, -kInf, 2, 800, -800});
  std::int32_t least = std::numeric_limits<std::int32_t>::min(), most = std::numeric_limits<std::int32_t>::max();
  HostTensor whole = HostTensor::of<std::int32_t>({4, 3}, {least, most, 3, 5, most, -4, 0, most, 2, 1, most, 9});
  HostTensor logic(boolean, {4, 3});
  for (std::size_t i : {1, 3, 4, 7, 10}) logic.data<bool>()[i] = true;  // columns: some, all, none
  for (bool keep : {false, true}) {
    expect_joined_by_towers("reduce_min", reals, keep, 0);
    expect_joined_by_towers("reduce_min", whole, keep, 0);
    expect_joined_by_towers("reduce_any", logic, keep, 0);
    expect_joined_by_towers("reduce_all", logic, keep, 0);
    expect_joined_by_towers("reduce_logsumexp", reals, keep, 1e-14);
    for (const char* op : {"reduce_min", "reduce_logsumexp"}) expect_joined_by_towers(op, HostTensor(f64, {4, 0}), keep, 0, {0, 1});
    for (const char* op : {"reduce_any", "reduce_all"}) expect_joined_by_towers(op, HostTensor(boolean, {4, 0}), keep, 0, {0, 1});
    expect_joined_by_towers("reduce_min", HostTensor(i32, {4, 0}), keep, 0, {0, 1});
  }
}

TEST(ReduceProd, has_a_gradient_at_zeros) {
  Builder b("prod");
  Value x = b.input("x", f64, {3, 3});
  Value dx = gradients(b.graph(), {reduce_sum(reduce_prod(x, {.axes = {1}})).id}, {x.id})[0];
  HostTensor rows = HostTensor::of<double>({3, 3}, {2, 3, 4, 0, 3, 4, 0, 0, 4});
  HostTensor got = run_whole(b.graph(), {{"x", rows}}, {}, 1, {{"dx", dx.id}}).fetched.at("dx");
  EXPECT_EQ(got, HostTensor::of<double>({3, 3}, {12, 8, 6, 12, 0, 0, 0, 0, 0}));
}

TEST(ReduceMin, equal_minima_share_the_gradient_evenly) {
  Builder b("min");
  Value x = b.input("x", f64, {4});
  Value dx = gradients(b.graph(), {reduce_min(x).id}, {x.id})[0];
  HostTensor got = run_whole(b.graph(), {{"x", HostTensor::of<double>({4}, {2, 1, 3, 1})}}, {}, 1, {{"dx", dx.id}}).fetched.at("dx");
  EXPECT_EQ(got, HostTensor::of<double>({4}, {0, 0.5, 0, 0.5}));
}

}  // namespace

}  // namespace belfry::test
