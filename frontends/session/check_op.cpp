#include <belfry/frontends/session/check_op.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/frontends/session/check_op_internal.h>

namespace belfry {

namespace {

constexpr std::byte kFills[] = {std::byte{0xA5}, std::byte{0x5A}};
constexpr std::size_t kMostOfAKind = 2;  // of a case: a wrong rule fails in most of its splits

std::string types_text(const std::vector<TensorType>& types) {
  std::vector<std::string> out;
  for (const TensorType& t : types) out.push_back(to_string(t));
  return fmt::format("{}", fmt::join(out, ", "));
}

/// "" where the refusal is as it should be.
std::string objection_to_refusal(const OpUnderCheck& op, const OpCase& c, const Refusal& r) {
  Graph g(op.ops);
  Attributes attributes = c.attributes;
  for (const auto& [name, value] : r.attributes.entries()) attributes.set(name, value);
  const std::string what = fmt::format("the refusal of {}{}", types_text(r.inputs), r.words.empty() ? "" : fmt::format(" with '{}'", r.words[0]));
  try {
    std::vector<Value> inputs;
    for (const TensorType& t : r.inputs) inputs.push_back(g.add(kInput, {}, {{"dtype", t.dtype}, {"shape", t.shape}}));
    g.add(*op.ops->find(op.def.name), inputs, attributes, "under_test");
  } catch (const UserError& e) {
    std::vector<std::string> words = {"[" + op.def.name + "]", "under_test"};
    words.insert(words.end(), r.words.begin(), r.words.end());
    for (const std::string& word : words)
      if (std::string_view(e.what()).find(word) == std::string_view::npos) return fmt::format("{} lacks the word '{}': {}", what, word, e.what());
    return "";
  }
  return what + " was accepted";
}

/// The first element that two runs with unlike fills left as it was; -1: none.
std::int64_t first_unwritten(const HostTensor& first, const HostTensor& second) {
  const std::size_t size = size_of(first.dtype());
  auto left = [&](const HostTensor& t, std::size_t i, std::byte fill) { return std::all_of(t.raw() + i * size, t.raw() + (i + 1) * size, [&](std::byte b) { return b == fill; }); };
  for (std::size_t i = 0; i < static_cast<std::size_t>(first.elements()); ++i)
    if (left(first, i, kFills[0]) && left(second, i, kFills[1])) return static_cast<std::int64_t>(i);
  return -1;
}

/// What is wrong with the case before anything is run.
Objections objections_to_case(const OpUnderCheck& op, const OpCase& c) {
  Objections out;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const CaseInput& x = c.inputs[i];
    if (!(x.low <= x.high) || !std::isfinite(x.high - x.low))
      out.push_back(objection("case", op.def, c, fmt::format("{} is drawn from {} to {}, in which there is nothing; low is at most high", input_of(op.def, i), x.low, x.high)));
    if (x.type.dtype == u8 && x.below == Dim(0) && (x.low < 0 || x.high > 255)) out.push_back(objection("case", op.def, c, fmt::format("{} is u8, and is drawn from {} to {}; give a range in 0 to 255", input_of(op.def, i), x.low, x.high)));
    if (x.below != Dim(0) && x.below.factor < 1) out.push_back(objection("case", op.def, c, fmt::format("{} is drawn below {}; give 1 or more", input_of(op.def, i), to_string(x.below))));
  }
  return out;
}

/// Adds what a check finds, cut to a few; what it throws is a finding too.
template <class F>
void gather(Objections& out, std::string_view kind, const OpDef& def, const OpCase& c, F&& check) {
  Objections found;
  try {
    found = check();
  } catch (const std::exception& e) {
    found = {objection(kind, def, c, fmt::format("the check ended with: {}", e.what()))};
  }
  if (found.size() > kMostOfAKind) {
    found[kMostOfAKind - 1] += fmt::format(" (and {} more)", found.size() - kMostOfAKind);
    found.resize(kMostOfAKind);
  }
  out.insert(out.end(), found.begin(), found.end());
}

}  // namespace

std::string objection(std::string_view kind, const OpDef& def, const OpCase& c, std::string_view what) { return fmt::format("{}: [{}] case '{}': {}", kind, def.name, c.name, what); }

