#include "onnx_reader.h"

#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

namespace belfry::test::onnx {

namespace {

/// A field of a message: its number, and what it holds; a number is a varint or the bits of a float.
struct Field {
  std::uint64_t number = 0, value = 0;
  std::string_view bytes;
  bool is_bytes = false;
};

std::uint64_t varint(std::string_view& in) {
  std::uint64_t out = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (in.empty()) throw UserError("a message ends inside a number");
    auto byte = static_cast<unsigned char>(in[0]);
    in.remove_prefix(1);
    out |= static_cast<std::uint64_t>(byte & 127) << shift;
    if (byte < 128) return out;
  }
  throw UserError("a number of more than 64 bits");
}

std::string_view taken(std::string_view& in, std::uint64_t n) {
  if (n > in.size()) throw UserError("a message is shorter than it says");
  std::string_view out = in.substr(0, n);
  in.remove_prefix(n);
  return out;
}

std::vector<Field> fields_of(std::string_view message) {
  std::vector<Field> out;
  while (!message.empty()) {
    std::uint64_t key = varint(message);
    Field field{key >> 3, 0, {}, false};
    switch (key & 7) {
      case 0: field.value = varint(message); break;
      case 1: std::memcpy(&field.value, taken(message, 8).data(), 8); break;
      case 2: field.bytes = taken(message, varint(message)), field.is_bytes = true; break;
      case 5: std::memcpy(&field.value, taken(message, 4).data(), 4); break;
      default: throw UserError("a field of a kind that is not read");
    }
    out.push_back(field);
  }
  return out;
}

float float_of(const Field& f) { return std::bit_cast<float>(static_cast<std::uint32_t>(f.value)); }

/// Repeated integers, packed or one by one.
void add_integers(const Field& f, std::vector<std::int64_t>& out) {
  if (!f.is_bytes) return void(out.push_back(static_cast<std::int64_t>(f.value)));
  for (std::string_view rest = f.bytes; !rest.empty();) out.push_back(static_cast<std::int64_t>(varint(rest)));
}

void add_floats(const Field& f, std::vector<float>& out) {
  if (!f.is_bytes) return void(out.push_back(float_of(f)));
  std::size_t before = out.size();
  out.resize(before + f.bytes.size() / 4);
  std::memcpy(out.data() + before, f.bytes.data(), f.bytes.size() / 4 * 4);
}

DType dtype_of(std::int64_t onnx) {
  switch (onnx) {
    case 1: return f32;
    case 2: return u8;
    case 6: return i32;
    case 7: return i64;
    case 9: return boolean;
    case 11: return f64;
    default: throw UnknownDType("tensors of ONNX's type " + std::to_string(onnx));
  }
}

struct NamedTensor {
  std::string name;
  HostTensor tensor;
};

NamedTensor tensor_of(std::string_view message) {
  Extents shape;
  std::int64_t type = 0;
  std::vector<std::int64_t> integers;
  std::vector<float> floats;
  std::string_view raw;
  std::string name;
  for (const Field& f : fields_of(message)) {
    if (f.number == 1) add_integers(f, shape);
    if (f.number == 2) type = static_cast<std::int64_t>(f.value);
    if (f.number == 4) add_floats(f, floats);
    if (f.number == 5 || f.number == 7) add_integers(f, integers);
    if (f.number == 8) name = f.bytes;
    if (f.number == 9) raw = f.bytes;
  }
  HostTensor out(dtype_of(type), shape);
  auto size = static_cast<std::size_t>(out.elements());
  if (raw.empty() ? (out.dtype() == f32 ? floats.size() : integers.size()) != size : raw.size() != out.bytes().size()) throw UserError("a tensor has not the elements of its shape");
  if (!raw.empty()) std::memcpy(out.raw(), raw.data(), raw.size());
  else
    visit_dtype(out.dtype(), [&]<class T>() {
      for (std::size_t i = 0; i < size; ++i) out.data<T>()[i] = out.dtype() == f32 ? static_cast<T>(floats[i]) : static_cast<T>(integers[i]);
    });
  return {std::move(name), std::move(out)};
}

Node node_of(std::string_view message) {
  Node out;
  for (const Field& f : fields_of(message)) {
    if (f.number == 1) out.inputs.emplace_back(f.bytes);
    if (f.number == 2) out.outputs.emplace_back(f.bytes);
    if (f.number == 4) out.op = f.bytes;
    if (f.number != 5) continue;
    std::string name;
    Attribute a;
    for (const Field& v : fields_of(f.bytes)) {
      if (v.number == 1) name = v.bytes;
      if (v.number == 2) a.real = float_of(v);
      if (v.number == 3) a.integer = static_cast<std::int64_t>(v.value);
      if (v.number == 4) a.text = v.bytes;
      if (v.number == 5) a.tensor = tensor_of(v.bytes).tensor;
      if (v.number == 8) add_integers(v, a.integers);
    }
    out.attributes.emplace(std::move(name), std::move(a));
  }
  return out;
}

/// Of a value that a graph names: the first field.
std::string name_of_value(std::string_view message) {
  for (const Field& f : fields_of(message))
    if (f.number == 1) return std::string(f.bytes);
  throw UserError("a value has no name");
}

void read_graph(std::string_view message, Model& out) {
  std::vector<std::string> inputs;
  for (const Field& f : fields_of(message)) {
    if (f.number == 1) out.nodes.push_back(node_of(f.bytes));
    if (f.number == 5) {
      NamedTensor t = tensor_of(f.bytes);
      out.initializers.insert_or_assign(t.name, std::move(t.tensor));
    }
    if (f.number == 11) inputs.push_back(name_of_value(f.bytes));
    if (f.number == 12) out.outputs.push_back(name_of_value(f.bytes));
  }
  for (std::string& name : inputs)
    if (!out.initializers.contains(name)) out.inputs.push_back(std::move(name));
}

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw UserError(file.string() + " cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

Model model_of(const std::filesystem::path& file) {
  Model out;
  std::string text = bytes_of(file);
  for (const Field& f : fields_of(text)) {
    if (f.number == 7) read_graph(f.bytes, out);
    if (f.number != 8) continue;
    for (const Field& v : fields_of(f.bytes))
      if (v.number == 2) out.opset = static_cast<std::int64_t>(v.value);
  }
  return out;
}

std::vector<HostTensor> tensors_of(const std::filesystem::path& folder, const std::string& kind) {
  std::vector<HostTensor> out;
  for (int i = 0;; ++i) {
    std::filesystem::path file = folder / (kind + "_" + std::to_string(i) + ".pb");
    if (!std::filesystem::exists(file)) return out;
    out.push_back(tensor_of(bytes_of(file)).tensor);
  }
}

}  // namespace belfry::test::onnx
