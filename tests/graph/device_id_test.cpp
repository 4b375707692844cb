#include <belfry/graph/device_id.h>

#include "says.h"

namespace belfry::test {
namespace {

TEST(DeviceIds, print_and_read_back) {
  for (const char* text : {"cpu:0", "gpu:1", "gpu:0/1", "sim:3", "/host:2/gpu:0", "/host:2/gpu:0/3"}) EXPECT_EQ(to_string(parse_device(text)), text);
}

TEST(DeviceIds, refuse_other_texts_with_the_known_forms) {
  for (const char* wrong : {"", "cpu", "cpu:", "tpu:0", "cpu:x", "cpu:-1", "cpu:0/", "cpu:0/x", "cpu:0x", "cpu:1234567", "/host:/cpu:0", "/host:1cpu:0", "CPU:0", " cpu:0", "gpu:00", "gpu:0/01", "/host:01/cpu:0"})
    EXPECT_TRUE(says([&] { parse_device(wrong); }, {"is no device", "cpu:0, gpu:1"})) << wrong;
}

TEST(DeviceIds, only_of_a_gpu_name_a_part) {
  for (const char* wrong : {"cpu:0/1", "sim:3/0", "/host:1/cpu:0/0"}) EXPECT_TRUE(says([&] { parse_device(wrong); }, {wrong, "only a GPU has parts"})) << wrong;
}

TEST(DeviceLists, name_their_limit) {
  EXPECT_EQ(parse_devices("sim:0-65535").size(), 65536u);
  EXPECT_TRUE(says([] { parse_devices("sim:0-65536"); }, {"'sim:0-65536' names 65537 devices", "at most 65536"}));
}

TEST(DeviceLists, take_the_kind_of_the_one_before) {
  EXPECT_EQ(to_string(parse_devices("gpu:0,2,3")), "gpu:0,gpu:2-3");
  EXPECT_EQ(parse_devices("sim:0-7").size(), 8u);
  EXPECT_EQ(to_string(parse_devices("cpu:0,cpu:1,gpu:4")), "cpu:0-1,gpu:4");
  EXPECT_EQ(to_string(parse_devices("gpu:0/0,gpu:0/1")), "gpu:0/0,gpu:0/1");
}

TEST(DeviceLists, read_back_what_they_print) {
  for (const char* text : {"cpu:0", "sim:0-7", "gpu:0,gpu:2-3", "gpu:0/0,gpu:0/1", "/host:1/gpu:0-3", "/host:0-3/gpu:0-7,/host:0-3/cpu:0", "/host:2-3/gpu:1/0", "gpu:0-7,/host:1/gpu:0-6", "/host:1/gpu:0,/host:3/gpu:0", "/host:1-2/sim:4"}) EXPECT_EQ(to_string(parse_devices(text)), text);
}

TEST(DeviceLists, refuse_twins_and_broken_ranges) {
  EXPECT_TRUE(says([] { parse_devices("sim:0-3,sim:2"); }, {"sim:2 is named twice", "sim:0-3,sim:2", "name it once", "--towers"}));
  for (const char* wrong : {"gpu:0/-1", "tpu:0-1", "gpu:1/x-2"}) EXPECT_TRUE(says([&] { parse_devices(wrong); }, {"'" + std::string(wrong) + "' is no device"})) << wrong;
  for (const char* wrong : {"cpu:0,", ",cpu:0", "cpu:0,,cpu:1"}) EXPECT_TRUE(says([&] { parse_devices(wrong); }, {wrong, "is no device list", "comma"})) << wrong;
  EXPECT_TRUE(says([] { parse_devices("cpu:-1"); }, {"'cpu:-1' is no device", "begin with 0", "cpu:0-1"}));
  EXPECT_TRUE(says([] { parse_devices("gpu:1/0,gpu:0-1"); }, {"'gpu:1/0,gpu:0-1': gpu:1 and its slice gpu:1/0 are one GPU", "name its slices alone, or the whole"}));
  EXPECT_EQ(parse_devices("gpu:0,gpu:1/0,gpu:1/1").size(), 3u);
  for (const char* wrong : {"sim:3-1", "sim:0-", "sim:-2", "gpu:0/0-1", "sim:0-01", "gpu:00-1", "sim:0-99999999", "cpu:0,", ",cpu:0", "0,1"}) EXPECT_TRUE(says([&] { parse_devices(wrong); }, {"is no device"})) << wrong;
}

TEST(DeviceLists, say_what_is_wrong_with_a_range) {
  EXPECT_TRUE(says([] { parse_devices("sim:5-2"); }, {"'sim:5-2' is no device", "goes backwards", "write sim:2-5"}));
  EXPECT_TRUE(says([] { parse_devices("cpu:0,/host:1/gpu:3-1"); }, {"'/host:1/gpu:3-1' is no device", "goes backwards", "write /host:1/gpu:1-3"}));
  for (const char* wrong : {"sim:5-", "sim:5-x", "sim:5-7x"}) EXPECT_TRUE(says([&] { parse_devices(wrong); }, {wrong, "no range", "as in sim:5-6"})) << wrong;
  EXPECT_TRUE(says([] { parse_devices("gpu:0/0-1"); }, {"'gpu:0/0-1' is no device", "parts of a GPU have no ranges", "gpu:0/0,gpu:0/1"}));
  EXPECT_TRUE(says([] { parse_devices("sim:0-99999999"); }, {"'sim:0-99999999' is no device", "at most six digits", "at most 65536 devices"}));
}

TEST(DeviceLists, have_ranges_of_hosts) {
  EXPECT_EQ(parse_devices("/host:2-3/gpu:0-1,cpu:1"), (std::vector<DeviceId>{{2, "gpu", 0}, {2, "gpu", 1}, {3, "gpu", 0}, {3, "gpu", 1}, {0, "cpu", 1}}));
  EXPECT_EQ(parse_devices("/host:0-1/gpu:0,2"), (std::vector<DeviceId>{{0, "gpu", 0}, {1, "gpu", 0}, {0, "gpu", 2}, {1, "gpu", 2}}));
  EXPECT_EQ(parse_devices("/host:0-8191/gpu:0-7").size(), 65536u);
  EXPECT_TRUE(says([] { parse_devices("/host:0-8192/gpu:0-7"); }, {"'/host:0-8192/gpu:0-7' names 65544 devices", "at most 65536"}));
  EXPECT_TRUE(says([] { parse_devices("/host:3-1/gpu:0"); }, {"'/host:3-1/gpu:0' is no device", "goes backwards", "write /host:1-3/gpu:0"}));
  EXPECT_TRUE(says([] { parse_devices("/host:0-1/gpu:0,/host:1/gpu:0"); }, {"/host:1/gpu:0 is named twice"}));
  for (const char* wrong : {"/host:-1/gpu:0", "/host:1-/gpu:0", "/host:1-2", "/host:1-2x/gpu:0", "/host:0-01/gpu:0", "/host:0-1/gpu", "/host:0-1/tpu:0"}) EXPECT_TRUE(says([&] { parse_devices(wrong); }, {"is no device"})) << wrong;
  EXPECT_TRUE(says([] { parse_device("/host:0-1/gpu:0"); }, {"is no device"}));
  EXPECT_TRUE(says([] { parse_devices("/host:0-1/gpu:3-1"); }, {"'/host:0-1/gpu:3-1', of each host: 'gpu:3-1' is no device", "goes backwards", "write gpu:1-3"}));
  EXPECT_TRUE(says([] { parse_devices("/host:0-1//host:2/gpu:0"); }, {"'/host:0-1//host:2/gpu:0' is no device"}));
  EXPECT_TRUE(says([] { parse_devices("/host:0-1/"); }, {"'/host:0-1/'", "is no device"}));
  std::vector<DeviceId> many;
  for (int host = 0; host < 8193; ++host)
    for (int k = 0; k < 8; ++k) many.push_back({host, "gpu", k});
  EXPECT_EQ(to_string(many), "/host:0-8191/gpu:0-7,/host:8192/gpu:0-7");
  EXPECT_EQ(parse_devices(to_string(many)), many);
}

TEST(Clashes, are_of_one_device_twice_and_of_a_gpu_beside_its_own_slice) {
  auto of = [](const char* there, const char* id) {
    const std::vector<DeviceId> ids = parse_devices(there);
    return clash({ids.begin(), ids.end()}, parse_device(id));
  };
  EXPECT_EQ(of("cpu:0,sim:0", "sim:0"), "device sim:0 is named twice");
  EXPECT_EQ(of("gpu:1/2,gpu:0", "gpu:1"), "gpu:1 and its slice gpu:1/2 are one GPU: name its slices alone, or the whole");
  EXPECT_EQ(of("gpu:1,gpu:0", "gpu:1/2"), "gpu:1 and its slice gpu:1/2 are one GPU: name its slices alone, or the whole");
  for (const char* id : {"gpu:1/1", "gpu:2", "/host:1/gpu:1", "/host:1/gpu:0/0", "sim:0"}) EXPECT_EQ(of("gpu:0,gpu:1/0", id), "") << id;
}

}  // namespace
}  // namespace belfry::test