std::string input_of(const OpDef& def, std::size_t i) {
  if (def.inputs.empty()) return fmt::format("input {}", i);
  const std::size_t last = def.inputs.size() - 1;
  return def.inputs[std::min(i, last)].variadic ? fmt::format("input '{}' ({})", def.inputs[last].name, i - last) : fmt::format("input '{}'", def.inputs[std::min(i, last)].name);
}

std::string output_of(const OpDef& def, std::size_t k) { return k < def.outputs.size() ? fmt::format("output '{}'", def.outputs[k].name) : fmt::format("output {}", k); }

Objections objections_to_types(const OpUnderCheck& op, const OpCase& given) {
  Objections out;
  auto object = [&](std::string_view what) { out.push_back(objection("types", op.def, given, what)); };
  std::vector<OpCase> both = {given};
  if (!given.keep_dtypes) both.push_back(in_f64(op.def, given));
  for (const OpCase& c : both) {
    Graph g(op.ops);
    try {
      const Value y = add_case(g, *op.ops->find(op.def.name), c);
      const std::vector<TensorType>& types = g.node(y.id.node).types;
      if (!c.outputs.empty() && types != c.outputs) object(fmt::format("infer gives {}, and the case states {}", types_text(types), types_text(c.outputs)));
    } catch (const std::exception& e) {
      std::vector<TensorType> types;
      for (const CaseInput& i : c.inputs)
        if (i.given) types.push_back(i.type);
      object(fmt::format("of {} no node can be made: {}; the case's inputs and attributes, or infer, are wrong{}", types_text(types), e.what(),
                         &c == &both[0] ? "" : ". Cases run in f64 too, unless keep_dtypes says that f32 is meant"));
    }
  }
  for (const Refusal& r : given.refused)
    if (std::string what = objection_to_refusal(op, given, r); !what.empty()) object(what);
  return out;
}

Objections objections_to_writing(const OpUnderCheck& op, const OpCase& given) {
  if (!given.no_reference.empty()) return {};
  for (const OpCase& c : versions(op, given)) {
    for (std::int64_t batch : {std::int64_t{1}, kCaseRows}) {
      const std::vector<HostTensor> inputs = draw_all(c, batch, false, 19);
      const std::vector<LocalType> types = local_types(c.outputs, batch);
      const std::vector<Guarded> first = run_guarded(op.def, c, inputs, types, whole_share(batch), kFills[0]), second = run_guarded(op.def, c, inputs, types, whole_share(batch), kFills[1]);
      for (std::size_t k = 0; k < first.size(); ++k) {
        const std::string which = fmt::format("{}, by infer {}", output_of(op.def, k), to_string(types[k]));
        if (first[k].overrun() || second[k].overrun())
          return {objection("types", op.def, c, fmt::format("the reference writes beyond {}; infer and reference must mean the same type", which))};
        const HostTensor a = first[k].tensor(), b = second[k].tensor();
        if (std::int64_t i = first_unwritten(a, b); i >= 0)
          return {objection("types", op.def, c, fmt::format("the reference leaves element {} of {}, unwritten; infer and reference must mean the same type, and outputs do not begin as zeros", i, which))};
        if (a != b)
          return {objection("bits", op.def, c, fmt::format("of {}, the reference gives other bits the second time: {}; it must depend on its inputs alone, and read no output that it did not write", which, difference_of(b, a)))};
      }
    }
  }
  return {};
}

Objections objections_to_precision(const OpUnderCheck& op, const OpCase& given) {
  if (!given.no_reference.empty() || given.keep_dtypes) return {};
  Objections out;
  const std::vector<OpCase> both = versions(op, given);
  for (std::int64_t batch : {std::int64_t{1}, kCaseRows}) {
    std::vector<HostTensor> narrow = draw_all(both[0], batch, false, 7), same;
    for (std::size_t i = 0; i < narrow.size(); ++i) same.push_back(converted(narrow[i], both[1].inputs[i].type.dtype));
    auto small = run_op(op.def, both[0], narrow, batch), exact = run_op(op.def, both[1], same, batch);
    for (std::size_t k = 0; k < small.size(); ++k) {
      const Farthest f = farthest(small[k], exact[k]);
      if (!(f.distance <= (is_float(small[k].dtype()) ? given.tolerance : 0)))
        out.push_back(objection("precision", op.def, given, fmt::format("element {} of {} is {:.9g} in f32 and {} in f64; off by {:.2g}, and tolerance is {}; sum in double, draw from another range, or allow more", f.element,
                                                                       output_of(op.def, k), f.got, f.wanted, f.distance, given.tolerance)));
    }
  }
  return out;
}

