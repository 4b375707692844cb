// Prints the names of all ops, one a line.
#include <belfry/ops/all_ops.h>

#include <cstdio>

int main() {
  for (const auto& def : belfry::standard_ops().all()) std::puts(def->name.c_str());
}
