// Where a library's workspace begins in the scratch that a plan gives.
#pragma once

#include <cstdint>

namespace belfry {

/// Of a workspace's address, in bytes: cuBLASLt asks for it. Plans align scratch less, so a kernel asks for so many bytes more.
inline constexpr std::int64_t kWorkspaceAlignment = 256;

/// The first address in the scratch that is aligned so; null where there is none.
template <class T>
T* workspace_in(T* scratch) {
  constexpr auto kLast = static_cast<std::uintptr_t>(kWorkspaceAlignment) - 1;
  return reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(scratch) + kLast) & ~kLast);
}

}  // namespace belfry