Objections objections_to_in_place(const OpUnderCheck& op, const OpCase& given) {
  if (!given.no_reference.empty()) return {};
  Objections out;
  auto object = [&](std::string_view what) { out.push_back(objection("in place", op.def, given, what)); };
  const OpCase c = versions(op, given)[0];
  std::vector<HostTensor> inputs = draw_all(c, kCaseRows, false, 17);
  const std::vector<HostTensor> apart = run_op(op.def, c, inputs, kCaseRows);
  const Attributes attributes = checked(op.def.attributes, c.attributes, op.def.name);
  for (auto [k, i] : op.def.in_place) {
    const auto at = static_cast<std::size_t>(i), result = static_cast<std::size_t>(k);
    if (k < 0 || i < 0 || result >= apart.size()) {
      object(fmt::format("the op names output {} on input {}, which it has not", k, i));
      continue;
    }
    if (at >= inputs.size() || !c.inputs[at].given || inputs[at].type() != apart[result].type()) continue;
    std::vector<HostTensor> mine = inputs, made = apart;
    std::vector<ConstView> in;
    for (std::size_t j = 0; j < mine.size(); ++j) in.push_back(c.inputs[j].given ? ConstView{mine[j].type(), mine[j].raw()} : ConstView{{f32, {0}}, nullptr});
    std::vector<View> views;
    for (HostTensor& t : made) views.push_back({t.type(), t.raw()});
    views[result].data = mine[at].raw();
    op.def.reference(Call{attributes, in, views, c.outputs, whole_share(kCaseRows)});
    made[result] = mine[at];
    for (std::size_t j = 0; j < made.size(); ++j)
      if (made[j] != apart[j])
        object(fmt::format("with {} on the bytes of {}, {} has other bits than apart: {}; leave the pair out of in_place", output_of(op.def, result), input_of(op.def, at), output_of(op.def, j), difference_of(made[j], apart[j])));
  }
  return out;
}

std::vector<std::string> check_op(const Library& library, const std::string& name, const std::vector<OpCase>& cases) {
  const OpUnderCheck op{library.ops, library.ops->at(name)};
  if (cases.empty()) throw UserError(fmt::format("[{}] check_op was given no case; give one with a type for each input", name));
  Objections out;
  std::vector<OpCase> sound;
  for (const OpCase& c : cases) {
    const std::size_t before = out.size();
    gather(out, "case", op.def, c, [&] { return objections_to_case(op, c); });
    if (out.size() == before) gather(out, "types", op.def, c, [&] { return objections_to_types(op, c); });
    if (out.size() == before) gather(out, "types", op.def, c, [&] { return objections_to_writing(op, c); });
    if (out.size() == before) sound.push_back(c);
  }
  if (sound.empty()) return out;
  KernelRuns runs;
  int compared = 0;
  const auto table = library.kernels.find("cpu");
  for (const OpCase& c : sound) {
    gather(out, "precision", op.def, c, [&] { return objections_to_precision(op, c); });
    gather(out, "gradient", op.def, c, [&] { return objections_to_gradient(op, c, compared); });
    gather(out, "in place", op.def, c, [&] { return objections_to_in_place(op, c); });
    gather(out, "promise", op.def, c, [&] { return objections_to_promises(op, c); });
    gather(out, "split", op.def, c, [&] { return objections_to_split(op, c); });
    if (table != library.kernels.end()) gather(out, "kernel", op.def, c, [&] { return objections_to_kernels(table->second, op, c, runs); });
  }
  if (std::string what = objection_to_cover(op.def, sound, compared); !what.empty()) out.push_back(std::move(what));
  // Of an op that takes halves some kernels are for them alone.
  if (table != library.kernels.end() && !op.def.takes_halves())
    for (const Kernel& k : table->second.all())
      if (k.op == name && !runs.contains(k.name)) out.push_back(fmt::format("kernel: [{}] no case reaches '{}'; give one whose types it takes", name, k.name));
  return out;
}

}  // namespace belfry
