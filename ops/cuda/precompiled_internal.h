// What nearly every file of GPU kernels includes, compiled once.
#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include <fmt/format.h>

#include <belfry/ops/cuda/elementwise_internal.h>
#include <belfry/ops/cuda_kernels.h>
#include <belfry/ops/loops.h>
