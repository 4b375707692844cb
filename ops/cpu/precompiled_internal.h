// What nearly every file of kernels includes, compiled once.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include <belfry/ops/cpu/kernel_support_internal.h>
#include <belfry/ops/cpu_kernels.h>
#include <belfry/ops/loops.h>
