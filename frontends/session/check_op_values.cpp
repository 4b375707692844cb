// Values of cases: drawn, run by the reference, compared.
#include <belfry/frontends/session/check_op_internal.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include <belfry/graph/evaluate.h>
#include <belfry/graph/plan/memory.h>

namespace belfry {

namespace {

constexpr std::byte kGuard{0xA5};
constexpr std::size_t kStep = kAlignment;

std::string element_text(const HostTensor& t, std::size_t i) {
  return visit_stored(t.dtype(), [&]<class T>() -> std::string {
    if constexpr (std::is_same_v<T, double>) return fmt::format("{}", t.data<T>()[i]);
    else return fmt::format("{:.9g}", static_cast<double>(t.data<T>()[i]));
  });
}

}  // namespace

HostTensor draw(const CaseInput& input, std::int64_t batch, bool dyadic, std::mt19937_64& rng) {
  HostTensor out(input.type.dtype, extents_of(input.type.shape, batch));
  std::uniform_real_distribution<double> real(input.low, input.high);
  double step = 0.25;
  while (input.high > input.low && step > input.high - input.low) step /= 2;
  auto one = [&]() -> double {
    if (input.below != Dim(0)) return static_cast<double>(rng() % static_cast<std::uint64_t>(input.below.at(batch)));
    if (input.type.dtype == boolean) return static_cast<double>(rng() % 2);
    if (!is_float(input.type.dtype) && !is_half(input.type.dtype)) return std::round(real(rng));
    if (!dyadic) return real(rng);
    if (input.power_of_two) return std::ldexp(1.0, static_cast<int>(rng() % 3) - 1);
    if (input.high == input.low) return input.low;
    return (std::ceil(input.low / step) + static_cast<double>(rng() % static_cast<std::uint64_t>(std::min((input.high - input.low) / step, 0x1p53)))) * step;
  };
  visit_stored(out.dtype(), [&]<class T>() {
    for (T& x : out.data<T>()) x = static_cast<T>(one());
  });
  return out;
}

std::vector<HostTensor> draw_all(const OpCase& c, std::int64_t batch, bool dyadic, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<HostTensor> out;
  for (const CaseInput& i : c.inputs) out.push_back(draw(i, batch, dyadic, rng));
  return out;
}

std::vector<const HostTensor*> pointers(const OpCase& c, const std::vector<HostTensor>& tensors) {
  std::vector<const HostTensor*> out;
  for (std::size_t i = 0; i < tensors.size(); ++i) out.push_back(c.inputs[i].given ? &tensors[i] : nullptr);
  return out;
}

std::vector<LocalType> local_types(const std::vector<TensorType>& types, std::int64_t batch) {
  std::vector<LocalType> out;
  for (const TensorType& t : types) out.push_back(local_type(t, batch));
  return out;
}

std::vector<HostTensor> run_op(const OpDef& def, const OpCase& c, const std::vector<HostTensor>& inputs, std::int64_t batch) {
  return evaluate(def, checked(def.attributes, c.attributes, def.name), pointers(c, inputs), c.outputs, local_types(c.outputs, batch), whole_share(batch));
}

OpCase in_f64(const OpDef& def, const OpCase& c) {
  if (c.keep_dtypes) return c;
  auto widen = [](TensorType& t) {
    if (t.dtype == f32) t.dtype = f64;
  };
  OpCase out = c;
  for (CaseInput& i : out.inputs) widen(i.type);
  for (TensorType& t : out.outputs) widen(t);
  for (const AttributeDef& a : def.attributes) {
    const AttributeValue* value = c.attributes.find(a.name);
    if (value ? *value == AttributeValue(f32) : a.fallback == AttributeValue(f32)) out.attributes.set(a.name, f64);
  }
  return out;
}

Value add_case(Graph& g, const OpDef& def, const OpCase& c) {
  std::vector<Value> inputs;
  for (const CaseInput& i : c.inputs) inputs.push_back(i.given ? g.add(kInput, {}, {{"dtype", i.type.dtype}, {"shape", i.type.shape}}) : Value{});
  return g.add(def, inputs, c.attributes, "under_test");
}

std::vector<OpCase> versions(const OpUnderCheck& op, const OpCase& c) {
  std::vector<OpCase> out = {c};
  if (!c.keep_dtypes) out.push_back(in_f64(op.def, c));
  for (OpCase& v : out) {
    if (!v.outputs.empty()) continue;
    Graph g(op.ops);
    const Value y = add_case(g, *op.ops->find(op.def.name), v);
    v.outputs = g.node(y.id.node).types;
  }
  return out;
}

Farthest farthest(const HostTensor& got, const HostTensor& wanted) {
  auto real = [](const HostTensor& t) { return is_float(t.dtype()) || is_half(t.dtype()); };
  Farthest out;
  if (got.shape() != wanted.shape() || real(got) != real(wanted)) return out.distance = std::numeric_limits<double>::infinity(), out;
  const HostTensor x = converted(got, f64), y = converted(wanted, f64);
  for (std::size_t i = 0; i < x.data<double>().size(); ++i) {
    const double p = x.data<double>()[i], q = y.data<double>()[i], d = std::abs(p - q) / (1 + std::abs(q));
    if (!(p == q) && !(d <= out.distance)) out = {std::isnan(d) ? std::numeric_limits<double>::infinity() : d, p, q, static_cast<std::int64_t>(i)};
  }
  return out;
}

std::string difference_of(const HostTensor& got, const HostTensor& wanted) {
  if (got.type() != wanted.type()) return fmt::format("is {}, not {}", to_string(got.type()), to_string(wanted.type()));
  const std::size_t size = size_of(got.dtype());
  for (std::size_t i = 0; i < static_cast<std::size_t>(got.elements()); ++i)
    if (std::memcmp(got.raw() + i * size, wanted.raw() + i * size, size) != 0) return fmt::format("element {} is {}, not {}", i, element_text(got, i), element_text(wanted, i));
  return "";
}

Guarded::Guarded(LocalType type, std::size_t room, std::byte fill) : type_(std::move(type)), room_((room / kStep + 4) * kStep), bytes_(2 * room_ + static_cast<std::size_t>(type_.bytes()), kGuard) {
  std::fill_n(data(), type_.bytes(), fill);
}

bool Guarded::overrun() const {
  const auto room = static_cast<std::ptrdiff_t>(room_);
  auto touched = [](std::byte b) { return b != kGuard; };
  return std::any_of(bytes_.begin(), bytes_.begin() + room, touched) || std::any_of(bytes_.end() - room, bytes_.end(), touched);
}

HostTensor Guarded::tensor() const {
  HostTensor out(type_.dtype, type_.shape);
  if (!out.bytes().empty()) std::memcpy(out.raw(), data(), out.bytes().size());
  return out;
}

std::vector<Guarded> run_guarded(const OpDef& def, const OpCase& c, const std::vector<HostTensor>& inputs, const std::vector<LocalType>& outputs, const Share& share, std::byte fill) {
  // A tower has at least one row of the few that are drawn, so the whole is no more than this.
  std::size_t room = 0;
  for (const HostTensor& t : inputs) room += 8 * t.bytes().size();
  for (const LocalType& t : outputs) room += 8 * static_cast<std::size_t>(t.bytes());
  std::vector<Guarded> in, out;
  for (const HostTensor& t : inputs) {
    in.emplace_back(t.type(), room, std::byte{});
    if (!t.bytes().empty()) std::memcpy(in.back().data(), t.raw(), t.bytes().size());
  }
  for (const LocalType& t : outputs) out.emplace_back(t, room, fill);
  std::vector<ConstView> reads;
  for (std::size_t i = 0; i < in.size(); ++i) reads.push_back(c.inputs[i].given ? ConstView{inputs[i].type(), in[i].data()} : ConstView{{f32, {0}}, nullptr});
  std::vector<View> writes;
  for (Guarded& g : out) writes.push_back(g.view());
  const Attributes attributes = checked(def.attributes, c.attributes, def.name);
  def.reference(Call{attributes, reads, writes, c.outputs, share});
  return out;
}

}  // namespace belfry
