#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <functional>
#include <random>

#include <belfry/frontends/state/checkpoint.h>
#include <belfry/frontends/files/files.h>
#include <belfry/frontends/state/npy.h>

#include "files.h"
#include "says.h"

namespace belfry::test {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

/// A safetensors file of this header and buffer, its length made right.
std::string file_of(std::string_view header, std::string_view buffer = "") {
  std::string out(8, '\0');
  std::uint64_t n = header.size();
  std::memcpy(out.data(), &n, 8);
  return out + std::string(header) + std::string(buffer);
}

TensorMap sample_state() {
  TensorMap out;
  out["weights/kernel"] = HostTensor::of<float>({2, 3}, {0, -1.5f, 3e38f, 1e-45f, -0.0f, 6});
  out["f64"] = HostTensor::of<double>({3}, {1e300, -2, 0.1});
  out["i32"] = HostTensor::of<std::int32_t>({2, 1}, {-2147483647 - 1, 7});
  out["i64"] = HostTensor::scalar<std::int64_t>(std::int64_t{1} << 62);
  out["u8 \"quoted\" \n \xc3\xa9"] = HostTensor::of<std::uint8_t>({5}, {0, 1, 2, 254, 255});
  out["bool"] = HostTensor(boolean, {3});
  out["bool"].data<bool>()[1] = true;
  out["empty"] = HostTensor(f32, {4, 0, 2});
  return out;
}

/// Every damage of `damages` random byte changes and every truncation gives a UserError or a result, never more.
void expect_survives(const Bytes& good, const std::function<void(const Bytes&)>& parse, std::size_t rounds, std::size_t region) {
  std::mt19937 rng(7);
  int refused = 0;
  auto attempt = [&](const Bytes& bytes) {
    try {
      parse(bytes);
    } catch (const UserError&) {
      ++refused;
    }
  };
  for (std::size_t i = 0; i < rounds; ++i) {
    Bytes bad = good;
    for (std::size_t k = 0; k <= i % 3; ++k) bad[rng() % std::min(bad.size(), i % 2 ? region : bad.size())] = static_cast<std::byte>(rng());
    attempt(bad);
  }
  EXPECT_GT(refused, static_cast<int>(rounds / 4));
  refused = 0;
  for (std::size_t n = 0; n < good.size(); ++n) attempt(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)));
  EXPECT_EQ(refused, static_cast<int>(good.size())) << "a shortened file was read";
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THROW(parse(longer), UserError);
}

bool python_has(const std::string& modules) { return std::system(("python3 -c 'import " + modules + "' 2>/dev/null").c_str()) == 0; }
bool python(const Folder& folder, const std::string& script) {
  write_text(folder / "script.py", script);
  return std::system(("cd '" + folder.path().string() + "' && python3 script.py").c_str()) == 0;
}

TEST(safetensors, what_is_written_is_read_back_to_the_bit) {
  Folder folder;
  TextMap metadata = {{"note", "two\nlines \"é\""}, {"empty", ""}}, read;
  write_safetensors(folder / "a.safetensors", sample_state(), metadata);
  EXPECT_EQ(read_safetensors(folder / "a.safetensors", &read), sample_state());
  EXPECT_EQ(read, metadata);
  Bytes bytes = safetensors_bytes(sample_state(), metadata);
  EXPECT_EQ(parse_safetensors(bytes, "memory"), sample_state());
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ((8 + header) % 64, 0u);
  EXPECT_EQ(fs::file_size(folder / "a.safetensors"), bytes.size());
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a.safetensors"});
  EXPECT_EQ(parse_safetensors(safetensors_bytes({}), "memory"), TensorMap{});
}

TEST(safetensors, a_file_written_by_hand_is_read) {
  std::string text = file_of(R"( {"b":{"shape":[2],"data_offsets":[0,8],"dtype":"F32"}, "a":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}  )", std::string("\0\0\x80\x3f\0\0\0\xc0\x05", 9));
  EXPECT_NE(message_of([&] { parse_safetensors(bytes_of(text), "hand"); }).find("does not begin with '{'"), std::string::npos);
  text = file_of(R"({"b":{"shape":[2],"data_offsets":[0,8],"dtype":"F32"}, "a":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}  )", std::string("\0\0\x80\x3f\0\0\0\xc0\x05", 9));
  TensorMap read = parse_safetensors(bytes_of(text), "hand");
  EXPECT_EQ(read.at("b"), HostTensor::of<float>({2}, {1, -2}));
  EXPECT_EQ(read.at("a").item<std::uint8_t>(), 5);
}

