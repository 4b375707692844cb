#include <belfry/ops/passes/optimizer_kinds.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <belfry/graph/graph.h>
#include <belfry/ops/build.h>
#include <belfry/ops/passes/passes.h>

namespace belfry {

namespace {

using Schema = std::vector<AttributeDef>;

AttributeDef share(const char* name, double value) { return AttributeDef(name, value).between(0, 1); }
AttributeDef no_less_than_0(const char* name, double value = 0) { return AttributeDef(name, value).between(0, 1e30); }

/// A power of it is less than 1, also as f32: the correction of the moments divides by what is left.
AttributeDef decay(const char* name, double value) { return AttributeDef(name, value).between(0, kLargestDecay); }

/// Options of every kind about its own; a learning rate may be a value in the graph or a schedule instead.
Schema with_common(double rate, Schema own, double weight_decay = 0) {
  Schema out = {no_less_than_0("learning_rate", rate)};
  out.insert(out.end(), own.begin(), own.end());
  const Schema common = {no_less_than_0("weight_decay", weight_decay), {"no_decay", ""},        no_less_than_0("clip_norm"), no_less_than_0("clip_each_norm"),
                         no_less_than_0("clip_value"),                 share("average_decay", 0), {"average_by_step", false},  {"skip_nonfinite", false},
                         no_less_than_0("loss_scale"),                 AttributeDef("loss_scale_steps", 0).between(0, 1e9)};
  out.insert(out.end(), common.begin(), common.end());
  return out;
}

UpdateRule adam(const Attributes& o, const Shape&) {
  if (o.flag("amsgrad")) return {"amsgrad", {{"m"}, {"v"}, {"top"}}};
  return {"adam", {{"m"}, {"v"}}};
}

UpdateRule rmsprop(const Attributes& o, const Shape&) {
  UpdateRule out{"rmsprop", {{"v", "initial"}}};
  if (o.flag("centered")) out.op += "_centered", out.slots.push_back({"mean"});
  if (o.real("momentum") > 0) out.op += "_momentum", out.slots.push_back({"m"});
  return out;
}

UpdateRule adafactor_slots(const Attributes&, const Shape& w) {
  const std::vector<Shape> shapes = factored_slots(w);
  if (shapes.size() == 1) return {"", {{"v"}}};
  return {"", {{"r", {}, shapes[0]}, {"c", {}, shapes[1]}}};
}

const std::map<std::string, OptimizerKind>& kinds() {
  using A = const Attributes&;
  using S = const Shape&;
  constexpr RateCorrection kBoth = RateCorrection::both, kFirst = RateCorrection::first;
  const AttributeDef powers = AttributeDef("powers", "float32").one_of({"float32", "exact"}), inside = {"epsilon_inside", true}, epsilon = share("epsilon", 1e-7);
  const Schema moments = {decay("beta1", 0.9), decay("beta2", 0.999), epsilon, powers};
  Schema adams = moments;
  adams.push_back({"amsgrad", false});
  static const std::map<std::string, OptimizerKind> table = {
      {"sgd", {"sgd", with_common(0.01, {}), [](A, S) { return UpdateRule{"sgd"}; }}},
      {"momentum", {"momentum", with_common(0.01, {share("momentum", 0.9), {"nesterov", false}}), [](A, S) { return UpdateRule{"momentum", {{"m"}}}; }}},
      {"adam", {"adam", with_common(0.001, adams), adam, kBoth}},
      {"adamw", {"adam", with_common(0.001, adams, 0.004), adam, kBoth}},
      {"adamax", {"adamax", with_common(0.001, moments), [](A, S) { return UpdateRule{"adamax", {{"m"}, {"u"}}}; }, kFirst}},
      {"rmsprop", {"rmsprop", with_common(0.001, {share("rho", 0.9), share("momentum", 0), {"centered", false}, epsilon, inside, no_less_than_0("initial")}), rmsprop}},
      {"adafactor",
       {"adafactor", with_common(0.001, {AttributeDef("beta2_decay", -0.8).between(-1, 0), share("epsilon1", 1e-30), no_less_than_0("epsilon2", 1e-3),
                                    AttributeDef("clip_threshold", 1.0).between(1e-30, 1e30)}),
        adafactor_slots}},
      {"adagrad", {"adagrad", with_common(0.001, {no_less_than_0("initial", 0.1), epsilon, inside}), [](A, S) { return UpdateRule{"adagrad", {{"sum", "initial"}}}; }}},
      {"adadelta", {"adadelta", with_common(0.001, {share("rho", 0.95), epsilon}), [](A, S) { return UpdateRule{"adadelta", {{"v"}, {"u"}}}; }}},
      {"ftrl",
       {"ftrl", with_common(0.001, {AttributeDef("power", -0.5).between(-4, 0), no_less_than_0("initial", 0.1), no_less_than_0("l1"), no_less_than_0("l2"), no_less_than_0("l2_shrinkage"),
                                    no_less_than_0("beta")}),
        [](A, S) { return UpdateRule{"ftrl", {{"sum", "initial"}, {"z"}}}; }}},
      {"lion", {"lion", with_common(0.001, {share("beta1", 0.9), share("beta2", 0.99)}), [](A, S) { return UpdateRule{"lion", {{"m"}}}; }}},
      {"lamb", {"lamb", with_common(0.001, moments), [](A, S) { return UpdateRule{"lamb", {{"m"}, {"v"}}}; }}}};
  return table;
}

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> out;
  for (const auto& [name, row] : kinds()) out.push_back(name);
  return out;
}

const OptimizerKind& optimizer_kind(const std::string& kind) {
  if (auto at = kinds().find(kind); at != kinds().end()) return at->second;
  const std::vector<std::string> names = optimizer_names();
  throw UserError(fmt::format("there is no optimizer '{}'; there are {}{}", kind, fmt::join(names, ", "), did_you_mean(kind, names)));
}

bool is_slot_prefix(const std::string& prefix) {
  return std::any_of(kinds().begin(), kinds().end(), [&](const auto& row) { return row.second.prefix == prefix; });
}

const std::vector<AttributeDef>& optimizer_options(const std::string& kind) { return optimizer_kind(kind).options; }

Attributes training_options(const TrainSpec& spec) {
  Attributes out = checked(optimizer_options(spec.optimizer), spec.options, fmt::format("optimizer '{}':", spec.optimizer));
  int clips = 0;
  for (const char* name : {"clip_norm", "clip_each_norm", "clip_value"}) clips += out.real(name) > 0;
  if (clips > 1) throw UserError(fmt::format("optimizer '{}': gradients are clipped by one of clip_norm, clip_each_norm and clip_value", spec.optimizer));
  if (out.real("average_decay") == 0 && out.flag("average_by_step")) throw UserError(fmt::format("optimizer '{}': average_by_step says nothing without an average_decay", spec.optimizer));
  if (out.real("weight_decay") == 0 && !out.text("no_decay").empty()) throw UserError(fmt::format("optimizer '{}': no_decay says nothing without a weight_decay", spec.optimizer));
  if (out.real("loss_scale") == 0 && out.integer("loss_scale_steps") > 0)
    throw UserError(fmt::format("optimizer '{}': loss_scale_steps says nothing without a loss_scale to begin with", spec.optimizer));
  const bool scheduled = !spec.schedule.entries().empty();
  if (scheduled) check_schedule(spec.schedule);
  if (spec.optimizer != "ftrl") return out;
  if (scheduled && spec.schedule.find("warmup_steps") && spec.schedule.integer("warmup_steps") > 0 && (!spec.schedule.find("warmup_from") || spec.schedule.real("warmup_from") == 0))
    throw UserError("optimizer 'ftrl': the schedule's attribute 'warmup_from' is 0, and it divides by the rate; give it a positive one");
  if (!scheduled && !spec.learning_rate.valid() && out.real("learning_rate") == 0)
    throw UserError("optimizer 'ftrl': attribute 'learning_rate' is 0, by which it divides; give it a positive one, or another optimizer for what must not move");
  return out;
}

}  // namespace belfry
