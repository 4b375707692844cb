// A function of the host that writes down when it ran, for streams and graphs.
#pragma once

#include <vector>

namespace belfry::test {

/// What it writes, and where to.
struct Note {
  std::vector<int>* order;
  int number;
  static void write(void* data) {
    auto* note = static_cast<Note*>(data);
    note->order->push_back(note->number);
  }
};

}  // namespace belfry::test