TEST(safetensors, a_tensor_of_a_type_that_is_not_read_stands_in_the_way_of_none_other) {
  const std::string text = file_of(R"({"a":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"I16","shape":[2],"data_offsets":[3,7]},"c":{"dtype":"U64","shape":[1],"data_offsets":[7,15]}})",
                                   std::string("abc\xfe\xff\x03\0\x05\0\0\0\0\0\0\0", 15));
  auto but = [](const char* left) { return [=](const std::string& name) { return name != left; }; };
  const TensorMap read = parse_safetensors(bytes_of(text), "hand", nullptr, but("a"));
  EXPECT_EQ(read, (TensorMap{{"b", HostTensor::of<std::int64_t>({2}, {-2, 3})}, {"c", HostTensor::of<std::int64_t>({1}, {5})}}));
  EXPECT_THROW(parse_safetensors(bytes_of(text), "hand", nullptr, but("b")), TypeNotRead);
  EXPECT_NE(message_of([&] { parse_safetensors(bytes_of(text), "hand"); }).find("tensor 'a': dtype F8_E4M3 is not read here"), std::string::npos);
  const std::string large = std::string(text).replace(text.size() - 8, 8, std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8));
  EXPECT_NE(message_of([&] { parse_safetensors(bytes_of(large), "hand", nullptr, but("a")); }).find("tensor 'c': element 0 is 18446744073709551615, which i64 does not hold"), std::string::npos);
}

struct Malformed {
  std::string text, message;
};

