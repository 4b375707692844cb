// A net to be cut over devices: what each node costs on each kind of device, what moving its output costs, what must be together.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace belfry {

struct CutNode {
  std::string name;
  std::vector<double> seconds;  ///< per kind of device; infinite where it cannot be
  double bytes = 0;             ///< of memory, on whichever device it is
  double transfer = 0;          ///< seconds that moving its output takes: its device pays them once, as does each other device that reads it
  int together = -1;            ///< nodes of one class are on one device; -1: of none
  bool backward = false;
  std::int64_t id = -1;         ///< its number in a file, where it came from one
};

/// Devices that are alike.
struct CutKind {
  std::string name;
  int count = 1;
  double memory = std::numeric_limits<double>::infinity();  ///< bytes of each
  bool pays = true;             ///< for transfers
};

/// max_load: the busiest device's seconds, which is a pipeline's time per batch. latency: from the first start to the last end
/// of one batch, where each device runs its forward part in one go, and its backward part too.
enum class CutObjective : std::uint8_t { max_load, latency };
std::string to_string(CutObjective objective);
/// UserError for another name.
CutObjective parse_cut_objective(const std::string& text);

struct CutProblem {
  std::vector<CutNode> nodes;
  std::vector<std::pair<int, int>> edges;  ///< from a node to one that reads it
  std::vector<CutKind> kinds;
  CutObjective objective = CutObjective::max_load;

  int devices() const;
  /// Devices are numbered kind by kind.
  int kind_of(int device) const;
};

/// A split into parts, one per device, that can be ordered so that forward edges go from earlier parts to later ones.
struct Cut {
  std::vector<int> device;      ///< per node
  double value = 0;             ///< seconds
  double bound = 0;             ///< no such split is better: proved
  bool optimal() const { return value <= bound * (1 + 1e-8); }
};

}  // namespace belfry
