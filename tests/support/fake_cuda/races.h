// Which steps happen before which, by vector clocks, and who read and wrote the bytes of every block last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fake_cuda.h"

namespace fake_cuda {

/// How far each strand was seen. Strands are streams, the streams of a graph's capture once per stream that it is launched on, and the host (0).
using Clock = std::vector<std::uint64_t>;
void join(Clock& to, const Clock& from);
int new_strand();
/// Of a node that was captured on one strand and is launched on another.
int strand_of(int launched, int captured);

/// What a step reads and writes.
struct Access {
  std::string name = {};
  std::vector<Touched> ranges = {};
  bool kernel = false;  ///< it reaches what its GPU and its peers hold; a copy goes anywhere
};
/// What the next step that this thread queues was said to touch.
Access take_declared();

/// A step of a strand begins: its clock goes on, and its bytes are compared with what others did to them that does not happen before.
void begin_step(Clock& clock, int strand, const Access& access);
/// The host has seen all that the clock has.
void host_saw(const Clock& clock);
const Clock& host_clock();

/// Bytes that are new, or no more.
void forget(std::uintptr_t at, std::size_t bytes);
void forget_races();

}  // namespace fake_cuda
