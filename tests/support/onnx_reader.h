// Just enough of ONNX's protobuf to read a test case: a model of nodes with their attributes, and tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <belfry/graph/host_tensor.h>

namespace belfry::test::onnx {

/// A tensor of a dtype that does not exist here.
struct UnknownDType : UserError {
  using UserError::UserError;
};

struct Attribute {
  float real = 0;
  std::int64_t integer = 0;
  std::string text;
  std::vector<std::int64_t> integers;
  std::optional<HostTensor> tensor;
};

struct Node {
  std::string op;
  std::vector<std::string> inputs, outputs;  ///< "" for one that is left out
  std::map<std::string, Attribute> attributes;
};

struct Model {
  std::int64_t opset = 0;
  std::vector<Node> nodes;                          ///< in order
  std::vector<std::string> inputs, outputs;         ///< of the graph; inputs without those that have a tensor
  std::map<std::string, HostTensor> initializers;
};

/// UserError for what is no such file, here and below.
Model model_of(const std::filesystem::path& file);

/// "input_0.pb", "input_1.pb", … of a folder, as many as there are.
std::vector<HostTensor> tensors_of(const std::filesystem::path& folder, const std::string& kind);

}  // namespace belfry::test::onnx
