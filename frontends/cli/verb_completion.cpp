#include <CLI/CLI.hpp>

#include <iostream>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/frontends/cli/offered_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>

namespace belfry {

namespace {

/// "--devices", "-o": as they are typed.
std::vector<std::string> typed(const CLI::Option& option) {
  std::vector<std::string> out;
  for (const std::string& name : option.get_snames()) out.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.push_back("--" + name);
  return out;
}

std::string words(CLI::App& app) {
  std::string out;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) out += verb->get_name() + " ";
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : typed(*option)) out += name + " ";
  return out;
}

std::vector<CLI::App*> parts_of(CLI::App& verb) { return verb.get_subcommands(nullptr); }

/// Behind a verb's option, or behind the verb itself where the option is not named: "place --precision", "data fetch".
void add_values(CLI::App& app, const std::string& verb, std::map<std::string, std::vector<std::string>>& places) {
  for (CLI::Option* option : app.get_options()) {
    std::vector<std::string> values;
    std::map<std::string, std::vector<std::string>> behind;  // of "order=gpipe" gpipe behind order
    for (const std::string& value : offered(*option)) {
      const std::size_t is = value.find('=');
      if (is == value.npos || is + 1 == value.size()) values.push_back(value);
      else behind[value.substr(0, is)].push_back(value.substr(is + 1));
    }
    for (const auto& [key, list] : behind) places[fmt::format("{}", fmt::join(list, " "))].push_back(fmt::format("'{} {}'", verb, key));
    if (values.empty()) continue;
    std::vector<std::string> names = typed(*option);
    if (names.empty()) names = {app.get_name()};
    for (const std::string& name : names) places[fmt::format("{}", fmt::join(values, " "))].push_back(fmt::format("'{} {}'", verb, name));
  }
}

std::string bash_values(CLI::App& app) {
  std::map<std::string, std::vector<std::string>> places;
  for (CLI::App* verb : parts_of(app)) {
    add_values(*verb, verb->get_name(), places);
    for (CLI::App* part : parts_of(*verb)) add_values(*part, verb->get_name(), places);
  }
  std::string out = "  if [[ $word == = ]]; then word=; elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
                    "  if [[ $COMP_WORDBREAKS == *:* && COMP_CWORD -gt 2 && $word == : ]]; then broken=$before: word=$broken before=${COMP_WORDS[COMP_CWORD-2]}\n"
                    "  elif [[ $COMP_WORDBREAKS == *:* && COMP_CWORD -gt 3 && $before == : ]]; then broken=${COMP_WORDS[COMP_CWORD-2]}: word=$broken$word before=${COMP_WORDS[COMP_CWORD-3]}; fi\n"
                    "  case \"${COMP_WORDS[1]} $before\" in\n";
  for (const auto& [values, behind] : places) out += fmt::format("    {}) values='{}' ;;\n", fmt::join(behind, "|"), values);
  return out + "  esac\n  if [[ -n $values && $word != -* ]]; then\n    COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n    COMPREPLY=(\"${COMPREPLY[@]#\"$broken\"}\")\n    [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace 2> /dev/null\n    return 0\n  fi\n";
}

/// Options and verbs, values of options that have a list of them, and files wherever none of these is asked for.
std::string bash_text(CLI::App& app) {
  std::string out = "_belfry() {\n  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words named= values= broken=\n  COMPREPLY=()\n" + bash_values(app) + "  if ((COMP_CWORD == 1)); then\n";
  out += fmt::format("    named=yes words='{}'\n  else\n    case ${{COMP_WORDS[1]}} in\n", words(app));
  std::string nested;
  for (CLI::App* verb : parts_of(app)) {
    out += fmt::format("      {}) words='{}' ;;\n", verb->get_name(), words(*verb));
    if (parts_of(*verb).empty()) continue;
    nested += fmt::format("      {})\n        if ((COMP_CWORD == 2)); then named=yes; else\n          case ${{COMP_WORDS[2]}} in\n", verb->get_name());
    for (CLI::App* part : parts_of(*verb)) nested += fmt::format("            {}) words='{}' ;;\n", part->get_name(), words(*part));
    nested += "          esac\n        fi ;;\n";
  }
  out += fmt::format("    esac\n    case ${{COMP_WORDS[1]}} in\n{}    esac\n  fi\n", nested);
  out += "  if [[ $word == -* || -n $named ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$word\")); fi\n}\n";
  return out + "complete -o default -F _belfry belfry\n";
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("\\'") : c == '\\' ? std::string("\\\\") : std::string(1, c);
  return out + "'";
}

