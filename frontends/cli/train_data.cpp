#include <belfry/frontends/cli/train_internal.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace belfry {

Rescale rescale_of(const std::string& text) {
  if (text == "standardise") return {.standardised = true};
  double divisor = 1, offset = 0;
  const char* begin = text.c_str();
  char* end = nullptr;
  const double scale = std::strtod(begin, &end);
  bool read = end != begin;
  for (auto [mark, number] : {std::pair{'/', &divisor}, {',', &offset}}) {
    if (*end != mark) continue;
    begin = end + 1;
    *number = std::strtod(begin, &end);
    read = read && end != begin;
  }
  read = read && *end == '\0';
  if (!read || !std::isfinite(scale / divisor) || !std::isfinite(offset)) throw WrongUse(fmt::format("--rescale '{}': a scale and perhaps an offset are expected, as in 1/127.5,-1, or standardise", text));
  return {scale / divisor, offset};
}

namespace {

Shard shard_of(const std::string& text) {
  Shard out;
  int used = 0;
  if (std::sscanf(text.c_str(), "%" SCNd64 "/%" SCNd64 "%n", &out.index, &out.count, &used) != 2 || text.c_str()[used] != '\0' || out.index < 0 || out.index >= out.count)
    throw WrongUse(fmt::format("--shard '{}': I/N is expected, with I from 0 to N - 1", text));
  return out;
}

}  // namespace

bool holds_bytes(const HostTensor& pictures) {
  constexpr std::size_t kLooked = 1 << 20;
  if (pictures.dtype() != f32 || pictures.shape().size() != 4) return false;
  const std::span<const float> some = pictures.data<float>().first(std::min(kLooked, pictures.data<float>().size()));
  const bool whole = std::all_of(some.begin(), some.end(), [](float x) { return x >= 0 && x <= 255 && x == std::floor(x); });
  return whole && std::any_of(some.begin(), some.end(), [](float x) { return x > 15; });
}

bool holds_bytes(const DataSet& data) {
  const auto image = data.columns.find("image");
  return image != data.columns.end() && holds_bytes(image->second);
}

DataWanted data_wanted(const Session& session, const TrainArguments& o) {
  DataWanted wanted{.antialias = o.antialias};
  const Graph& g = session.graph();
  for (NodeId id : g.inputs()) {
    const std::string& name = g.node(id).name;
    const TensorType& type = g.node(id).types[0];
    if (name == "image" && type.shape.size() == 4) wanted.height = type.shape[1].factor, wanted.width = type.shape[2].factor, wanted.channels = type.shape[3].factor;
    if (name == "tokens" && type.shape.size() == 2) wanted.length = type.shape[1].factor;
    if (type.shape.empty() || type.shape[0].symbol != g.row_symbol) continue;
    LocalType& row = wanted.inputs[name] = {type.dtype, {}};
    for (std::size_t axis = 1; axis < type.shape.size(); ++axis) row.shape.push_back(type.shape[axis].factor);
  }
  if (!o.rescale.empty()) wanted.rescale = rescale_of(o.rescale);
  if (!o.distort.empty()) wanted.distortions = parse_distortions(o.distort, o.placement.seed);
  if (!o.shard.empty()) wanted.shard = shard_of(o.shard);
  wanted.hold_out = o.hold_out;
  wanted.classes = o.classes;
  return wanted;
}

Splits splits_for(const Session& session, const TrainArguments& o) {
  Splits out = data_folder(o.data, data_wanted(session, o));
  if (o.rescale.empty() && holds_bytes(out.train)) say("the pixels go in as they are, 0 to 255; most nets learn better from 0 to 1: --rescale 1/255\n");
  return out;
}

}  // namespace belfry
