#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include <belfry/frontends/state/npy.h>

#include "files.h"
#include "says.h"

namespace belfry::test {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using Bytes = std::vector<std::byte>;

Bytes bytes_of_file(const fs::path& path) { return bytes_of(text_of(path)); }

std::string npy(int version, const std::string& dict, const std::string& data) {
  std::string out = "\x93NUMPY"s + static_cast<char>(version) + '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) out += static_cast<char>(dict.size() >> (8 * i));
  return out + dict + data;
}
HostTensor parse(const std::string& text) { return parse_npy(bytes_of(text), "f.npy"); }

TensorMap sample_arrays() {
  TensorMap out;
  out["layer/w"] = HostTensor::of<float>({2, 3}, {0, -1.5f, 3e38f, 1e-45f, -0.0f, 6});
  out["f64"] = HostTensor::of<double>({3}, {1e300, -2, 0.1});
  out["i32"] = HostTensor::of<std::int32_t>({2, 1}, {-5, 7});
  out["i64"] = HostTensor::scalar<std::int64_t>(std::int64_t{1} << 62);
  out["u8"] = HostTensor::of<std::uint8_t>({5}, {0, 1, 2, 254, 255});
  out["bool"] = HostTensor(boolean, {3});
  out["bool"].data<bool>()[1] = true;
  out["empty"] = HostTensor(f32, {4, 0, 2});
  return out;
}

TEST(npy, what_is_written_is_read_back_to_the_bit) {
  Folder folder;
  for (const auto& [name, tensor] : sample_arrays()) {
    write_npy(folder / "a.npy", tensor);
    EXPECT_EQ(read_npy(folder / "a.npy"), tensor) << name;
    Bytes bytes = npy_bytes(tensor);
    EXPECT_EQ(bytes_of_file(folder / "a.npy"), bytes);
    EXPECT_EQ((bytes.size() - tensor.bytes().size()) % 64, 0u);
  }
  HostTensor deep(u8, Extents(30000, 1));
  EXPECT_EQ(text_of(npy_bytes(deep))[6], 2) << "a long header takes version 2";
  EXPECT_EQ(parse_npy(npy_bytes(deep), "deep"), deep);
}

TEST(npy, all_versions_spacings_and_both_orders_are_read) {
  HostTensor expected = HostTensor::of<std::uint8_t>({2, 3}, {1, 2, 3, 4, 5, 6});
  for (int version : {1, 2, 3}) EXPECT_EQ(parse(npy(version, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }\n", "\1\2\3\4\5\6")), expected);
  EXPECT_EQ(parse(npy(1, "{\"shape\":(2,3),\"descr\":\"|u1\",\"fortran_order\":False}", "\1\2\3\4\5\6")), expected);
  EXPECT_EQ(parse(npy(1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", "\1\4\2\5\3\6")), expected);
  HostTensor cube = parse(npy(1, "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 1, 2), }", "\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0"s));
  EXPECT_EQ(cube, HostTensor::of<std::int32_t>({2, 1, 2}, {1, 3, 2, 4}));
  EXPECT_EQ(parse(npy(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (), }", "\7")).item<std::uint8_t>(), 7);
}

TEST(npy, every_malformed_file_is_refused_by_name_and_byte) {
  auto dict = [](const std::string& descr, const std::string& order, const std::string& shape) { return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }"; };
  const std::string good = npy(1, dict("'|u1'", "False", "(2,)"), "ab");
  const std::pair<std::string, std::string> cases[] = {
      {"", "f.npy, byte 0: is no .npy file"},
      {"PK\3\4", "byte 0: is no .npy file"},
      {good.substr(0, 7), "byte 7: is cut short"},
      {std::string(good).replace(6, 1, "\4"), "byte 6: .npy version 4.0"},
      {std::string(good).replace(7, 1, "\1"), "byte 6: .npy version 1.1"},
      {npy(2, "", "").substr(0, 11), "byte 11: is cut short"},
      {good.substr(0, 40), "byte 8: a header of 57 bytes does not fit into a file of 40"},
      {good.substr(0, good.size() - 1), "u8(2) takes 2 bytes, but 1 follow"},
      {good + "c", "u8(2) takes 2 bytes, but 3 follow"},
      {npy(1, dict("'>f4'", "False", "(1,)"), "abcd"), "dtype '>f4' is not read here"},
      {npy(1, dict("'<c8'", "False", "(1,)"), "ab"), "dtype '<c8' is not read here"},
      {npy(1, dict("'|O'", "False", "(1,)"), "ab"), "dtype '|O'"},
      {npy(1, dict("[('a', '<f4')]", "False", "(1,)"), "abcd"), "a structured dtype"},
      {npy(1, dict("'|u1'", "0", "(2,)"), "ab"), "neither True nor False"},
      {npy(1, dict("'|u1'", "False", "(2)"), "ab"), "the header has no ',' here"},
      {npy(1, dict("'|u1'", "False", "(-2,)"), "ab"), "what is no size"},
      {npy(1, dict("'|u1'", "False", "(2L,)"), "ab"), "the header has no ',' here"},
      {npy(1, dict("'|u1'", "False", "(99999999999999999999,)"), "ab"), "what is no size"},
      {npy(1, dict("'<f8'", "False", "(4611686018427387904, 4)"), "ab"), "more than 2^63 bytes"},
      {npy(1, dict("'<f8'", "False", "(1000000000000,)"), "ab"), "takes 8000000000000 bytes, but 2 follow"},
      {npy(1, dict("'|u1'", "False", "[2]"), "ab"), "the header has no '(' here"},
      {npy(1, "{'descr': '|u1', 'fortran_order': False}", "ab"), "lacks descr, fortran_order or shape"},
      {npy(1, "{'descr': '|u1', 'descr': '|u1'}", "ab"), "'descr' stands twice"},
      {npy(1, "{'descr': '|u1', 'x': 1}", "ab"), "unknown key 'x'"},
      {npy(1, "{'descr: 1", ""), "does not end"},
      {npy(1, "{descr: 1", ""), "no quoted text here"},
      {npy(1, "{", ""), "no quoted text here"},
      {npy(1, "", ""), "no '{' here"},
      {npy(1, dict("'|u1'", "False", "(2,)") + "x", "ab"), "text after the header's dict"},
      {npy(1, dict("'|b1'", "False", "(2,)"), "\1\2"), "2 is no bool"},
  };
  for (const auto& [text, wanted] : cases) {
    std::string said = message_of([&, &text = text] { parse(text); });
    EXPECT_TRUE(said.starts_with("f.npy, byte ")) << said;
    EXPECT_NE(said.find(wanted), std::string::npos) << "wanted: " << wanted << "\nsaid:   " << said;
  }
}

TEST(npy, whole_numbers_of_other_widths_are_read_as_i64) {
  auto one = [](const char* descr, const char* order, const char* shape, const std::string& data) { return parse(npy(1, "{'descr': '"s + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }", data)); };
  auto i64s = [](Extents shape, std::initializer_list<std::int64_t> values) { return HostTensor::of<std::int64_t>(std::move(shape), values); };
  EXPECT_EQ(one("|i1", "False", "(2,)", "\xff\5"), i64s({2}, {-1, 5}));
  EXPECT_EQ(one("<i2", "False", "(2,)", "\xfe\xff\3\0"s), i64s({2}, {-2, 3}));
  EXPECT_EQ(one("<u2", "True", "(2, 2)", "\1\0\2\0\3\0\xff\xff"s), i64s({2, 2}, {1, 3, 2, 65535}));
  EXPECT_EQ(one("<u4", "False", "(1,)", "\xff\xff\xff\xff"), i64s({1}, {4294967295}));
  EXPECT_EQ(one("<u8", "False", "()", "\7\0\0\0\0\0\0\0"s), i64s({}, {7}));
  EXPECT_NE(message_of([&] { one("<u8", "False", "(1,)", "\xff\xff\xff\xff\xff\xff\xff\xff"); }).find("element 0 is 18446744073709551615, which i64 does not hold"), std::string::npos);
  EXPECT_NE(message_of([&] { one("<i2", "False", "(2,)", "abc"); }).find("'<i2' of (2) takes 4 bytes, but 3 follow"), std::string::npos);
}

/// The members of an archive of ours packed again by Python's zipfile, deflated.
bool deflate(const Folder& folder) {
  write_text(folder / "script.py",
             "import zipfile\n"
             "a = zipfile.ZipFile('a.npz')\n"
             "assert a.testzip() is None\n"
             "b = zipfile.ZipFile('b.npz', 'w', zipfile.ZIP_DEFLATED)\n"
             "for n in a.namelist(): b.writestr(n, a.read(n))\n"
             "b.close()\n");
  return std::system(("cd '" + folder.path().string() + "' && python3 script.py").c_str()) == 0;
}

TEST(npz, what_is_written_is_read_back_stored_and_deflated) {
  Folder folder;
  write_npz(folder / "a.npz", sample_arrays());
  EXPECT_EQ(read_npz(folder / "a.npz"), sample_arrays());
  EXPECT_EQ(bytes_of_file(folder / "a.npz"), npz_bytes(sample_arrays()));
  EXPECT_EQ(parse_npz(npz_bytes({}), "none"), TensorMap{});
  if (std::system("python3 -c 'import zipfile, zlib' 2>/dev/null") != 0) GTEST_SKIP() << "no python3 to deflate with";
  ASSERT_TRUE(deflate(folder));
  EXPECT_EQ(read_npz(folder / "b.npz"), sample_arrays());
}

TEST(npz, zip64_is_read_and_other_packings_name_the_way_out) {
  if (std::system("python3 -c 'import bz2, lzma, zipfile, zlib' 2>/dev/null") != 0) GTEST_SKIP() << "no python3 to pack with";
  Folder folder;
  write_npz(folder / "a.npz", sample_arrays());
  write_text(folder / "script.py", R"(
import zipfile
a = zipfile.ZipFile('a.npz')
def write(name, method):
    with zipfile.ZipFile(name + '.npz', 'w', method) as b:
        for n in a.namelist():
            with b.open(n, 'w', force_zip64=True) as f: f.write(a.read(n))
write('forced', zipfile.ZIP_STORED)
write('bzip2', zipfile.ZIP_BZIP2)
write('lzma', zipfile.ZIP_LZMA)
zipfile.ZIP64_LIMIT = 0  # as if all were larger: sizes, places and the directory are told by zip64's records
write('stored', zipfile.ZIP_STORED)
write('deflated', zipfile.ZIP_DEFLATED)
)");
  ASSERT_EQ(std::system(("cd '" + folder.path().string() + "' && python3 script.py").c_str()), 0);
  for (const char* file : {"forced.npz", "stored.npz", "deflated.npz"}) EXPECT_EQ(read_npz(folder / file), sample_arrays()) << file;
  for (const auto& [file, method] : {std::pair("bzip2.npz", "bzip2 (method 12)"), {"lzma.npz", "lzma (method 14)"}})
    EXPECT_TRUE(says([&, file = file] { read_npz(folder / file); }, {file, "member 'bool.npy': is packed by "s + method, "write it with np.savez or np.savez_compressed"}));
  const std::string good = text_of(folder / "stored.npz");
  const std::size_t record = good.find("PK\6\6"), locator = good.find("PK\6\7"), last = good.rfind("PK\1\2"), field = last + 46 + good.substr(last + 46).find(".npy") + 4;
  auto with = [&](std::size_t at, const std::string& bytes) { return std::string(good).replace(at, bytes.size(), bytes); };
  const std::pair<std::string, std::string> cases[] = {
      {with(record, "PK\6\5"), "no zip64 end record here"},
      {with(locator + 15, "\xff"), "the archive is cut short"},
      {with(record + 16, "\1"), "in several volumes"},
      {with(record + 40, "\xff"), "does not end at the end record"},
      {with(record + 55, "\xff"), "does not end at the end record"},
      {with(field, "\2"), "is a zip64 member without its zip64 field"},
      {with(field + 2, "\7"), "its zip64 field is cut short"},
      {with(field + 11, "\xff").replace(field + 19, 1, "\xff"), "run into the directory"},
      {with(field + 27, "\xff"), "lies after the directory"},
  };
  for (const auto& [text, wanted] : cases) EXPECT_TRUE(says([&, &text = text] { parse_npz(bytes_of(text), "f.npz"); }, {"f.npz, byte ", wanted}));
}

TEST(npz, a_member_of_a_type_that_is_not_read_stands_in_the_way_of_none_other) {
  if (std::system("python3 -c 'import zipfile' 2>/dev/null") != 0) GTEST_SKIP() << "no python3 to pack with";
  Folder folder;
  write_npz(folder / "a.npz", {{"kept", HostTensor::of<float>({1}, {2})}, {"words", HostTensor::of<float>({1}, {3})}});
  write_text(folder / "script.py",
             "import zipfile\n"
             "a, b = zipfile.ZipFile('a.npz'), zipfile.ZipFile('b.npz', 'w')\n"
             "for n in a.namelist(): b.writestr(n, a.read(n).replace(b'<f4', b'<U1') if n == 'words.npy' else a.read(n))\n"
             "b.close()\n");
  ASSERT_EQ(std::system(("cd '" + folder.path().string() + "' && python3 script.py").c_str()), 0);
  EXPECT_EQ(read_npz(folder / "b.npz", [](const std::string& name) { return name == "kept"; }), (TensorMap{{"kept", HostTensor::of<float>({1}, {2})}}));
  EXPECT_NE(message_of([&] { read_npz(folder / "b.npz"); }).find("member 'words.npy', byte "), std::string::npos) << message_of([&] { read_npz(folder / "b.npz"); });
  EXPECT_THROW(read_npz(folder / "b.npz", [](const std::string& name) { return name == "words"; }), TypeNotRead);
}

TEST(npz, every_malformed_archive_is_refused_by_name_and_byte) {
  const std::string good = text_of(npz_bytes({{"ab", HostTensor::of<std::uint8_t>({2}, {1, 2})}, {"cd", HostTensor::of<std::uint8_t>({2}, {3, 4})}}));
  const std::size_t directory = good.find("PK\1\2"), end = good.find("PK\5\6"), second = good.find("PK\3\4", 4), other = good.find("PK\1\2", directory + 1);
  auto with = [&](std::size_t at, const std::string& bytes) { return std::string(good).replace(at, bytes.size(), bytes); };
  const std::pair<std::string, std::string> cases[] = {
      {"", "byte 0: is no .npz file"},
      {good.substr(0, good.size() - 1), "is no .npz file"},
      {good + "x", "or bytes after it"},
      {good.substr(1), "does not end at the end record"},
      {with(end + 8, "\3\0"s), "in several volumes"},
      {with(end + 8, "\3\0\3\0"s), "no directory entry here"},
      {with(end + 8, "\1\0\1\0"s), "entries end here"},
      {with(end + 16, "\xff\xff\xff\xff"), "a zip64 archive without its zip64 end record"},
      {with(directory, "PK\1\3"), "no directory entry here"},
      {with(directory + 8, "\1"), "member 'ab.npy': is encrypted"},
      {with(directory + 10, "\x01"), "packed by method 1; stored and deflated members are read"},
      {with(directory + 24, "\xff\xff\xff\xff"), "is a zip64 member without its zip64 field"},
      {with(directory + 10, "\x08"), "another method in its local header"},
      {with(directory + 16, "\0\0\0\0"s), "its checksum differs"},
      {with(directory + 20, "\0\0"s), "is stored, but 0 bytes become"},
      {with(directory + 20, "\xff\xff\0\0\xff\xff\0\0"s), "run into the directory"},
      {with(directory + 42, "\xff\xff\xff\x0f"), "lies after the directory"},
      {with(directory + 42, "\1\0\0\0"s), "no local header here"},
      {with(other + 42, "\0\0\0\0"s), "overlaps the member before it"},
      {with(directory + 46, "xx"), "another name in its local header"},
      {with(directory + 48, ".npz"), "is no .npy"},
      {with(second, "PK\3\5"), "member 'cd.npy': no local header here"},
      {with(second + 30, "ab").replace(other + 46, 2, "ab"), "stands twice"},
      {with(second - 1, "\xff"), "its checksum differs"},
  };
  for (const auto& [text, wanted] : cases) {
    std::string said = message_of([&, &text = text] { parse_npz(bytes_of(text), "f.npz"); });
    EXPECT_TRUE(said.starts_with("f.npz, byte ")) << said;
    EXPECT_NE(said.find(wanted), std::string::npos) << "wanted: " << wanted << "\nsaid:   " << said;
  }
}

TEST(npz, random_damage_never_does_more_than_refuse) {
  Folder folder;
  write_npz(folder / "a.npz", sample_arrays());
  std::vector<Bytes> archives = {bytes_of_file(folder / "a.npz"), npy_bytes(sample_arrays().at("layer/w"))};
  if (deflate(folder)) archives.push_back(bytes_of_file(folder / "b.npz"));
  std::mt19937 rng(11);
  for (const Bytes& good : archives) {
    auto parse = [&](const Bytes& b) { &good == &archives[1] ? (void)parse_npy(b, "damaged") : (void)parse_npz(b, "damaged"); };
    int refused = 0;
    for (int i = 0; i < 4000; ++i) {
      Bytes bad = good;
      bad[rng() % bad.size()] = static_cast<std::byte>(rng());
      try {
        parse(bad);
      } catch (const UserError&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 1000);
    for (std::size_t n = 0; n < good.size(); ++n) EXPECT_THROW(parse(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n))), UserError) << n;
  }
}

TEST(npz, numpy_reads_ours_and_we_read_its) {
  if (std::system("python3 -c 'import numpy' 2>/dev/null") != 0) GTEST_SKIP() << "python3 has no numpy";
  Folder folder;
  write_npz(folder / "ours.npz", sample_arrays());
  write_npy(folder / "ours.npy", sample_arrays().at("layer/w"));
  write_text(folder / "script.py", R"(
import numpy as np
t = dict(np.load('ours.npz'))
assert len(t) == 7 and t['i64'] == 2**62 and t['empty'].shape == (4, 0, 2) and t['f64'].tolist() == [1e300, -2, 0.1]
assert (np.load('ours.npy') == t['layer/w']).all()
np.savez('plain.npz', **t)
np.savez_compressed('packed.npz', **t)
np.save('fortran.npy', np.asfortranarray(np.arange(24, dtype=np.float32).reshape(2, 3, 4)))
)");
  ASSERT_EQ(std::system(("cd '" + folder.path().string() + "' && python3 script.py").c_str()), 0);
  EXPECT_EQ(read_npz(folder / "plain.npz"), sample_arrays());
  EXPECT_EQ(read_npz(folder / "packed.npz"), sample_arrays());
  HostTensor read = read_npy(folder / "fortran.npy");
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(read.data<float>()[i], static_cast<float>(i));
}

}  // namespace
}  // namespace belfry::test
