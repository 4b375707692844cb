// The CIFAR-10 net in two towers: on one device, on two, with variables here or there, it computes the same bits.
#include <cstdio>

#include <belfry/belfry.h>
#include <belfry/frontends/data/cifar10.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/compare.h>
using namespace belfry;

/// Pictures to compute on where no data are at hand: noise, a little brighter for each class.
DataSet made_up(std::int64_t rows) {
  HostTensor image(f32, {rows, 24, 24, 3}), label(i32, {rows});
  std::uint32_t state = 1;
  for (std::int64_t r = 0; r < rows; ++r) {
    label.data<std::int32_t>()[static_cast<std::size_t>(r)] = static_cast<std::int32_t>(r % 10);
    for (std::size_t k = 0; k < 24 * 24 * 3; ++k) {
      state = state * 1664525 + 1013904223;
      image.data<float>()[static_cast<std::size_t>(r) * 24 * 24 * 3 + k] = static_cast<float>(state >> 8) / (1 << 24) + 0.2f * static_cast<float>(r % 10) - 1;
    }
  }
  return {{{"image", std::move(image)}, {"label", std::move(label)}}};
}

int main(int argc, char** argv) {
  DataSet data = argc < 2 ? made_up(640) : cifar10(argv[1]).train;
  auto trained = [&](auto strategy) {
    Session session(net_named("cifar10").build(standard_library()->ops), strategy);
    fit(session, data, {.batch = 64, .steps = 10});
    std::printf("%-44s loss %.3f\n", session.plan(64).placement.strategy.c_str(), evaluate(session, data).at("loss"));
    return hash_of(session.state());
  };
  std::string one = trained(Single{.towers = 2});
  std::string two = trained(Towers{.devices = parse_devices("cpu:0,cpu:1"), .variables = cpu(0)});
  std::string four = trained(Mirrored{.devices = parse_devices("sim:0-1")});
  std::printf("the same bits: %s\n", one == two && two == four ? "yes" : "no");
}
