// Prints the names of all ops, one a line.
#include <belfry/ops/all_ops.h>

#include <cstdio>

int main() {
  const belfry::OpSet ops = belfry::standard_ops();
  for (const auto& def : ops.all()) std::puts(def->name.c_str());
}
