#include "op_case.h"

#include <gtest/gtest.h>

#include <belfry/ops/all_ops.h>

namespace belfry::test {

namespace {

/// With the standard ops, and the op under test where it is not one of them.
OpUnderCheck under_check(const OpDef& def) {
  OpSet ops = standard_ops();
  if (!ops.find(def.name)) ops.add(def);
  return {std::make_shared<const OpSet>(std::move(ops)), def};
}

void report(const Objections& objections) {
  for (const std::string& o : objections) ADD_FAILURE() << o;
}

void check_each(const OpDef& def, const std::vector<OpCase>& cases, Objections (*check)(const OpUnderCheck&, const OpCase&)) {
  const OpUnderCheck op = under_check(def);
  for (const OpCase& c : cases) {
    SCOPED_TRACE(def.name + ": " + c.name);
    report(check(op, c));
  }
}

}  // namespace

double distance(const HostTensor& a, const HostTensor& b) { return farthest(a, b).distance; }

void check_inference(const OpDef& def, const std::vector<OpCase>& cases) { check_each(def, cases, objections_to_types); }
void check_writing(const OpDef& def, const std::vector<OpCase>& cases) { check_each(def, cases, objections_to_writing); }
void check_precision(const OpDef& def, const std::vector<OpCase>& cases) { check_each(def, cases, objections_to_precision); }
void check_in_place(const OpDef& def, const std::vector<OpCase>& cases) { check_each(def, cases, objections_to_in_place); }
void check_promises(const OpDef& def, const std::vector<OpCase>& cases) { check_each(def, cases, objections_to_promises); }
void check_split(const OpDef& def, const std::vector<OpCase>& cases) { check_each(def, cases, objections_to_split); }

void check_gradient(const OpDef& def, const std::vector<OpCase>& cases) {
  const OpUnderCheck op = under_check(def);
  int compared = 0;
  for (const OpCase& c : cases) {
    SCOPED_TRACE(def.name + ": " + c.name);
    report(objections_to_gradient(op, c, compared));
  }
  EXPECT_EQ(objection_to_cover(def, cases, compared), "");
}

}  // namespace belfry::test
