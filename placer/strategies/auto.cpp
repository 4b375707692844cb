#include <algorithm>

#include <fmt/format.h>

#include <belfry/placer/strategies/strategies.h>

namespace belfry {

namespace {

constexpr int kMostStages = 16;  // of candidates: deeper pipelines are asked for by name

std::string listed(std::initializer_list<std::pair<const char*, std::string>> options) {
  std::string out;
  for (const auto& [name, value] : options)
    if (!value.empty()) out += fmt::format("{}-O {}={}", out.empty() ? "" : " ", name, value);
  return out;
}

Strategy named(Strategy s, const char* name, std::string options) {
  s.name = name;
  s.options = std::move(options);
  return s;
}

}  // namespace

std::vector<Strategy> Auto::candidates() const {
  std::vector<Strategy> out;
  const int all = static_cast<int>(devices.size());
  for (int n = all; n >= 1; n = n > 1 ? (n + 1) / 2 : 0) {
    const std::vector<DeviceId> d(devices.begin(), devices.begin() + n);
    const std::string on = n == all ? "" : to_string(d);
    const std::string T = towers ? std::to_string(towers) : "";
    auto with_devices = [&](Strategy s) {
      if (!on.empty()) s.options += (s.options.empty() ? "--devices " : " --devices ") + on;
      out.push_back(std::move(s));
    };
    if (n == 1) with_devices(named(to_strategy(Single{d[0], std::max(1, towers), combine, threads}), "single", listed({{"towers", T}})));
    if (n == 1 && d[0].kind != "gpu") continue;
    with_devices(named(to_strategy(Towers{d, cpu(0), false, towers, combine, threads}), "towers", listed({{"towers", T}})));
    with_devices(named(to_strategy(Towers{.devices = d, .towers = towers, .combine = combine, .threads = threads, .chosen = true}), "towers", listed({{"variables", "chosen"}, {"towers", T}})));
    if (n == 1) continue;
    with_devices(named(to_strategy(Towers{d, d[0], false, towers, combine, threads}), "towers", listed({{"variables", to_string(d[0])}, {"towers", T}})));
    with_devices(named(to_strategy(Towers{d, cpu(0), true, towers, combine, threads}), "towers", listed({{"variables", "spread"}, {"towers", T}})));
    with_devices(named(to_strategy(Mirrored{d, towers, combine, threads}), "mirrored", listed({{"towers", T}})));
    with_devices(named(to_strategy(Mirrored{d, towers, combine, threads, Reduce::hierarchical}), "mirrored", listed({{"reduction", "hierarchical"}, {"towers", T}})));
    with_devices(named(to_strategy(Sharded{d, towers, combine, threads}), "sharded", listed({{"towers", T}})));
    if (towers <= 1) with_devices(named(to_strategy(Layers{.devices = d, .towers = 1, .combine = combine, .threads = threads}), "layers", ""));
    for (int replicas = 1; replicas < n; ++replicas) {
      if (n % replicas || n / replicas > kMostStages) continue;
      const int stages = n / replicas;
      for (int m : {stages, 2 * stages, 4 * stages}) {
        const int micro = towers ? towers / replicas : m;
        if (micro < 2 || (towers && (micro * replicas != towers || m != stages))) continue;
        for (PhaseOrder order : {PhaseOrder::gpipe, PhaseOrder::one_f_one_b, PhaseOrder::interleaved}) {
          const int chunks = order == PhaseOrder::interleaved ? 2 : 1;
          if (chunks > 1 && micro % stages) continue;
          Layers s{.devices = d, .towers = micro * replicas, .replicas = replicas, .order = order, .chunks = chunks, .combine = combine, .threads = threads};
          with_devices(named(to_strategy(s), replicas > 1 ? "hybrid" : "pipeline", listed({{"towers", std::to_string(s.towers)}, {"replicas", replicas > 1 ? std::to_string(replicas) : ""}, {"order", to_string(order)}, {"chunks", chunks > 1 ? std::to_string(chunks) : ""}})));
        }
      }
    }
  }
  return out;
}

Strategy recomputing(Strategy s, int stretches) {
  if (!stretches) return s;
  s.options += fmt::format("{}--recompute {}", s.options.empty() ? "" : " ", stretches);
  s.divide = [divide = s.divide, stretches](const Graph& g, const Cluster& c) {
    Division d = divide(g, c);
    d.recompute = stretches;
    return d;
  };
  return s;
}

Strategy to_strategy(const Auto& s) {
  Strategy out{"auto", s.devices, {}, {}, {}, s.candidates()};
  if (std::find(out.devices.begin(), out.devices.end(), cpu(0)) == out.devices.end()) out.devices.push_back(cpu(0));
  return out;
}

}  // namespace belfry
