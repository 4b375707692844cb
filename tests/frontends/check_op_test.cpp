// What check_op says of an op of one's own: nothing where it is right, and where one rule is wrong, which, where and by how much.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include <belfry/belfry.h>

#include <belfry/graph/split_rules.h>

#include "says.h"

namespace belfry::test {
namespace {

/// y = f(x, i) for every element, with no look at how many y has.
template <class F>
ReferenceRule by_element(F f) {
  return [f](const Call& c) {
    visit_float(c.dtype(), [&]<class T>() {
      const auto x = c.inputs[0].as<T>();
      for (std::size_t i = 0; i < x.size(); ++i) reinterpret_cast<T*>(c.outputs[0].data)[i] = static_cast<T>(f(x.data(), i));
    });
  };
}

/// y = x², as it should be: the tests spoil one rule each.
OpDef own_square() {
  return {.name = "own_square",
          .inputs = {"x"},
          .infer = [](InferContext& c) {
            c.need_float(0);
            return c.same_type_as(0);
          },
          .reference = by_element([](const auto* x, std::size_t i) { return x[i] * x[i]; }),
          .gradient = [](GradientContext& g) { return std::vector<Value>{2 * g.input(0) * g.output_gradient()}; },
          .split = split_elementwise(),
          .in_place = {{0, 0}}};
}

Kernel fast_square(float error) {
  return {.name = "fast_square",
          .op = "own_square",
          .supports = [](const KernelRequest& r) { return r.inputs[0].dtype == f32 ? Support{} : refuse("it is for f32"); },
          .prepare = [error](const KernelRequest& r) {
            return prepared([error, n = r.outputs[0].elements()](const Arguments& a) {
              for (std::int64_t i = 0; i < n; ++i) a.out<float>(0)[i] = a.in<float>(0)[i] * a.in<float>(0)[i] + error;
            });
          }};
}

std::vector<OpCase> rows_and_parameters() { return {{.name = "rows", .inputs = {{.type = {f32, {kBatch, 3}}}}}, {.name = "parameters", .inputs = {{.type = {f32, {4}}}}}}; }
OpCase of_rows() { return rows_and_parameters()[0]; }

std::vector<std::string> checked_with(OpDef def, const std::vector<OpCase>& cases = rows_and_parameters(), std::vector<Kernel> kernels = {}) {
  Library library = *standard_library();
  OpSet ops = standard_ops();
  ops.add(std::move(def));
  library.ops = std::make_shared<const OpSet>(std::move(ops));
  for (Kernel& k : kernels) library.kernels["cpu"].add(std::move(k));
  return check_op(library, "own_square", cases);
}

/// All are of one kind, and the first has the words.
void expect_named(const std::vector<std::string>& objections, const std::string& kind, const std::vector<std::string>& words) {
  ASSERT_FALSE(objections.empty()) << "nothing was found";
  for (const std::string& o : objections) EXPECT_TRUE(o.starts_with(kind + ": [own_square] ")) << o;
  for (const std::string& word : words) EXPECT_NE(objections[0].find(word), std::string::npos) << word << " in " << objections[0];
}

TEST(CheckOp, has_nothing_against_an_op_that_is_right) {
  EXPECT_EQ(checked_with(own_square()), std::vector<std::string>{});
  EXPECT_EQ(checked_with(own_square(), rows_and_parameters(), {fast_square(0)}), std::vector<std::string>{});
  EXPECT_EQ(check_op(*standard_library(), "relu", {{.name = "away from the bend", .inputs = {{.type = {f32, {kBatch, 2}}, .low = 0.5, .high = 0.6}}}}), std::vector<std::string>{});
}

TEST(CheckOp, names_a_wrong_gradient) {
  OpDef def = own_square();
  def.gradient = [](GradientContext& g) { return std::vector<Value>{3 * g.input(0) * g.output_gradient()}; };
  const auto found = checked_with(def);
  expect_named(found, "gradient", {"case 'rows'", "of input 'x', which is ", "the rule gives ", " where differences give ", "gradient_tolerance is 1e-06"});
  EXPECT_EQ(found.size(), 2u);  // one of each case
}

TEST(CheckOp, names_a_wrong_infer) {
  OpDef def = own_square();
  auto with_columns = [&](const Dim& n) {
    def.infer = [n](InferContext& c) { return std::vector<TensorType>{{c.dtype(0), {c.shape(0)[0], n}}}; };
    return checked_with(def, {of_rows()});
  };
  expect_named(with_columns(6), "types", {"case 'rows': the reference leaves element 3 of output 'y', by infer f32(1, 6), unwritten"});
  expect_named(with_columns(2), "types", {"case 'rows': the reference writes beyond output 'y', by infer f32(1, 2)"});
  EXPECT_EQ(with_columns(3), std::vector<std::string>{});
  OpCase stated = of_rows();
  stated.outputs = {{f32, {kBatch, 4}}};
  expect_named(checked_with(own_square(), {stated}), "types", {"infer gives f32(batch, 3), and the case states f32(batch, 4)"});
  stated.inputs[0].type.dtype = i32;
  expect_named(checked_with(own_square(), {stated}), "types", {"of i32(batch, 3) no node can be made: [own_square]"});
}

TEST(CheckOp, names_a_kernel_that_differs_from_the_reference) {
  expect_named(checked_with(own_square(), rows_and_parameters(), {fast_square(0.01f)}), "kernel", {"case 'rows': kernel 'fast_square' with 1 threads, batch 1: element ", "of output 'y' is ", ", and the reference gives ", "tolerance is 1e-05"});
  OpCase wide = of_rows();
  wide.inputs[0].type.dtype = f64;
  expect_named(checked_with(own_square(), {wide}, {fast_square(0)}), "kernel", {"no case reaches 'fast_square'"});
}

TEST(CheckOp, names_a_split_that_is_wrong) {
  OpDef def = own_square();
  def.gradient = no_gradient("the split is looked at");
  def.in_place = {};
  def.reference = by_element([](const auto* x, std::size_t i) { return x[i] - x[0]; });
  expect_named(checked_with(def), "split", {"case 'rows': 2 towers of 2 rows, offered (rows(0)) it reads (rows(0)) and gives (rows(0)): tower 1 has not its part of output 'y': element "});
  def.split = all_replicated();
  EXPECT_EQ(checked_with(def), std::vector<std::string>{});
  def.split = [](const SplitContext&) { return Split{{kReplicated}, {rows(0)}}; };
  expect_named(checked_with(def, {of_rows()}), "split", {"2 towers of 2 rows", "writes beyond output 'y', whose part is f64(1, 3)"});
}

TEST(CheckOp, names_other_bits_the_second_time_and_a_pair_that_may_not_share_bytes) {
  OpDef def = own_square();
  def.reference = by_element([calls = std::make_shared<int>(0)](const auto* x, std::size_t i) { return x[i] + static_cast<float>(++*calls); });
  expect_named(checked_with(def), "bits", {"of output 'y', by infer f32(1, 3), the reference gives other bits the second time: element 0 is "});
  def.reference = [once = own_square().reference](const Call& c) {
    std::fill_n(c.outputs[0].data, c.outputs[0].type.bytes(), std::byte{});
    once(c);
  };
  expect_named(checked_with(def), "in place", {"with output 'y' on the bytes of input 'x', output 'y' has other bits than apart: element 0 is 0, not "});
}

TEST(CheckOp, names_a_promise_that_does_not_hold) {
  OpDef def = own_square();
  def.zero_preserving = def.by_element = true;
  EXPECT_EQ(checked_with(def), std::vector<std::string>{});
  def.commutative = true;
  expect_named(checked_with(def), "promise", {"[own_square] case 'rows': it is said to be commutative, which is of two inputs, and has 1; leave it out"});
  def.commutative = false, def.sum_of_inputs = true;
  expect_named(checked_with(def), "promise", {"it is said to be the sum of its inputs, and element 0 of output 'y' is ", "; leave it out"});
  def.sum_of_inputs = false;
  def.gradient = no_gradient("promises are looked at");
  def.split = all_replicated();
  def.reference = by_element([](const auto* x, std::size_t i) { return x[i] + 1; });
  expect_named(checked_with(def), "promise", {"it is said to be zero_preserving, and of zeros element 0 of output 'y' is 1; leave it out"});
  def.zero_preserving = false, def.in_place = {};
  def.reference = by_element([](const auto* x, std::size_t i) { return x[i] - x[0]; });
  expect_named(checked_with(def), "promise", {"it is said to be by_element, and with another element 0 of input 'x' output 'y' differs elsewhere: element 1 is "});
  def.by_element = false, def.commutative = true;
  def.inputs = {"x", "z"};
  def.reference = [](const Call& c) {
    visit_float(c.dtype(), [&]<class T>() {
      const auto x = c.inputs[0].as<T>(), z = c.inputs[1].as<T>();
      for (std::size_t i = 0; i < x.size(); ++i) c.outputs[0].as<T>()[i] = x[i] - z[i];
    });
  };
  const CaseInput some = {.type = {f32, {kBatch, 3}}};
  expect_named(checked_with(def, {{.name = "rows", .inputs = {some, some}}}), "promise", {"it is said to be commutative, and with its inputs in the other order output 'y' has other bits: element 0 is "});
  def.inputs = {"x", shape_only("z")};
  def.reference = own_square().reference;
  expect_named(checked_with(def, {{.name = "rows", .inputs = {some, {.type = {f32, {5}}}}}}), "promise", {"it is said to be commutative, and with its inputs in the other order output 'y' is f32(5), not f32(batch, 3)"});
}

TEST(CheckOp, says_what_a_rule_throws_and_what_a_case_lacks) {
  OpDef def = own_square();
  def.reference = [](const Call&) { throw std::runtime_error("boom"); };
  expect_named(checked_with(def), "types", {"boom"});
  def = own_square();
  def.split = [](const SplitContext&) -> Split { throw std::runtime_error("no rows"); };
  expect_named(checked_with(def), "split", {"no rows"});
  OpCase empty = of_rows();
  empty.inputs[0].low = 3;
  expect_named(checked_with(own_square(), {empty}), "case", {"input 'x' is drawn from 3"});
  empty.inputs = {{.type = {u8, {3}}}};
  expect_named(checked_with(own_square(), {empty}), "case", {"input 'x' is u8"});
  OpCase bare = of_rows();
  bare.inputs = {};
  expect_named(checked_with(own_square(), {bare}), "types", {"case 'rows'"});
  EXPECT_TRUE(says([] { checked_with(own_square(), {}); }, {"[own_square] check_op was given no case"}));
  EXPECT_TRUE(says([] { check_op(*standard_library(), "own_square", rows_and_parameters()); }, {"there is no op 'own_square'"}));
}

}  // namespace
}  // namespace belfry::test
