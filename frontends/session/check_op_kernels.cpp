// Kernels of an op against its reference.
#include <belfry/frontends/session/check_op_internal.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace belfry {

namespace {

/// Output `first` on the bytes of input `second`; -1: all apart.
using Alias = std::pair<int, int>;
constexpr Alias kNoAlias{-1, -1};

struct Launched {
  std::vector<HostTensor> outputs;
  std::string overrun;  ///< what was written beyond; "" where all is well
};

/// One kernel on one request. Memory of a plan is reused: what lies in outputs and scratch before a launch is anything.
Launched launched(const KernelTable& table, const std::string& name, const KernelRequest& request, std::int64_t scratch_bytes, const OpCase& c, std::vector<HostTensor> inputs, Alias alias, std::byte fill) {
  std::vector<Guarded> memory;
  for (const LocalType& t : request.outputs) memory.emplace_back(t, 0, fill);
  Guarded scratch({u8, {scratch_bytes}}, 0, fill);
  Arguments a;
  for (std::size_t i = 0; i < inputs.size(); ++i) a.inputs.push_back(c.inputs[i].given ? inputs[i].raw() : nullptr);
  for (std::size_t k = 0; k < memory.size(); ++k) a.outputs.push_back(request.wanted[k] ? memory[k].data() : nullptr);
  a.scratch = scratch.data();
  if (alias != kNoAlias) a.outputs[static_cast<std::size_t>(alias.first)] = inputs[static_cast<std::size_t>(alias.second)].raw();
  table.prepare(name, request, {scratch_bytes, alias != kNoAlias})->launch(a);
  Launched out;
  for (std::size_t k = 0; k < memory.size(); ++k) {
    out.outputs.push_back(memory[k].tensor());
    if (memory[k].overrun()) out.overrun = output_of(*request.def, k);
  }
  if (scratch.overrun()) out.overrun = fmt::format("its {} bytes of scratch", scratch_bytes);
  if (alias != kNoAlias) out.outputs[static_cast<std::size_t>(alias.first)] = inputs[static_cast<std::size_t>(alias.second)];
  return out;
}

/// "" where the kernel gives what is wanted.
std::string objection_to_values(const OpDef& def, std::size_t k, const HostTensor& got, const HostTensor& wanted, double tolerance) {
  if (def.exact || !(is_float(got.dtype()) || is_half(got.dtype()))) {
    if (got == wanted) return "";
    return fmt::format("{} is not that of the reference, bit for bit as {} must be: {}", output_of(def, k), def.exact ? "an op that says exact" : "what is no float", difference_of(got, wanted));
  }
  const Farthest f = farthest(got, wanted);
  if (f.distance <= tolerance) return "";
  return fmt::format("element {} of {} is {:.9g}, and the reference gives {:.9g}; off by {:.2g}, and tolerance is {}", f.element, output_of(def, k), f.got, f.wanted, f.distance, tolerance);
}

KernelRequest request_for(const OpDef& def, const Attributes& attributes, const OpCase& c, const std::vector<HostTensor>& inputs, std::int64_t batch, int threads, bool all_read) {
  KernelRequest r;
  r.op = def.name;
  r.def = &def;
  r.attributes = &attributes;
  r.output_types = c.outputs;
  r.outputs = local_types(c.outputs, batch);
  for (const OutputDef& o : def.outputs) r.wanted.push_back(all_read || !o.optional);
  for (std::size_t i = 0; i < inputs.size(); ++i) r.inputs.push_back(c.inputs[i].given ? inputs[i].type() : LocalType{f32, {0}});
  r.threads = threads;
  r.share = whole_share(batch);
  return r;
}

}  // namespace

Objections objections_to_launches(const KernelTable& kernels, const OpDef& def, const OpCase& c, const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& wanted, std::int64_t batch, KernelRuns& runs) {
  Objections out;
  const Attributes attributes = checked(def.attributes, c.attributes, def.name);
  const bool optional = std::any_of(def.outputs.begin(), def.outputs.end(), [](const OutputDef& o) { return o.optional; });
  for (auto [threads, all_read] : {std::pair{1, true}, {2, true}, {optional ? 2 : 0, false}}) {
    if (threads == 0) continue;
    const KernelRequest r = request_for(def, attributes, c, inputs, batch, threads, all_read);
    for (const Kernel& k : kernels.all()) {
      if (k.op != def.name) continue;
      const std::string place = fmt::format("kernel '{}' with {} threads, batch {}: ", k.name, r.threads, batch);
      auto object = [&](std::string_view kind, std::string_view what) { out.push_back(objection(kind, def, c, place + std::string(what))); };
      const Support s = k.supports(r);
      if (!s.ok) {
        if (s.reason.empty()) object("kernel", "it refuses without a reason; give one to refuse(…)");
        continue;
      }
      std::vector<Alias> aliases = {kNoAlias};
      if (s.in_place)
        for (Alias a : def.in_place)
          if (static_cast<std::size_t>(a.second) < inputs.size() && c.inputs[static_cast<std::size_t>(a.second)].given && inputs[static_cast<std::size_t>(a.second)].type() == r.outputs[static_cast<std::size_t>(a.first)]) aliases.push_back(a);
      for (Alias alias : aliases) {
        const Launched got = launched(kernels, k.name, r, s.scratch_bytes, c, inputs, alias, std::byte{0xA5}), again = alias == kNoAlias ? launched(kernels, k.name, r, s.scratch_bytes, c, inputs, alias, std::byte{0x5A}) : got;
        const std::string over = alias == kNoAlias ? "" : fmt::format(" ({} on the bytes of {})", output_of(def, static_cast<std::size_t>(alias.first)), input_of(def, static_cast<std::size_t>(alias.second)));
        if (!got.overrun.empty()) object("kernel", fmt::format("it writes beyond {}{}", got.overrun, over));
        for (std::size_t o = 0; o < got.outputs.size(); ++o) {
          if (!r.wanted[o] || (wanted[o].bytes().empty() && !got.outputs[o].bytes().empty())) continue;
          if (std::string what = objection_to_values(def, o, got.outputs[o], wanted[o], c.tolerance); !what.empty()) object("kernel", what + over);
          else if (got.outputs[o] != again.outputs[o])
            object("bits", fmt::format("of {} it gives other bits the second time: {}; it must depend on its inputs alone, and write all of its outputs", output_of(def, o), difference_of(again.outputs[o], got.outputs[o])));
        }
        ++runs[k.name];
      }
    }
  }
  return out;
}

Objections objections_to_kernels(const KernelTable& kernels, const OpUnderCheck& op, const OpCase& given, KernelRuns& runs) {
  Objections out;
  if (!given.no_reference.empty()) return out;
  for (const OpCase& c : versions(op, given))
    for (std::int64_t batch : {1, 3, 8}) {
      const std::vector<HostTensor> inputs = draw_all(c, batch, false, 23);
      Objections found = objections_to_launches(kernels, op.def, c, inputs, run_op(op.def, c, inputs, batch), batch, runs);
      out.insert(out.end(), found.begin(), found.end());
    }
  return out;
}

}  // namespace belfry
