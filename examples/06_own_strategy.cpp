// A strategy of one's own: how many towers there are, and rules that say where things live. It cannot change what is computed.
#include <cstdio>

#include <belfry/belfry.h>
#include <belfry/frontends/cli/cli.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/compare.h>
using namespace belfry;

/// Towers, with kernels of matrices on the first device and small variables on the second.
struct SmallApart {
  std::vector<DeviceId> devices;
  int towers = 0;

  Division divide(const Graph&, const Cluster&) const { return {.towers = towers ? towers : static_cast<int>(devices.size())}; }

  Rules assign(const TowerGraph& graph, const Cluster&) const {
    Rules rules = {{"tower_*/**", devices, "a tower per device"}};
    for (NodeId id : graph.graph->variables()) {
      const Node& variable = graph.graph->node(id);
      if (variable.types[0].shape.size() < 2) rules.push_back({variable.name, {devices.back()}, "small variables stand apart"});
    }
    rules.push_back({"**", {devices[0]}, "the rest"});
    return rules;
  }
};

/// Its name and options for the command line.
StrategyDef small_apart() {
  return {"small_apart", "towers, with small variables on the last device", {{"towers", "how many; by default one per device"}}, [](const std::vector<DeviceId>& devices, const std::map<std::string, std::string>& given) {
            StrategyOptions options("small_apart", given);
            SmallApart s{devices, options.integer("towers", 0, 1, 65536)};
            options.finish();
            return strategy("small_apart", devices, s);
          }};
}

int main(int argc, char** argv) {
  if (argc > 1) {  // with a verb this program is belfry and one strategy more
    auto library = std::make_shared<Library>(*standard_library());
    library->strategies.push_back(small_apart());
    return cli_main(argc, argv, library);
  }
  draw_digits("digits", 2000, 500, 1);
  Splits data = mnist("digits");
  auto trained = [&](Strategy strategy) {
    Session session(net_named("mnist_cnn").build(standard_library()->ops), std::move(strategy));
    fit(session, data.train, {.batch = 32, .epochs = 1});
    std::printf("%s\n", session.plan(32).placement.strategy.c_str());
    for (const PlanNode& n : session.plan(32).nodes)
      if (n.op == "variable" && n.name.ends_with("bias")) std::printf("  %s: %s\n", n.name.c_str(), n.reason.c_str());
    return hash_of(session.state());
  };
  const std::vector<DeviceId> devices = parse_devices("cpu:0,cpu:1");
  std::string mine = trained(strategy("small_apart", devices, SmallApart{devices}));
  std::string known = trained(to_strategy(Towers{.devices = devices}));
  std::printf("the same bits: %s\n", mine == known ? "yes" : "no");
}
