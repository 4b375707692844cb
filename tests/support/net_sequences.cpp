#include "net_sequences.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/kernel_chooser.h>
#include <belfry/frontends/session/library.h>
#include <belfry/ops/cuda/gemm_internal.h>
#include <belfry/ops/fusions.h>
#include <belfry/ops/passes/passes.h>

#include "plans.h"

namespace belfry::test {

using namespace cudnn;

namespace {

std::string attributes_of(const KernelRequest& r) {
  std::string out;
  for (const char* name : {"strides", "padding", "groups", "window"})
    if (const AttributeValue* v = (r.members.empty() ? r.attributes : &r.members[0]->attributes)->find(name); v && to_string(*v) != "1" && to_string(*v) != "[1, 1]")
      out += fmt::format(" {} {}", name, to_string(*v));
  return out;
}

/// A kernel that notes what it is asked for, and takes it.
Kernel noting(const SequenceKernel& k, SequencesOfNet& out) {
  auto supports = [k, &out](const KernelRequest& r) {
    std::string why = objection(r);
    Sequence sequence = why.empty() ? k.sequence(r) : none(why);
    if (!sequence.refusal.empty()) {
      ++out.refused[fmt::format("{}: {}", r.op, sequence.refusal)];
      return refuse(sequence.refusal);
    }
    std::string what = r.op;
    for (const LocalType& t : r.inputs) what += " " + to_string(t);
    what += attributes_of(r);
    NetSequence& f = out.forms[what];
    f.what = what;
    f.sequence = sequence;
    ++f.nodes;
    return Support{true, {}, sequence.scratch_bytes(), false};
  };
  return {k.name, k.op, supports, nullptr};
}

}  // namespace

SequencesOfNet sequences_of(const std::string& net, DType precision) {
  SequencesOfNet out;
  KernelTable table;
  for (auto room : {attention_sequences, avg_pool2d_sequences, batch_norm_sequences, conv2d_sequences, max_pool2d_sequences, packed_attention_sequences})
    for (const SequenceKernel& k : room()) table.add(noting(k, out));
  table.add({"cublas_lt_matmul", "matmul", [&out](const KernelRequest& r) {
               Gemm g = gemm_of(r);
               ++out.refused[g.refusal.empty() ? fmt::format("matmul: in {} launches", g.parts.size()) : "matmul: refused, " + g.refusal];
               return Support{g.refusal.empty(), g.refusal, 0, false};
             }, {}});
  belfry::Graph source = net_named(net).build(standard_library()->ops, {});
  source.precision = precision;
  auto graph = std::make_shared<const belfry::Graph>(run_passes(training_passes(), source));
  auto choose = chooser({{"cpu", table}});
  for (const Strategy& s : {to_strategy(Single{.device = sims(1)[0], .threads = 1}), to_strategy(Towers{.devices = sims(2), .variables = cpu(0), .towers = 2, .threads = 1})})
    place(graph, s, sim_cluster(2), 32, {.kernels = choose, .groups = find_gpu_groups});
  return out;
}

}  // namespace belfry::test
