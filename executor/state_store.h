// The variables' bytes on the devices that hold them: shared by all programs of a session, so that each variable lies there once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <belfry/executor/device/device.h>
#include <belfry/graph/plan/bound_plan.h>
#include <belfry/graph/shape.h>

namespace belfry {

class StateStore {
 public:
  struct Held {
    LocalType type;            ///< of a range: one dimension
    std::int64_t first = 0;    ///< element of the variable with which it begins
    std::shared_ptr<Device> device;  ///< null: the host's memory
    Arena arena;
    std::int64_t version = 0;  ///< the session's count of changes; 0: nothing was written yet
  };

  std::int64_t changes = 0;    ///< grows where a value is written: what was made of others before is made anew

  struct Wanted {
    std::string variable, device;
    StateBuffer planned;
  };
  /// Makes those buffers of variables, or of ranges of their elements, that are not there yet, in the memory of their device if it
  /// is among `devices`, else the host's: one allocation a device.
  void make(const std::vector<Wanted>& wanted, const Devices& devices);
  /// One that was made.
  Held& held(const Wanted& wanted);
  /// Copies bytes [first, first + bytes) of a variable from the buffers that have that version to a device, or the host (null).
  /// False, and nothing useful is there, if they do not hold them all.
  bool copy_to(const std::string& variable, std::int64_t version, std::int64_t first, std::int64_t bytes, std::byte* to, Device* device) const;

 private:
  using Key = std::tuple<std::string, std::string, std::int64_t, std::int64_t>;  // variable, device, first element, elements
  static Key key_of(const Wanted& wanted);
  std::map<Key, Held> held_;
};

}  // namespace belfry
