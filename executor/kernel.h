// The kernel interface: accept or refuse with a reason; prepare once; then only launch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <belfry/executor/join_request.h>
#include <belfry/executor/leeway.h>
#include <belfry/graph/contexts.h>
#include <belfry/graph/fusion_group.h>

namespace belfry {

class Queue;

/// One node on one share: all that a kernel may know.
struct KernelRequest {
  std::string op = {};                         ///< of a fused node: its kind
  const OpDef* def = nullptr;                  ///< null for fused nodes
  const Attributes* attributes = nullptr;
  std::vector<const Node*> members = {};       ///< of a fused node, in order
  std::vector<std::vector<std::string>> inner = {}; ///< per member and input: the member that makes it, "" if it comes from outside
  std::vector<std::vector<std::ptrdiff_t>> places = {}; ///< per member and output: which of the outputs it is; -1: it stays inside
  std::vector<LocalType> inputs = {}, outputs = {};
  std::vector<TensorType> output_types = {}, input_types = {};  ///< with their symbols; inputs' of a fused node alone
  std::vector<bool> wanted = {};               ///< outputs that somebody reads
  int threads = 1;
  Share share = {};
  const JoinRequest* join = nullptr;           ///< of an aggregate: its inputs are the parts, of one type
  std::string engine = {};                     ///< that the plan names; empty: the kernel takes the first that fits
};

struct Support {
  bool ok = true;
  std::string reason = {};                     ///< why not
  std::int64_t scratch_bytes = 0;
  bool in_place = true;                        ///< may write over the inputs that the op allows
};
inline Support refuse(std::string reason) { return {false, std::move(reason), 0, false}; }
/// Addresses of one launch; fixed per program. A null input was left out, a null output is read by nobody.
struct Arguments {
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  std::byte* scratch = nullptr;
  void* stream = nullptr;                      ///< of a device that works by itself: what to launch on (a CUstream). Null: compute here and now
  Queue* queue = nullptr;                      ///< the same as structural nodes use it
  template <class T>
  const T* in(std::size_t i) const { return reinterpret_cast<const T*>(inputs[i]); }
  template <class T>
  T* out(std::size_t i) const { return reinterpret_cast<T*>(outputs[i]); }
};

class Prepared {
 public:
  virtual ~Prepared() = default;
  virtual void launch(const Arguments& arguments) = 0;
  virtual bool capturable() const { return true; }  ///< launches the same each time: on a GPU's stream it may be recorded once
};

/// A kernel made of a function: what most of them are.
template <class F>
std::unique_ptr<Prepared> prepared(F f) {
  struct Function : Prepared {
    explicit Function(F f) : call(std::move(f)) {}
    void launch(const Arguments& a) override { call(a); }
    F call;
  };
  return std::make_unique<Function>(std::move(f));
}

struct Kernel {
  std::string name;                            ///< as it stands in plans: "onednn_conv2d"
  std::string op;
  std::function<Support(const KernelRequest&)> supports;
  std::function<std::unique_ptr<Prepared>(const KernelRequest&)> prepare;  ///< called on the thread that launches it
  /// Of a fused kind: the ops that it computes as one, each reading the one before. It refuses other members. Empty: it looks at them itself.
  std::vector<std::string> members = {};
  bool halves = false;                         ///< of an op that computes: takes f16 and bf16 as they are
  bool keeps = false;                          ///< of a fused kind: gives first outputs of members before the last where they are kept
  /// Engines of a library for the device of this thread, best first, each with the scratch that `supports` says where the request names it. A plan names one behind the kernel: "cudnn_conv2d@eng34{k2=4}". Empty: the kernel has none.
  std::function<std::vector<std::string>(const KernelRequest&)> engines = {};
  Leeway leeway = {};                          ///< that it takes: chosen only where that is left to it
};

/// What a plan gives a launch.
struct Granted {
  std::int64_t scratch_bytes = 0;
  bool in_place = false;                       ///< an output lies over an input
};
/// The kernels of one kind of device: per op in order, best first. References are last and need no entry.
class KernelTable {
 public:
  void add(Kernel kernel) { kernels_.push_back(std::move(kernel)); }
  /// The first that accepts and whose leeway is covered, else the reference. `reasons` (if given) gets why the others refused.
  struct Choice { std::string name; Support support; };
  Choice choose(const KernelRequest& request, std::vector<std::string>* reasons = nullptr, const Leeway& leeway = {}) const;
  /// What the kernel of that name says to the request. UserError where there is none for the op.
  Support support(const std::string& name, const KernelRequest& request) const;
  /// UserError where no kernel of that name is there for the op, or it refuses, or wants more than it is granted.
  std::unique_ptr<Prepared> prepare(const std::string& name, const KernelRequest& request, const Granted& granted = {}) const;
  const std::vector<Kernel>& all() const { return kernels_; }
  /// Of the kernel of that name; none where it has none.
  std::vector<std::string> engines(const std::string& name, const KernelRequest& request) const;
  /// Once a thread has prepared what it launches on its current device: waits for code that is compiled meanwhile.
  std::function<void()> finish = [] {};

 private:
  const Kernel& named(const std::string& name, const std::string& op) const;
  std::vector<Kernel> kernels_;
};

/// Members of a fused node, with where their inputs come from and which of its outputs they make.
void describe_members(const Graph& graph, const FusionGroup& group, KernelRequest& request);
/// Of what a member makes: it lies as an output of its shape does, else a symbol stands for as much as along the same axis of an output or input, else of any axis. Who chooses kernels knows no share.
LocalType inner_type(const KernelRequest& request, const TensorType& type);

inline constexpr const char* kReferenceKernel = "reference";

}  // namespace belfry
