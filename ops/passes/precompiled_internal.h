// What nearly every room includes, compiled once.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include <belfry/graph/split_rules.h>
#include <belfry/ops/build.h>
#include <belfry/ops/loops.h>
