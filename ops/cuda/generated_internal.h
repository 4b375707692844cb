// A kernel's text with named arguments, and the launches that a node makes of it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <belfry/executor/kernel.h>
#include <belfry/ops/cuda/code_internal.h>

namespace belfry {

/// "float", "double", "int", "long long", "unsigned char", "bool", "f16", "bf16": types of the text.
std::string type_text(DType dtype);
/// An unsigned type of a size of 1, 2, 4, 8 or 16 bytes: elements that are only moved.
std::string word_text(std::int64_t bytes);
/// Blocks of 256 threads for so many items, each taking items that are a grid apart.
Grid grid_for(std::int64_t items, int threads = 256);
inline std::int64_t up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

/// The text is a prelude (types, conversions, KERNEL, KERNEL_AHEAD, KERNEL_THREE), `struct Args {const void* in[]; void* out[]; void* scratch; …}`, then the body.
/// Sizes are arguments, so one text serves all shapes of a form.
class Generated {
 public:
  explicit Generated(const KernelRequest& r) : Generated(r.inputs.size(), r.outputs.size()) {}
  Generated(std::size_t inputs, std::size_t outputs) : inputs_(inputs), outputs_(outputs) {}

  Generated& type(const std::string& name, const std::string& text) { return head("typedef " + text + " " + name + ";"); }
  Generated& type(const std::string& name, DType dtype) { return type(name, type_text(dtype)); }
  Generated& head(const std::string& line) { head_ += line + "\n"; return *this; }
  /// Of what several parts of a text need.
  Generated& head_once(const std::string& text) { return head_.find(text) == head_.npos ? head(text) : *this; }
  /// Arguments a.NAME: a long long, a double.
  Generated& number(const std::string& name, std::int64_t value);
  Generated& real(const std::string& name, double value);
  Generated& body(const std::string& text) { body_ += text; return *this; }
  /// Entries, which stand behind the body.
  Generated& entries(const std::string& text) { entries_ += text; return *this; }
  /// a.lines, a.n and a.inner of lines along an axis, the text kAcross, and the grid: a thread per line where lines lie side by side, else a warp, or a block beyond `of_warp` elements.
  Grid lines(std::int64_t outer, std::int64_t n, std::int64_t inner, std::int64_t of_warp = 1024);
  /// Launches in order; none of an empty grid.
  Generated& launch(const std::string& entry, Grid grid) { return launch(entry, grid, {}, entry, grid); }
  /// `narrow` instead where one of these pointers (inputs, then outputs) is not a multiple of 16.
  Generated& launch(const std::string& entry, Grid grid, std::vector<std::size_t> aligned, const std::string& narrow, Grid narrow_grid);
  /// The body's `pass`(a, block, blocks) of so many blocks is all that the node asks for: several nodes can be one launch.
  Generated& joint(const std::string& pass, std::int64_t blocks);
  /// No launch where output 0 lies on input 0.
  Generated& unless_same() { unless_same_ = true; return *this; }

  /// The text may call fault(a.fault, position, index) for an index that is none. `says`: what the error is, of position and index.
  Generated& faults(std::function<std::string(std::int64_t position, const std::string& index)> says);

  std::string source() const;
  std::string joint_source() const;
  std::unique_ptr<Prepared> prepare(GpuCode& code) const;

 private:
  struct Step {
    std::string wide, narrow;
    Grid wide_grid, narrow_grid;
    std::vector<std::size_t> aligned;
  };
  std::string arguments() const;
  std::size_t words() const;

  std::size_t inputs_, outputs_;
  std::string head_, fields_, body_, entries_, pass_;
  std::int64_t joint_blocks_ = 0;
  std::vector<std::uint64_t> values_;
  std::vector<Step> steps_;
  bool unless_same_ = false;
  std::function<std::string(std::int64_t, const std::string&)> says_ = {};
  std::size_t fault_ = 0;  // of the values
};

/// One after the other.
std::unique_ptr<Prepared> in_sequence(std::vector<std::unique_ptr<Prepared>> parts);
/// Of one input, launched with input `i` of the node.
std::unique_ptr<Prepared> of_input(std::unique_ptr<Prepared> part, std::size_t i);

}  // namespace belfry
