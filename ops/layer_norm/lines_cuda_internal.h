// What the generated kernels of layer_norm, group_norm and their gradients share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <belfry/ops/cuda/generated_internal.h>
#include <belfry/ops/layer_norm/formulas.h>

namespace belfry {

/// Moments of a group are taken by a warp or a block, in the type of x (f32 for halves).
struct NormLines : NormLayout {
  explicit NormLines(const KernelRequest& r) : NormLayout(*r.attributes, r.inputs[0].shape), rms(r.attributes->find("rms") && r.attributes->flag("rms")), rows(examples * places) {}
  bool rms;
  std::int64_t rows;
};

/// Halves are computed in f32, which moments and parameters beside them are.
inline DType computed_in(DType type) { return is_half(type) ? f32 : type; }

/// A row that is a group lies in the registers of its warp or block, up to 128 bytes a thread, in packs of 16 bytes where it is whole ones, of a narrower `other` less.
struct KeptLines {
  KeptLines(const NormLines& n, DType type, DType other, std::int64_t widest = 1024) : of_warp(widest), pack{16 / static_cast<std::int64_t>(std::max(size_of(type), size_of(other)))} {
    if (n.width % pack != 0) pack = 1;
    const std::int64_t threads = n.width <= of_warp ? 32 : 256;
    packs = up(n.width, threads * pack);
    full = n.width % (threads * pack) == 0;
    whole = n.places == 1 && n.groups == 1 && packs > 0 && bytes(type) <= 128;
  }
  std::int64_t bytes(DType type) const { return packs * pack * static_cast<std::int64_t>(size_of(computed_in(type))); }

  std::int64_t of_warp;  ///< what rows of more elements are a block's
  std::int64_t pack, packs;
  bool full;   ///< every thread has as many
  bool whole;  ///< the row is kept
};

/// What both directions begin with, and the grid of all lines. T is x's type, U that of y or dy.
Grid begin_norm(Generated& g, const KernelRequest& r, const NormLines& n, const KeptLines& kept, DType other, std::size_t gamma);
/// A launch of `text`, a template that reads these inputs, where they are given, and writes these outputs in packs, or does not.
void launch_rows(Generated& g, const KernelRequest& r, const char* text, const KeptLines& kept, Grid grid, std::vector<std::size_t> in_packs, const std::vector<std::size_t>& written = {0});

/// Of gradients: the sums of columns alone, the join of pieces, rows that are kept, lines that are not.
namespace norm_gradient_texts {
extern const char *const kColumns, *const kJoin, *const kGradientRows, *const kGradient;
}

std::vector<Kernel> norm_gradients_cuda(const GpuCodeRef& code);

}  // namespace belfry
