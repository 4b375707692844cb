// Lower bounds of cuts by load: what all devices together can do, and what the cheapest cuts cost.
#pragma once

#include <vector>

#include <belfry/placer/cut/items_internal.h>

namespace belfry::cutting {

/// A device of kind k that works `cap` seconds does at most weight(k) · cap of `work`. Weights are chosen for a high bound.
class WeightedWork {
 public:
  WeightedWork(const Items& items, const std::vector<CutKind>& kinds);

  double work(int item) const { return work_[static_cast<std::size_t>(item)]; }
  double all() const { return all_; }
  double weight(std::size_t kind) const { return weight_[kind]; }
  /// No split has a smaller load: all work over all devices, and the longest item by itself.
  double least() const { return least_; }

 protected:
  const Items& items_;
  const std::vector<CutKind>& kinds_;
  std::vector<double> weight_, work_;
  double all_ = 0, least_ = 0, whole_ = 0;

 private:
  void choose_weights(const std::vector<CutKind>& kinds);
};

/// With what must be before and behind each item.
class Bounds : public WeightedWork {
 public:
  Bounds(const Items& items, const std::vector<CutKind>& kinds);

  /// Per item, the work of all that must be on no earlier device, itself among it; empty where there are too many items.
  const std::vector<double>& below() const { return below_; }
  /// Sets what `ahead` gives for splits of this load or less.
  void set_cap(double cap);
  /// Whether they can exist.
  bool possible() const;
  /// Work that must still be paid for transfers where so many devices that pay have had their part and moving over the cut
  /// costs `crossing`; `others`: devices that do not pay are left too.
  double ahead(int paid, double crossing, bool others) const;

 private:
  void reach();
  /// The least that is paid at one end of the cut behind `paid` paying devices.
  double cheapest_cut(int paid) const;

  double cap_ = 0;
  int paying_ = 0;
  double lightest_ = kInfinity;               ///< weight of a device that pays
  std::vector<double> above_, below_;         ///< per item, work of what must be on no later device, and on no earlier one; both with itself
  std::vector<std::pair<double, double>> windows_;  ///< per number of paying devices before a cut: work before it, at least and at most
  std::vector<int> only_;                     ///< per value, the one window in which it can cross a cut; -1: none or several
  std::vector<double> cheapest_, rest_;       ///< per cut; and both ends of all later ones
};

}  // namespace belfry::cutting
