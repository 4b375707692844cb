#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <belfry/frontends/files/files.h>
#include <belfry/frontends/files/sha256.h>
#include <belfry/frontends/files/utf8.h>

#include "says.h"

namespace belfry {
namespace {

using test::message_of;
using test::says;

struct Files : testing::Test {
  Files() : folder_(std::filesystem::path(testing::TempDir()) / ("belfry_files_" + std::to_string(::getpid()))) { std::filesystem::create_directories(folder_); }
  ~Files() override {
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
    std::filesystem::remove_all(folder_);
  }
  std::size_t count() const { return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {})); }
  std::filesystem::path folder_;
};

TEST_F(Files, a_written_file_reads_back_and_leaves_nothing_beside_it) {
  std::string path = folder_ / "plan.json", text("a\0b\n", 4);
  write_file(path, "old");
  write_file(path, text);
  EXPECT_EQ(read_file(path), text);
  EXPECT_EQ(count(), 1u);
}

TEST(Names, in_a_list_are_told_apart_and_not_long) {
  EXPECT_EQ(listed(std::vector<std::string>{"cat", "bird, small", "the \"emu\"", "a (b)", "\x1b[31mdog"}), "cat, \"bird, small\", \"the \\\"emu\\\"\", \"a (b)\", \\x1b[31mdog");
  EXPECT_EQ(listed(std::string(100'000, 'x')), std::string(80, 'x') + "…");
  EXPECT_EQ(shown_start("naïve", 3), "na…") << "no half of a character";
  EXPECT_EQ(shown_start("naïve", 4), "naï…");
  EXPECT_EQ(shown_start("naïve", 6), "naïve");
}

TEST_F(Files, what_stands_in_the_way_is_told) {
  EXPECT_NE(message_of([&] { write_file(folder_ / "no/plan.json", "x"); }).find("No such file or directory; make the folder '"), std::string::npos);
  EXPECT_NE(message_of([&] { read_file(folder_ / "none"); }).find("No such file"), std::string::npos);
  EXPECT_NE(message_of([&] { read_file(folder_); }).find("it is a folder"), std::string::npos);
  write_file(folder_ / "long", "12345");
  EXPECT_NE(message_of([&] { read_file(folder_ / "long", 4); }).find("its 5 bytes are more than the limit of 4"), std::string::npos);
  std::filesystem::create_directories(folder_ / "taken/inner");
  EXPECT_TRUE(says([&] { write_file(folder_ / "taken", "x"); }, {}));
  EXPECT_EQ(count(), 2u);
}

TEST_F(Files, a_folder_without_rights_is_refused) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  std::filesystem::permissions(folder_, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  EXPECT_NE(message_of([&] { write_file(folder_ / "x", "x"); }).find("choose a place where you have the rights"), std::string::npos);
}

TEST_F(Files, a_file_that_may_not_be_read_says_so) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  write_file(folder_ / "x", "x");
  std::filesystem::permissions(folder_ / "x", std::filesystem::perms::owner_write);
  EXPECT_TRUE(says([&] { read_file(folder_ / "x"); }, {"cannot read: Permission denied; chmod u+r opens it, or name another file"}));
}

TEST_F(Files, what_an_earlier_process_of_our_number_left_is_removed_and_our_own_is_not) {
  const std::string earlier = folder_ / ("a.partial-" + std::to_string(::getpid()) + "-1-0"), living = folder_ / "b.partial-1-1-0", own = folder_ / ("c" + partial_suffix() + "-0");
  for (const std::string& file : {earlier, living, own}) write_file(file, "x");
  remove_unfinished(folder_);
  EXPECT_FALSE(std::filesystem::exists(earlier));
  EXPECT_EQ(std::filesystem::exists(living), ::getpid() != 1);
  EXPECT_TRUE(std::filesystem::exists(own));
}

TEST_F(Files, a_locked_folder_has_one_descriptor_which_no_program_started_here_inherits) {
  if (!std::filesystem::exists("/proc/self/fd")) GTEST_SKIP() << "no /proc here";
  auto descriptors = [folder = std::filesystem::canonical(folder_)] {
    std::vector<int> out;
    std::error_code closed;  // the iterator's own is among them
    for (const auto& e : std::filesystem::directory_iterator("/proc/self/fd"))
      if (std::filesystem::read_symlink(e.path(), closed) == folder) out.push_back(std::stoi(e.path().filename().string()));
    return out;
  };
  {
    FolderLocks locks, others;
    locks.add(folder_ / "none");
    locks.add(folder_);
    locks.add(folder_ / ".");
    ASSERT_EQ(descriptors().size(), 1u);
    EXPECT_TRUE(::fcntl(descriptors()[0], F_GETFD) & FD_CLOEXEC);
    EXPECT_TRUE(says([&] { others.add(folder_); }, {folder_.string(), "another process trains into this folder"}));
    EXPECT_EQ(descriptors().size(), 1u) << "of one that was refused";
  }
  EXPECT_TRUE(descriptors().empty());
  FolderLocks later;
  EXPECT_EQ(message_of([&] { later.add(folder_); }), "(no error)");
}

TEST(Utf8, is_quoted_and_what_is_none_is_shown_by_its_bytes) {
  EXPECT_EQ(json_quoted("a\"\n\xc3\xa4"), "\"a\\\"\\n\xc3\xa4\"");
  EXPECT_EQ(printable("caf\xc3\xa9"), "caf\xc3\xa9");
  EXPECT_EQ(printable("caf\xe9"), "caf\\xe9");
  EXPECT_EQ(shown("a\x1b[31m\r\n\x7f"), "a\\x1b[31m\\x0d\\x0a\\x7f");
  EXPECT_EQ(shown("a\n\r", "\n"), "a\n\\x0d");
  // Cut short, a byte too long, half of a pair, beyond the last character, and a byte alone.
  for (const char* wrong : {"\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80"}) EXPECT_FALSE(json_quoted(wrong)) << printable(wrong);
}

TEST(Sha256, is_that_of_the_standard) {
  auto of = [](const std::string& text) { return sha256(std::as_bytes(std::span(text))); };
  EXPECT_EQ(of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(of(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // Where the length does not fit behind the text any more.
  EXPECT_EQ(of(std::string(55, 'a')), "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(of(std::string(56, 'a')), "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  EXPECT_EQ(of(std::string(64, 'a')), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

TEST_F(Files, a_full_disk_is_told) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  EXPECT_NE(message_of([&] { write_file("/dev/full", "x"); }).find("No space left on device; make room"), std::string::npos);
}

}  // namespace
}  // namespace belfry
