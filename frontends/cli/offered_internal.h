// Values that completion offers for an option: they stand where the option is made, and nowhere else.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class Option;
class Validator;
}

namespace belfry {

/// One of these, and nothing else.
CLI::Validator one_of(const std::vector<std::string>& values);
/// These among others, which pass too. What ends in = goes on.
CLI::Validator offers(const std::vector<std::string>& values);
/// The same, where several stand with commas between them.
CLI::Validator offers_list(const std::vector<std::string>& values);
/// The names of nets; a file passes too.
CLI::Validator offers_nets();
/// What was said so of an option; empty where nothing was.
std::vector<std::string> offered(CLI::Option& option);
/// "f32, bf16 or f16".
std::string either(const std::vector<std::string>& values);

}  // namespace belfry
