// Texts of the generated kernels of batch norms and their gradients.
#pragma once

namespace belfry::batch_norm_texts {

/// What both directions have: tiles of rows and channels, the join of their sums; entries. Between them stands what is read beside x.
extern const char *const kTiles, *const kForward, *const kBackward, *const kEntries;

}  // namespace belfry::batch_norm_texts
