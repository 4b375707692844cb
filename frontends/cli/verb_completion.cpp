#include <CLI/CLI.hpp>

#include <iostream>

#include <fmt/format.h>

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

std::string words(const CLI::App& app) {
  std::string out;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) out += verb->get_name() + " ";
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : typed(*option)) out += name + " ";
  return out;
}

std::vector<const CLI::App*> parts_of(const CLI::App& verb) { return verb.get_subcommands(nullptr); }

/// Options and verbs, and files wherever neither is asked for.
std::string bash_text(const CLI::App& app) {
  std::string out = "_belfry() {\n  local word=${COMP_WORDS[COMP_CWORD]} words named=\n  COMPREPLY=()\n  if ((COMP_CWORD == 1)); then\n";
  out += fmt::format("    named=yes words='{}'\n  else\n    case ${{COMP_WORDS[1]}} in\n", words(app));
  std::string nested;
  for (const CLI::App* verb : parts_of(app)) {
    out += fmt::format("      {}) words='{}' ;;\n", verb->get_name(), words(*verb));
    if (parts_of(*verb).empty()) continue;
    nested += fmt::format("      {})\n        if ((COMP_CWORD == 2)); then named=yes; else\n          case ${{COMP_WORDS[2]}} in\n", verb->get_name());
    for (const CLI::App* part : parts_of(*verb)) nested += fmt::format("            {}) words='{}' ;;\n", part->get_name(), words(*part));
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
std::string fish_options(const CLI::App& verb, const std::string& seen) {
  std::string out;
  for (const CLI::Option* option : verb.get_options()) {
    if (typed(*option).empty()) continue;
    out += fmt::format("complete -c belfry -n '{}'", seen);
    for (const std::string& name : option->get_snames()) out += " -s " + name;
    for (const std::string& name : option->get_lnames()) out += " -l " + name;
    out += fmt::format("{} -d {}\n", option->get_expected_max() ? " -r" : "", quoted(option->get_description()));
  }
  return out;
}

std::string fish_text(const CLI::App& app) {
  std::string out;
  for (const CLI::App* verb : parts_of(app)) {
    const std::string seen = "__fish_seen_subcommand_from " + verb->get_name();
    out += fmt::format("complete -c belfry -n __fish_use_subcommand -a {} -d {}\n", verb->get_name(), quoted(verb->get_description()));
    out += fish_options(*verb, seen);
    std::string names;
    for (const CLI::App* part : parts_of(*verb)) names += " " + part->get_name();
    for (const CLI::App* part : parts_of(*verb)) {
      out += fmt::format("complete -c belfry -n '{}; and not __fish_seen_subcommand_from{}' -a {} -d {}\n", seen, names, part->get_name(), quoted(part->get_description()));
      out += fish_options(*part, fmt::format("{}; and __fish_seen_subcommand_from {}", seen, part->get_name()));
    }
  }
  return out;
}

}  // namespace

void add_completion_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("completion", "A script that completes verbs and options in a shell");
  verb->footer("Example: belfry completion bash > ~/.local/share/bash-completion/completions/belfry");
  auto shell = std::make_shared<std::string>();
  verb->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->callback([shell, program = &app] {
    if (*shell == "zsh") std::cout << "#compdef belfry\nautoload -U +X bashcompinit && bashcompinit\n";
    std::cout << (*shell == "fish" ? fish_text(*program) : bash_text(*program));
  });
}

}  // namespace belfry
