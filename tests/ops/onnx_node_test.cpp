// ONNX's own tests of its operators: what of them can be built here gives the results of the suite, by the references and by the CPU's kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <set>

#include <belfry/frontends/session/session.h>
#include <belfry/graph/passes/pass.h>

#include "interpreter.h"
#include "onnx_rows.h"

namespace belfry::test {
namespace {

using onnx::LeftOut;

const std::filesystem::path kFolder = std::filesystem::path(BELFRY_SHARED) / "data/onnx";

/// "" where every output is ONNX's; indices may be narrower integers.
std::string difference_of(const HostTensor& got, const HostTensor& wanted) {
  if (got.shape() != wanted.shape()) return "shape " + to_string(std::span(got.shape())) + ", not " + to_string(std::span(wanted.shape()));
  bool alike = got.dtype() == wanted.dtype() || (got.dtype() == i32 && wanted.dtype() == i64);
  if (!alike) return std::string(name_of(got.dtype())) + ", not " + std::string(name_of(wanted.dtype()));
  HostTensor a = converted(got, f64), b = converted(wanted, f64);
  for (std::size_t i = 0; i < a.data<double>().size(); ++i) {
    double x = a.data<double>()[i], y = b.data<double>()[i];
    bool near = x == y || std::abs(x - y) <= 1e-6 + 1e-5 * std::abs(y) || (std::isnan(x) && std::isnan(y));
    if (!near) return "element " + std::to_string(i) + " is " + std::to_string(x) + ", not " + std::to_string(y);
  }
  return {};
}

/// Builds every node of the model in order; gives the values of the model's outputs.
std::vector<Value> build(const onnx::Model& model, const std::vector<HostTensor>& inputs, onnx::Translation& t) {
  t.opset = model.opset;
  for (const auto& [name, tensor] : model.initializers) t.slots[name].tensor = tensor;
  if (inputs.size() != model.inputs.size()) throw UserError("the case has not as many inputs as its model");
  for (std::size_t i = 0; i < inputs.size(); ++i) t.slots[model.inputs[i]].tensor = inputs[i];
  for (const onnx::Node& node : model.nodes) {
    onnx::Case c(t, node);
    if (node.op == "Constant") {
      t.slots[node.outputs.at(0)].tensor = node.attributes.at("value").tensor;
      continue;
    }
    onnx::Builds builds = onnx::builder_of(node.op);
    if (!builds) throw LeftOut{"op missing", node.op};
    onnx::Outputs outputs = builds(c);
    if (outputs.size() != node.outputs.size()) throw UserError(std::to_string(outputs.size()) + " outputs of " + node.op + ", not " + std::to_string(node.outputs.size()));
    for (std::size_t k = 0; k < outputs.size(); ++k) t.slots[node.outputs[k]].value = outputs[k];
  }
  std::vector<Value> out;
  for (const std::string& name : model.outputs) out.push_back(t.slots.at(name).value);
  return out;
}

/// How many nodes compute: sources and what only moves or names elements are not counted.
std::size_t computing_nodes(const Graph& graph) {
  const std::set<std::string_view> idle = {"input", "variable", "constant", "identity", "transpose", "reshape"};
  return static_cast<std::size_t>(std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) { return !idle.contains(n.op->name); }));
}

/// What is wrong by the references or by the CPU's kernels, and of how many nodes the case is made; throws LeftOut.
std::string run_case(const std::filesystem::path& folder, std::size_t& nodes) {
  std::filesystem::path data = folder / "test_data_set_0";
  std::vector<HostTensor> wanted = onnx::tensors_of(data, "output");
  onnx::Translation t;
  std::vector<Value> outputs = build(onnx::model_of(folder / "model.onnx"), onnx::tensors_of(data, "input"), t);
  if (outputs.size() != wanted.size() || wanted.empty()) return std::to_string(outputs.size()) + " outputs, not " + std::to_string(wanted.size());
  std::vector<std::string> names;
  for (Value& y : outputs) {
    t.builder.output(y);
    names.push_back(y.name());
  }
  Graph graph = t.training ? t.builder.graph() : for_inference(t.builder.graph(), names);
  nodes = computing_nodes(graph);
  std::vector<std::pair<std::string, ValueId>> fetches;
  for (const std::string& name : names) fetches.emplace_back(name, graph.at(name));
  Tensors by_references = run_whole(graph, t.feeds, {}, 1, fetches).fetched;
  Session session(std::move(t.builder).build());
  Results by_kernels = t.training ? session.run(t.feeds, names) : session.predict(t.feeds, names);
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    if (std::string bad = difference_of(by_references.at(names[k]), wanted[k]); !bad.empty()) return "by references, output " + std::to_string(k) + ": " + bad;
    if (std::string bad = difference_of(by_kernels[names[k]], wanted[k]); !bad.empty()) return "by kernels, output " + std::to_string(k) + ": " + bad;
  }
  return {};
}

/// Runs the cases of a folder and says how many there are of each end; those left out are the ones named, each for a reason of its kind.
void run_suite(const std::string& suite, const std::map<std::string, std::string>& expected_out) {
  if (!std::filesystem::exists(kFolder / suite)) GTEST_SKIP() << "ONNX's tests are not beside the source tree";
  std::set<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder / suite)) folders.insert(entry.path());
  std::map<std::string, std::string> left_out;
  std::map<std::string, std::vector<std::string>> reasons;
  std::map<std::size_t, std::size_t> passed_by_nodes;
  std::size_t failed = 0, missing = 0;
  for (const auto& folder : folders) {
    std::string name = folder.filename().string(), wrong;
    auto leave_out = [&](const std::string& kind, const std::string& reason) {
      left_out[name] = kind;
      reasons[kind + ": " + reason].push_back(name);
      missing += kind == "op missing";
    };
    try {
      std::size_t nodes = 0;
      wrong = run_case(folder, nodes);
      passed_by_nodes[std::min<std::size_t>(nodes, 4)] += wrong.empty();
    } catch (const LeftOut& l) {
      leave_out(l.kind, l.reason);
    } catch (const onnx::UnknownDType& e) {
      leave_out("dtype not computed", e.what());
    } catch (const std::exception& e) {
      wrong = e.what();
    }
    failed += !wrong.empty();
    EXPECT_EQ(wrong, "") << name;
  }
  EXPECT_EQ(left_out, expected_out);
  std::cout << suite << ": of " << folders.size() - missing << " cases whose op exists here " << folders.size() - left_out.size() - failed << " pass, " << failed << " fail, "
            << left_out.size() - missing << " are left out; " << missing << " more are of ops that do not exist here\n"
            << "  those that pass, by the number of nodes that compute:";
  for (const auto& [nodes, count] : passed_by_nodes) std::cout << " " << (nodes < 4 ? std::to_string(nodes) : "more") << ": " << count;
  std::cout << "\n";
  for (const auto& [reason, names] : reasons) {
    std::cout << "  " << names.size() << ", " << reason << ":";
    for (const std::string& n : names) std::cout << " " << n;
    std::cout << "\n";
  }
}

TEST(OnnxNodes, of_single_operators_give_the_results_of_the_suite) {
  run_suite("node", {{"test_training_dropout", "feature missing"},
                     {"test_training_dropout_default", "feature missing"},
                     {"test_training_dropout_default_mask", "feature missing"},
                     {"test_training_dropout_mask", "feature missing"}});
}

TEST(OnnxNodes, of_models_converted_from_pytorch_give_the_results_of_the_suite) { run_suite("pytorch-converted", {}); }

}  // namespace
}  // namespace belfry::test
