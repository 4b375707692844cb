// What `belfry predict` is fed: tensors by name, or pictures for the one input that takes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <belfry/frontends/data/data_set.h>
#include <belfry/frontends/data/pictures.h>
#include <belfry/graph/graph.h>

namespace belfry {

/// Whether its first axis is that of the batch.
bool rows_first(const Graph& g, const TensorType& t);

/// UserError, in the words of files, where a tensor of this shape, which was `given` so, does not fit the input: a session's are of C++.
void refuse_shape(const Graph& g, const std::string& input, const Extents& shape, const LocalType& given, const std::string& file);

class PredictRows {
 public:
  /// `inputs`: those that are read. Arrays are brought to what these take, bytes in the place of pictures by `pixels`; an array alone goes into an input alone,
  /// whatever its name, and a table's `features` into the order of these, where there are any. UserError for pictures beside arrays, and where no input or several could take them.
  PredictRows(const Graph& graph, const std::vector<std::string>& inputs, const std::vector<std::string>& files, const std::optional<Pixels>& pixels,
              const std::vector<std::string>& features = {});

  /// 0 where no feed has rows.
  std::int64_t count() const { return photos_.empty() ? rows_.rows() : static_cast<std::int64_t>(photos_.size()); }
  std::map<std::string, HostTensor> feeds(std::int64_t first, std::int64_t count) const;
  bool photos() const { return !photos_.empty(); }
  /// A file, or "row 3".
  std::string name(std::int64_t row) const;

 private:
  void take_tensors(const Graph& graph, const std::vector<std::string>& inputs, const std::vector<std::string>& files, const std::optional<Pixels>& pixels, const std::vector<std::string>& features);

  DataSet rows_;
  std::map<std::string, HostTensor> whole_;     ///< the same for all rows
  std::vector<std::filesystem::path> photos_;   ///< in the place of rows_
  std::string input_;                           ///< that reads them
  PictureSize size_;
  Pixels pixels_;
};

}  // namespace belfry