/// The options of a verb, or of a part of one, where the line has come to it.
std::string fish_options(CLI::App& verb, const std::string& seen) {
  std::string out;
  for (CLI::Option* option : verb.get_options()) {
    const std::vector<std::string> values = offered(*option);
    if (typed(*option).empty() && values.empty()) continue;
    out += fmt::format("complete -c belfry -n '{}'", seen);
    for (const std::string& name : option->get_snames()) out += " -s " + name;
    for (const std::string& name : option->get_lnames()) out += " -l " + name;
    if (!typed(*option).empty() && option->get_expected_max()) out += " -r";
    if (!values.empty()) out += " -a " + quoted(fmt::format("{}", fmt::join(values, " ")));
    out += fmt::format(" -d {}\n", quoted(option->get_description()));
  }
  return out;
}

std::string fish_text(CLI::App& app) {
  std::string out;
  for (CLI::App* verb : parts_of(app)) {
    const std::string seen = "__fish_seen_subcommand_from " + verb->get_name();
    out += fmt::format("complete -c belfry -n __fish_use_subcommand -a {} -d {}\n", verb->get_name(), quoted(verb->get_description()));
    out += fish_options(*verb, seen);
    std::string names;
    for (const CLI::App* part : parts_of(*verb)) names += " " + part->get_name();
    for (CLI::App* part : parts_of(*verb)) {
      out += fmt::format("complete -c belfry -n '{}; and not __fish_seen_subcommand_from{}' -a {} -d {}\n", seen, names, part->get_name(), quoted(part->get_description()));
      out += fish_options(*part, fmt::format("{}; and __fish_seen_subcommand_from {}", seen, part->get_name()));
    }
  }
  return out;
}

constexpr const char* kOffers = "offers ";

}  // namespace

CLI::Validator one_of(const std::vector<std::string>& values) {
  CLI::Validator out = CLI::IsMember(values);
  return out.name(fmt::format("{}{}", kOffers, fmt::join(values, " ")));
}

CLI::Validator offers(const std::vector<std::string>& values) {
  return CLI::Validator([](std::string&) { return std::string(); }, "", fmt::format("{}{}", kOffers, fmt::join(values, " ")));
}

std::vector<std::string> offered(CLI::Option& option) {
  std::vector<std::string> out;
  for (int k = 0;; ++k) try {
      const std::string& name = option.get_validator(k)->get_name();
      if (!name.starts_with(kOffers)) continue;
      const std::vector<std::string> values = CLI::detail::split(name.substr(std::string(kOffers).size()), ' ');
      out.insert(out.end(), values.begin(), values.end());
    } catch (const CLI::OptionNotFound&) {
      return out;  // all were looked at
    }
}

std::string either(const std::vector<std::string>& values) {
  std::string out;
  for (std::size_t k = 0; k < values.size(); ++k) out += (!k ? "" : k + 1 < values.size() ? ", " : " or ") + values[k];
  return out;
}

void add_completion_verb(CLI::App& app) {
  const std::vector<std::string> shells = {"bash", "zsh", "fish"};
  CLI::App* verb = app.add_subcommand("completion", "A script that completes verbs, options and their values in a shell");
  verb->footer("Example: belfry completion bash > ~/.local/share/bash-completion/completions/belfry");
  auto shell = std::make_shared<std::string>();
  verb->add_option("shell", *shell, either(shells))->required()->check(one_of(shells));
  verb->callback([shell, program = &app] {
    if (*shell == "zsh") std::cout << "#compdef belfry\nautoload -U +X bashcompinit && bashcompinit\n";
    std::cout << (*shell == "fish" ? fish_text(*program) : bash_text(*program));
  });
}

}  // namespace belfry
