#include <belfry/frontends/cli/predict_internal.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/train_internal.h>
#include <belfry/frontends/data/tables.h>
#include <belfry/frontends/files/files.h>

namespace belfry {

bool rows_first(const Graph& g, const TensorType& t) { return !t.shape.empty() && t.shape[0].symbol == g.row_symbol; }

namespace {

const TensorType& type_of(const Graph& g, const std::string& input) { return g.node(g.find_node(input)).types[0]; }

/// Rows of this size are pictures.
std::optional<PictureSize> picture_size(const Graph& g, const std::string& input) {
  const TensorType& t = type_of(g, input);
  if (t.dtype != f32 || t.shape.size() != 4 || !rows_first(g, t)) return {};
  for (int axis = 1; axis < 4; ++axis)
    if (t.shape[static_cast<std::size_t>(axis)].symbolic()) return {};
  const PictureSize size{t.shape[1].factor, t.shape[2].factor, t.shape[3].factor};
  if (size.channels != 1 && size.channels != 3) return {};
  return size;
}

/// The tensor as a column of rows that the input takes, where it is near enough.
HostTensor fitted(const Graph& g, const std::string& input, HostTensor tensor) {
  const TensorType& type = type_of(g, input);
  LocalType row{type.dtype, {}};
  for (std::size_t axis = 1; axis < type.shape.size(); ++axis) {
    if (type.shape[axis].symbolic()) return tensor;  // of any length
    row.shape.push_back(type.shape[axis].factor);
  }
  if (tensor.shape().empty()) return tensor;
  DataSet one;
  one.columns.emplace(input, std::move(tensor));
  fit_columns(one, {{input, row}});
  return std::move(one.columns.at(input));
}

/// What a file is that some take for a picture or a net, by its first bytes and its name; empty for all others.
std::string kind_not_read(const std::string& file) {
  const MappedFile mapped(file);
  const std::string_view head(reinterpret_cast<const char*>(mapped.bytes().data()), std::min<std::size_t>(mapped.bytes().size(), 12));
  if (file.ends_with(".onnx")) return "an ONNX net";
  if (file.ends_with(".tsv")) return "a table with tabs for commas";
  if (head.size() > 8 && head[8] == '{') return "";  // a header of safetensors, whose length may begin like these
  if (head.starts_with("BM")) return "a BMP picture";
  if (head.starts_with("GIF8")) return "a GIF picture";
  if (head.starts_with("RIFF") && head.ends_with("WEBP")) return "a WebP picture";
  if (head.starts_with("II*") || head.starts_with("MM")) return "a TIFF picture";
  if (head.starts_with("\xff\xd8\xff")) return "a JPEG picture without .jpg or .jpeg at its name's end";
  if (head.starts_with(std::string_view("\0\0\x08", 3))) return "in MNIST's format (IDX; `belfry evaluate RUN --data FOLDER` takes it)";
  if (head.starts_with("\x89PNG")) return "a PNG picture without .png at its name's end";
  return "";
}

/// Bytes of pictures with a pixel a column as the pictures that they are.
HostTensor unflattened(HostTensor bytes, const PictureSize& size) {
  const Extents& s = bytes.shape();
  if (bytes.dtype() != u8 || s.size() != 2 || s[1] != static_cast<std::int64_t>(size.elements())) return bytes;
  return HostTensor::of<std::uint8_t>({s[0], size.height, size.width, size.channels}, std::as_const(bytes).data<std::uint8_t>());
}

/// The columns of a table that outputs need: pixels of 0 to 255 as the bytes that they are. Labels may stand beside them.
std::map<std::string, HostTensor> table_tensors(const Graph& g, const std::vector<std::string>& inputs, const std::string& file, const std::vector<std::string>& features) {
  InputRows rows;
  for (NodeId id : g.inputs()) {
    const Node& n = g.node(id);
    if (!rows_first(g, n.types[0])) continue;
    const bool needed = std::find(inputs.begin(), inputs.end(), n.name) != inputs.end();  // others may hold any numbers
    LocalType& row = rows[n.name] = {needed ? n.types[0].dtype : f64, {}};
    for (std::size_t axis = 1; axis < n.types[0].shape.size(); ++axis) row.shape.push_back(n.types[0].shape[axis].symbolic() ? 1 : n.types[0].shape[axis].factor);
  }
  Table table = read_table(file);
  auto among = [](const std::vector<std::string>& names) { return std::find(names.begin(), names.end(), "label") != names.end(); };
  if (!rows.contains("label") && among(table.names) && !among(features)) rows["label"] = {f64, {}};  // of the training
  if (!features.empty()) order_features(table, rows, features);
  DataSet all = columns_of(table, rows);
  std::erase_if(all.columns, [&](const auto& one) { return std::find(inputs.begin(), inputs.end(), one.first) == inputs.end(); });
  fit_columns(all, rows);
  std::map<std::string, HostTensor> out;
  for (const std::string& name : inputs)
    if (const auto column = all.columns.find(name); column != all.columns.end()) out.emplace(name, holds_bytes(column->second) ? converted(column->second, u8) : std::move(column->second));
  return out;
}

void refuse_kind(const std::string& file) {
  const std::string kind = kind_not_read(file);
  if (!kind.empty()) throw UserError(fmt::format("{}: is {}, which is not read: pictures are JPEG and PNG (.jpg, .jpeg, .png), tensors .safetensors, .npz and .npy, tables .csv", file, kind));
}

}  // namespace

void refuse_shape(const Graph& g, const std::string& input, const Extents& shape, const LocalType& given, const std::string& file) {
  const TensorType& type = type_of(g, input);
  auto fits = [](std::int64_t n, const Dim& d) { return d.symbolic() || d == Dim(n); };
  if (shape.size() == type.shape.size() && std::equal(shape.begin(), shape.end(), type.shape.begin(), fits)) return;
  const auto size = shape.size() == 4 ? picture_size(g, input) : std::nullopt;
  const bool one_hot = shape.size() == type.shape.size() + 1 && !is_float(type.dtype) && !is_half(type.dtype) && std::equal(shape.begin(), shape.end() - 1, type.shape.begin(), fits);
  const bool lacks_rows = shape.size() + 1 == type.shape.size() && std::equal(shape.begin(), shape.end(), type.shape.begin() + 1, fits);
  throw UserError(fmt::format("{}: '{}' is {}, but the input is {}: {}", file, input, to_string(given), to_string(type),
                              lacks_rows ? "add the axis of rows, as x[None] of numpy does"
                              : one_hot ? "numbers of classes are wanted: one-hot rows become those by argmax(-1) of numpy"
                              : size && shape[1] == size->channels && shape[2] == size->height && shape[3] == size->width ? "channels come last, as transpose(0, 2, 3, 1) of numpy has them"
                              : size ? "resize the pictures, or give the files of photos, which are resized as they are read"
                              : shape.size() == type.shape.size() ? "cut or fill its rows to this shape" : "bring it to these axes, as reshape of numpy does"));
}

PredictRows::PredictRows(const Graph& g, const std::vector<std::string>& inputs, const std::vector<std::string>& files, const std::optional<Pixels>& pixels, const std::vector<std::string>& features) {
  auto is_photo = [](const std::string& f) { return std::filesystem::is_directory(f) || is_picture(f); };
  for (const std::string& f : files)
    if (!is_photo(f)) refuse_kind(f);
  const auto photos = std::count_if(files.begin(), files.end(), is_photo);
  if (photos && photos != static_cast<std::ptrdiff_t>(files.size())) throw WrongUse("--feed has both pictures and files of tensors: give the one or the other");
  if (!photos) {
    take_tensors(g, inputs, files, pixels, features);
    return;
  }
  std::vector<std::string> able;
  for (const std::string& name : inputs)
    if (const auto size = picture_size(g, name)) able.push_back(name), size_ = *size;
  if (able.size() != 1 || inputs.size() != 1)
    throw UserError(fmt::format("pictures are for a net that reads one input, f32 (rows, height, width, 1 or 3); this one reads {}: feed tensors by their names", fmt::join(inputs, ", ")));
  input_ = able[0];
  if (!pixels) say("pictures go in as x / 127.5 - 1; --rescale says otherwise\n");
  pixels_ = pixels.value_or(Pixels{});
  photos_ = picture_files({files.begin(), files.end()});
}

void PredictRows::take_tensors(const Graph& g, const std::vector<std::string>& inputs, const std::vector<std::string>& files, const std::optional<Pixels>& pixels, const std::vector<std::string>& features) {
  std::map<std::string, HostTensor> given;
  std::map<std::string, std::string> file_of;
  for (const std::string& file : files)
    for (auto& [name, tensor] : file.ends_with(".csv") ? table_tensors(g, inputs, file, features) : load_tensors(file, &g)) {
      if (!given.emplace(name, std::move(tensor)).second) throw UserError(fmt::format("{}: '{}' is fed already, by {}", file, name, file_of.at(name)));
      file_of.emplace(name, file);
    }
  const std::vector<NodeId> all = g.inputs();
  const bool named = std::any_of(all.begin(), all.end(), [&](NodeId id) { return given.contains(g.node(id).name); });
  if (given.size() == 1 && inputs.size() == 1 && !named) {
    auto only = given.extract(given.begin());
    file_of = {{inputs[0], file_of.at(only.key())}};
    only.key() = inputs[0];
    given.insert(std::move(only));
  }
  for (const std::string& file : files) {
    std::map<std::string, HostTensor> here;  // names alone
    for (const auto& [name, from] : file_of)
      if (from == file) here.emplace(name, HostTensor());
    say_unread(g, here, file);
  }
  for (auto& [name, tensor] : given) {
    const NodeId id = g.find_node(name);
    if (id < 0 || !rows_first(g, g.node(id).types[0])) {
      whole_.insert_or_assign(name, std::move(tensor));
      continue;
    }
    const auto size = picture_size(g, name);
    if (size && tensor.dtype() == u8 && !pixels) say(fmt::format("the bytes of '{}' go in as they are, 0 to 255; --rescale says otherwise\n", name));
    const bool bytes = size && tensor.dtype() == u8;
    const LocalType type = tensor.type();
    try {
      rows_.columns.insert_or_assign(name, bytes ? pictures_of(unflattened(std::move(tensor), *size), *size, pixels.value_or(Pixels{.rescale = {1, 0}})) : fitted(g, name, std::move(tensor)));
    } catch (const UserError& e) {
      throw UserError(fmt::format("{}: '{}': {}", file_of.at(name), name, e.what()));
    }
    if (std::find(inputs.begin(), inputs.end(), name) != inputs.end()) refuse_shape(g, name, rows_.columns.at(name).shape(), type, file_of.at(name));
    if (size && !bytes && pixels && !goes_in_as_is(pixels->rescale) && holds_bytes(rows_.columns.at(name)))
      say(fmt::format("the numbers of '{}' are 0 to 255 and go in as they are, where the net knows {}: give them as bytes (u8), which are scaled so\n", name, to_string(pixels->rescale)));
  }
}

std::map<std::string, HostTensor> PredictRows::feeds(std::int64_t first, std::int64_t count) const {
  std::map<std::string, HostTensor> out = whole_;
  if (photos_.empty()) out.merge(rows_.slice(first, count).columns);
  else out.emplace(input_, read_pictures(std::span(photos_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)), size_, pixels_));
  return out;
}

std::string PredictRows::name(std::int64_t row) const { return photos_.empty() ? fmt::format("row {}", row) : photos_[static_cast<std::size_t>(row)].string(); }

}  // namespace belfry
