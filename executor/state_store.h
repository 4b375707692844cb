// The variables' bytes on the devices that hold them: shared by all programs of a session, so that each variable lies there once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <belfry/executor/device/device.h>
#include <belfry/graph/shape.h>

namespace belfry {

class StateStore {
 public:
  struct Held {
    LocalType type;
    std::shared_ptr<Device> device;  ///< null: the host's memory
    Arena arena;
    std::int64_t version = 0;  ///< the session's count of changes; 0: nothing was written yet
  };

  /// The buffer of a variable on a device, made by the first who asks, in the memory of that device if it is among
  /// `devices`, else the host's. UserError if it is there with another type.
  Held& held(const std::string& variable, const std::string& device, const LocalType& type, const Devices& devices);
  /// A buffer of the variable with that version; null if there is none.
  Held* find(const std::string& variable, std::int64_t version);

 private:
  std::map<std::pair<std::string, std::string>, Held> held_;  // variable, device
};

}  // namespace belfry
