// What a kernel reads and writes is told to the test: the host's compiler puts these calls there (-fsanitize=thread), and no library of its. Part of the shim. What is none of the kernel's is optimised: it is a good part of what many do.
#pragma once

#define UNSEEN __attribute__((no_sanitize("thread"), optimize("O2")))
UNSEEN static inline void host_touched(const volatile void* at, unsigned long bytes, int how) {
  if (belfry_thread.touched) belfry_thread.touched((const void*)at, bytes, how);
}
UNSEEN static inline void host_copies(int groups) {
  if (belfry_thread.copies) belfry_thread.copies(groups);
}
#define HOOK extern "C" __attribute__((visibility("hidden"))) UNSEEN
#define HOOKS(BYTES)                                                                    \
  HOOK void __tsan_read##BYTES(void* at) { host_touched(at, BYTES, 0); }                \
  HOOK void __tsan_write##BYTES(void* at) { host_touched(at, BYTES, 1); }               \
  HOOK void __tsan_unaligned_read##BYTES(void* at) { host_touched(at, BYTES, 0); }      \
  HOOK void __tsan_unaligned_write##BYTES(void* at) { host_touched(at, BYTES, 1); }     \
  HOOK void __tsan_volatile_read##BYTES(void* at) { host_touched(at, BYTES, 0); }       \
  HOOK void __tsan_volatile_write##BYTES(void* at) { host_touched(at, BYTES, 1); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
HOOK void __tsan_read_range(void* at, unsigned long bytes) { host_touched(at, bytes, 0); }
HOOK void __tsan_write_range(void* at, unsigned long bytes) { host_touched(at, bytes, 1); }
HOOK void __tsan_func_entry(void*) {}
HOOK void __tsan_func_exit() {}
HOOK void __tsan_init() {}
