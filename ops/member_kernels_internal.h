// A fused kind by the kernels of its members, one after the other: for devices or forms that have no kernel for the whole.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <belfry/executor/kernel.h>

namespace belfry {

/// Whether the members are those of a tree: elementwise, of one shape.
bool of_one_shape(const KernelRequest& request);

/// Products that are added up (kMatmulAdd): of each the node, where its operands (a, then b) and its bias stand among the group's inputs; the same of what else is added.
struct ProductSum {
  struct Product {
    const Node* node;
    std::size_t a;
    std::ptrdiff_t bias = -1;
  };
  std::vector<Product> products;
  std::ptrdiff_t other = -1;
};
/// None where the members are not products, with a bias or without, and the sum of all of them, of one type.
std::optional<ProductSum> product_sum_of(const KernelRequest& request);

/// Each by the best kernel that `table` has for it. In a chain the first member writes the output and the others work on it in place; what
/// passes between members of another form lies in the scratch. `references`: a member without a kernel is computed by its reference, as on
/// the host; else the whole is refused. No `members`: kElementwise, a tree, kWithElementwise, one with another node, or kMatmulAdd, of whatever members.
Kernel in_turn(std::string kind, std::vector<std::string> members, const std::shared_ptr<const KernelTable>& table, bool references);

}  // namespace belfry
