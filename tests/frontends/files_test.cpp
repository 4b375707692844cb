#include <gtest/gtest.h>

#include <filesystem>

#include <unistd.h>

#include <belfry/frontends/files/files.h>

#include "says.h"

namespace belfry {
namespace {

using test::message_of;
using test::says;

class Files : public testing::Test {
 protected:
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

TEST_F(Files, a_full_disk_is_told) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  EXPECT_NE(message_of([&] { write_file("/dev/full", "x"); }).find("No space left on device; make room"), std::string::npos);
}

}  // namespace
}  // namespace belfry