std::vector<Malformed> malformed_safetensors() {
  auto one = [](std::string_view entry, std::string_view buffer = "12345678") { return file_of(entry, buffer); };
  return {
      {"", "byte 0: 0 bytes are too few"},
      {std::string("\x08\0\0", 3), "byte 0: 3 bytes are too few"},
      {file_of("{}").replace(0, 8, std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8)), "over the limit of 100000000"},
      {file_of("{}").replace(0, 8, std::string("\x01\xe1\xf5\x05\0\0\0\0", 8)), "a header of 100000001 bytes is over the limit"},
      {file_of("{}").replace(0, 8, std::string("\x03\0\0\0\0\0\0\0", 8)), "a header of 3 bytes does not fit into a file of 10"},
      {file_of(""), "byte 8: the header does not begin with '{'"},
      {file_of("[]"), "byte 8: the header does not begin with '{'"},
      {file_of("\xef\xbb\xbf{}"), "does not begin with '{'"},
      {file_of("{"), "the header is no JSON: syntax error"},
      {file_of("{}x"), "byte 10: the header is no JSON"},
      {file_of(std::string("{}\0x", 4)), "byte 10: a NUL byte in the header"},
      {file_of("{\"\xff\":1}"), "the header is no JSON"},
      {file_of(R"({"a":5})"), "byte 10, tensor 'a': is number, not an object"},
      {one(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"), "'a' stands twice"},
      {one(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})"), "'dtype' stands twice"},
      {file_of(R"({"__metadata__":{},"__metadata__":{}})"), "'__metadata__' stands twice"},
      {file_of(R"({"__metadata__":{"k":1}})"), "__metadata__ 'k' is number, not a text"},
      {file_of(R"({"__metadata__":"k"})"), "byte 10: __metadata__ is no object"},
      {one(R"({"a":{"shape":[2],"data_offsets":[0,8]}})"), "tensor 'a': has no 'dtype'"},
      {one(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})"), "has no 'shape'"},
      {one(R"({"a":{"dtype":"F32","shape":[2]}})"), "has no 'data_offsets'"},
      {one(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":1}})"), "unknown key 'extra'"},
      {one(R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})"), "tensor 'a': dtype F8_E4M3 is not read here; F32, F64"},
      {one(R"({"a":{"dtype":7,"shape":[4],"data_offsets":[0,8]}})"), "dtype is no text"},
      {one(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})"), "shape is number, not an array"},
      {one(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})"), "shape holds -2"},
      {one(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})"), "shape holds 2.0"},
      {one(R"({"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8]}})"), "shape holds 1.8446744073709552e+19"},
      {one(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})"), "more than 2^63 bytes"},
      {one(R"({"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})", "1234"), "more than 2^63 bytes"},
      {one(R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})"), "nested deeper"},
      {one(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})"), "f32(3) takes 12 bytes, but data_offsets [0, 8] hold 8"},
      {one(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})"), "data_offsets has 3 members"},
      {one(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})"), "data_offsets [8, 0] do not lie"},
      {one(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})"), "data_offsets [0, 16] do not lie in the 8 bytes"},
      {one(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[18446744073709551612,4]}})"), "do not lie in"},
      {one(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"), "leave a hole from 0"},
      {one(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})"), "4 bytes after the last tensor"},
      {one(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"), "tensor 'b': data_offsets [4, 8] overlap those of 'a'"},
      {one(R"({"a":{"dtype":"BOOL","shape":[8],"data_offsets":[0,8]}})"), "tensor 'a': 49 is no BOOL"},
      {file_of("{\"a\":" + std::string(100000, '[') + "}"), "nested deeper"},
  };
}

TEST(safetensors, every_malformed_file_is_refused_by_name_and_byte) {
  ASSERT_GE(malformed_safetensors().size(), 25u);
  for (const Malformed& m : malformed_safetensors()) {
    std::string said = message_of([&] { parse_safetensors(bytes_of(m.text), "bad.safetensors"); });
    EXPECT_TRUE(said.starts_with("bad.safetensors, byte ")) << said;
    EXPECT_NE(said.find(m.message), std::string::npos) << "wanted: " << m.message << "\nsaid:   " << said;
  }
}

TEST(safetensors, random_damage_never_does_more_than_refuse) {
  expect_survives(safetensors_bytes(sample_state(), {{"k", "v"}}), [](const Bytes& b) { parse_safetensors(b, "damaged"); }, 6000, 700);
}

TEST(safetensors, what_cannot_be_written_or_opened_says_why) {
  Folder folder;
  EXPECT_NE(message_of([&] { safetensors_bytes({{"__metadata__", HostTensor()}}); }).find("cannot be named '__metadata__'"), std::string::npos);
  EXPECT_NE(message_of([&] { safetensors_bytes({{"\xff", HostTensor()}}); }).find("'\\xff' is no UTF-8"), std::string::npos);
  EXPECT_NE(message_of([&] { safetensors_bytes({}, {{"k", "\xc3"}}); }).find("is no UTF-8"), std::string::npos);
  EXPECT_NE(message_of([&] { read_safetensors(folder / "none"); }).find("none: cannot read: No such file"), std::string::npos);
  EXPECT_NE(message_of([&] { read_safetensors(folder.path()); }).find("it is a folder"), std::string::npos);
  EXPECT_NE(message_of([&] { write_safetensors(folder / "no/where", {}); }).find("make the folder"), std::string::npos);
  EXPECT_NE(message_of([&] { write_safetensors(folder.path(), {}); }).find("is a folder"), std::string::npos);
  EXPECT_TRUE(folder.names().empty());
}

TEST(safetensors, every_golden_file_is_read_and_written_again_the_same) {
  fs::path golden = fs::path(BELFRY_SHARED) / "golden";
  if (!fs::exists(golden)) GTEST_SKIP() << "no golden files beside this source tree";
  int files = 0, with_halves = 0;
  for (const auto& entry : fs::recursive_directory_iterator(golden)) {
    if (entry.path().extension() != ".safetensors") continue;
    TextMap metadata;
    TensorMap tensors;
    std::string said = message_of([&] { tensors = read_safetensors(entry.path(), &metadata); });
    EXPECT_EQ(said, "(no error)");
    EXPECT_FALSE(tensors.empty());
    EXPECT_EQ(parse_safetensors(safetensors_bytes(tensors, metadata), "again"), tensors);
    ++files;
    with_halves += std::any_of(tensors.begin(), tensors.end(), [](const auto& t) { return t.second.dtype() == f16; });
  }
  EXPECT_GT(files, 100);
  EXPECT_EQ(with_halves, 1) << "finetune_pets/inputs holds halves";
}

TEST(safetensors, the_format_s_own_library_reads_ours_and_we_read_its) {
  if (!python_has("numpy, safetensors.numpy")) GTEST_SKIP() << "python3 has no safetensors and numpy";
  Folder folder;
  write_safetensors(folder / "ours.safetensors", sample_state(), {{"k", "v"}});
  ASSERT_TRUE(python(folder, R"(
import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
t = load_file('ours.safetensors')
assert len(t) == 7 and t['i64'] == 2**62 and t['empty'].shape == (4, 0, 2)
assert t['f64'].tolist() == [1e300, -2, 0.1] and t['bool'].tolist() == [False, True, False]
assert t['weights/kernel'].dtype == np.float32 and t['weights/kernel'][0, 1] == -1.5
assert safe_open('ours.safetensors', 'np').metadata() == {'k': 'v'}
save_file(t, 'theirs.safetensors', {'who': 'they'})
)"));
  TextMap metadata;
  EXPECT_EQ(read_safetensors(folder / "theirs.safetensors", &metadata), sample_state());
  EXPECT_EQ(metadata.at("who"), "they");
}

/// Runs `f` in a child that may write files of `limit` bytes; true if the kernel killed it in the middle of a longer one.
bool killed_while_writing(std::size_t limit, const std::function<void()>& f) {
  pid_t child = ::fork();
  if (child == 0) {
    rlimit bound{limit, limit};
    ::setrlimit(RLIMIT_CORE, std::array<rlimit, 1>{}.data());
    ::setrlimit(RLIMIT_FSIZE, &bound);
    f();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ;
}

CheckpointData checkpoint_at(std::int64_t step) {
  return {.state = {{"w", HostTensor(f32, {4096})}}, .step = step, .epoch = 3, .position = 96, .seed = ~std::uint64_t{0}, .note = "a note"};
}

TEST(checkpoint, everything_comes_back) {
  Folder folder;
  fs::path path = checkpoint_path(folder.path(), 120);
  EXPECT_EQ(path.filename(), "step-00000120.safetensors");
  write_checkpoint(path, checkpoint_at(120));
  CheckpointData read = read_checkpoint(path);
  EXPECT_EQ(read.state, checkpoint_at(120).state);
  EXPECT_EQ(std::tie(read.step, read.epoch, read.position, read.seed, read.note), std::make_tuple(120, 3, 96, ~std::uint64_t{0}, "a note"));
}

TEST(checkpoint, a_changed_bit_is_found_in_tensors_and_metadata) {
  Folder folder;
  const fs::path path = folder / "c.safetensors";
  const CheckpointData data{.state = sample_state(), .step = 12, .epoch = 3, .position = 96, .seed = 1, .note = "a note", .run = {{"batch", "8"}}};
  write_checkpoint(path, data);
  const std::string good = text_of(path);
  EXPECT_EQ(read_checkpoint(path).state, sample_state());
  EXPECT_EQ(read_checkpoint(path).run, data.run) << "the checksum is none of the run's notes";
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  std::string bad;
  for (std::size_t byte = 8 + header; byte < good.size(); ++byte) {
    bad = good;
    bad[byte] = static_cast<char>(bad[byte] ^ 0x10);
    write_text(path, bad);
    EXPECT_THROW(read_checkpoint(path), UserError) << "byte " << byte;
  }
  EXPECT_TRUE(says([&] { read_safetensors(path); }, {"c.safetensors, byte ", "the file is damaged: its content has the checksum ", ", and was written with ", "take an earlier checkpoint or another copy"})) << "as weights too";
  for (const auto& [from, to] : {std::pair("\"epoch\":\"3\"", "\"epoch\":\"4\""), {"\"run/batch\":\"8\"", "\"run/batch\":\"9\""}, {"\"weights/kernel\"", "\"weights/kernem\""}, {"[2,3]", "[3,2]"}}) {
    const std::size_t at = good.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_text(path, std::string(good).replace(at, std::string_view(from).size(), to));
    EXPECT_TRUE(says([&] { read_checkpoint(path); }, {"the file is damaged"})) << to;
  }
}

TEST(checkpoint, a_writer_killed_in_the_middle_leaves_the_older_checkpoint_as_the_latest) {
  Folder folder;
  write_checkpoint(checkpoint_path(folder.path(), 1), checkpoint_at(1));
  ASSERT_TRUE(killed_while_writing(8000, [&] { write_checkpoint(checkpoint_path(folder.path(), 2), checkpoint_at(2)); }));
  ASSERT_TRUE(killed_while_writing(8000, [&] { write_checkpoint(checkpoint_path(folder.path(), 1), checkpoint_at(1)); }));
  EXPECT_EQ(folder.names().size(), 3u) << "two unfinished neighbours stay beside it";
  EXPECT_EQ(latest_checkpoint(folder.path()), checkpoint_path(folder.path(), 1));
  EXPECT_EQ(read_checkpoint(*latest_checkpoint(folder.path())).step, 1);
  write_checkpoint(checkpoint_path(folder.path(), 3), checkpoint_at(3));
  keep_last(folder.path(), 1);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"step-00000003.safetensors"});
}

TEST(checkpoint, a_full_disk_is_an_error_that_leaves_nothing_behind) {
  Folder folder;
  pid_t child = ::fork();
  if (child == 0) {
    rlimit bound{8000, 8000};
    ::setrlimit(RLIMIT_FSIZE, &bound);
    ::signal(SIGXFSZ, SIG_IGN);
    std::string said = message_of([&] { write_checkpoint(folder / "step-00000001.safetensors", checkpoint_at(1)); });
    ::_exit(said.find("step-00000001.safetensors: cannot write: File too large") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(folder.names().empty());
}

TEST(checkpoint, the_last_ones_are_kept_by_step_and_other_files_are_left_alone) {
  Folder folder;
  for (std::int64_t step : {9, 100, 20, 1234567890, 30}) write_checkpoint(checkpoint_path(folder.path(), step), checkpoint_at(step));
  for (const char* other : {"step-x.safetensors", "weights.safetensors", "step-00000001.safetensors.bak", "step--0000001.safetensors"}) write_text(folder / other, "");
  EXPECT_EQ(latest_checkpoint(folder.path()), checkpoint_path(folder.path(), 1234567890));
  keep_last(folder.path(), 2);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"step--0000001.safetensors", "step-00000001.safetensors.bak", "step-00000100.safetensors", "step-1234567890.safetensors",
                                                      "step-x.safetensors", "weights.safetensors"}));
  EXPECT_THROW(keep_last(folder.path(), 0), UserError);
  EXPECT_EQ(latest_checkpoint(folder / "none"), std::nullopt);
}

TEST(checkpoint, that_is_read_changed_and_written_as_safetensors_is_read_again) {
  Folder folder;
  fs::path path = folder / "c.safetensors";
  write_checkpoint(path, {.state = sample_state(), .step = 3, .note = "n"});
  TextMap metadata;
  TensorMap state = read_safetensors(path, &metadata);
  EXPECT_FALSE(metadata.contains(kChecksumKey));
  state["another"] = HostTensor::of<std::int32_t>({1}, {7});
  write_safetensors(path, state, metadata);
  EXPECT_EQ(read_checkpoint(path).state, state);
  EXPECT_EQ(read_checkpoint(path).note, "n");
}

TEST(checkpoint, a_file_that_is_none_is_refused) {
  Folder folder;
  fs::path path = folder / "c.safetensors";
  TextMap good = {{"belfry.checkpoint", "1"}, {"step", "1"}, {"epoch", "0"}, {"position", "0"}, {"seed", "0"}, {"note", ""}};
  auto said = [&](const char* key, const char* value) {
    TextMap metadata = good;
    if (value) metadata[key] = value;
    else metadata.erase(key);
    write_safetensors(path, {}, metadata);
    return message_of([&] { read_checkpoint(path); });
  };
  EXPECT_EQ(said("note", "fine"), "(no error)");
  EXPECT_NE(said("belfry.checkpoint", nullptr).find("is no checkpoint"), std::string::npos);
  EXPECT_NE(said("belfry.checkpoint", "2").find("a checkpoint of version '2'; this program reads version 1"), std::string::npos);
  EXPECT_NE(said("step", nullptr).find("has no 'step'"), std::string::npos);
  for (const char* bad : {"", "-1", "1x", " 1", "99999999999999999999"}) EXPECT_NE(said("epoch", bad).find("epoch is '"), std::string::npos) << bad;
  EXPECT_THROW(write_checkpoint(path, {.state = {}, .step = -1, .note = {}}), UserError);
}

}  // namespace
}  // namespace belfry::test
