// Published data sets, fetched over the network with their checksums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace belfry {

struct PublishedFile {
  std::string name;
  std::int64_t bytes = 0;
  std::string sha256;             ///< hexadecimal digits
  std::vector<std::string> urls;  ///< of the file itself, tried in this order
  bool unpack = false;            ///< a .tar.gz: its files are laid beside it, without its own folder
};

struct PublishedSet {
  std::string name, about;
  std::vector<PublishedFile> files;
};

/// Those that are known by name: mnist, fashion_mnist, cifar10.
const std::vector<PublishedSet>& published_sets();

/// Puts the files into `dir`, which is made if need be; one that is there with its checksum is left alone. Each is fetched by the program curl into a
/// neighbour and renamed once size and checksum are right. `say` is told what is done. UserError with what each address said where a file cannot be had.
void fetch_data(const PublishedSet& set, const std::filesystem::path& dir, const std::function<void(const std::string&)>& say);

}  // namespace belfry
