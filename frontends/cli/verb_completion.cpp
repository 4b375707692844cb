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

/// Options and verbs, and files wherever neither is asked for.
std::string bash_text(const CLI::App& app) {
  std::string out = "_belfry() {\n  local word=${COMP_WORDS[COMP_CWORD]} words\n  COMPREPLY=()\n  if ((COMP_CWORD == 1)); then\n";
  out += fmt::format("    words='{}'\n  else\n    case ${{COMP_WORDS[1]}} in\n", words(app));
  for (const CLI::App* verb : app.get_subcommands(nullptr)) out += fmt::format("      {}) words='{}' ;;\n", verb->get_name(), words(*verb));
  out += "    esac\n  fi\n  if [[ $word == -* || $COMP_CWORD == 1 ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$word\")); fi\n}\n";
  return out + "complete -o default -F _belfry belfry\n";
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("\\'") : c == '\\' ? std::string("\\\\") : std::string(1, c);
  return out + "'";
}

std::string fish_text(const CLI::App& app) {
  std::string out;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    out += fmt::format("complete -c belfry -n __fish_use_subcommand -a {} -d {}\n", verb->get_name(), quoted(verb->get_description()));
    for (const CLI::Option* option : verb->get_options()) {
      if (typed(*option).empty()) continue;
      out += fmt::format("complete -c belfry -n '__fish_seen_subcommand_from {}'", verb->get_name());
      for (const std::string& name : option->get_snames()) out += " -s " + name;
      for (const std::string& name : option->get_lnames()) out += " -l " + name;
      out += fmt::format("{} -d {}\n", option->get_expected_max() ? " -r" : "", quoted(option->get_description()));
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
