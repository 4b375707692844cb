#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <belfry/frontends/cli/offered_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/nn/nets/nets.h>
#include <belfry/frontends/session/library.h>

namespace belfry {

namespace {

constexpr const char *kOffers = "offers ", *kOffersList = "offers-list ";

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

/// The names of an option's validators: offers stand there.
std::vector<std::string> validators(CLI::Option& option) {
  std::vector<std::string> out;
  for (int k = 0;; ++k) try {
      out.push_back(option.get_validator(k)->get_name());
    } catch (const CLI::OptionNotFound&) {
      return out;  // all were looked at
    }
}

bool is_list(CLI::Option& option) {
  const std::vector<std::string> names = validators(option);
  return option.get_delimiter() == ',' || std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.starts_with(kOffersList); });
}

/// As --help has its type: numbers and names are no files, nor is what has a list of its own, unless that says FILE.
bool takes_files(CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.find("FILE") != type.npos || (type.starts_with("TEXT") && offered(option).empty());
}

/// What a case of bash sets, and behind which words.
using Places = std::map<std::string, std::vector<std::string>>;

std::string setting(const std::vector<std::string>& values, bool list, bool files) {
  std::string out;
  if (!values.empty()) out += fmt::format(" values='{}'", fmt::join(values, " "));
  return out + (list ? " list=yes" : "") + (files ? " files=yes" : "");
}

/// Behind an option that takes a value, or where a part of a verb is not named: "place --precision", "data fetch".
void add_values(CLI::App& app, const std::string& verb, Places& places) {
  for (CLI::Option* option : app.get_options()) {
    std::vector<std::string> values;
    std::map<std::string, std::vector<std::string>> behind;  // of "order=gpipe" gpipe behind order=
    for (const std::string& value : offered(*option)) {
      const std::size_t is = value.find('=');
      if (is == value.npos || is + 1 == value.size()) values.push_back(value);
      else behind[value.substr(0, is + 1)].push_back(value.substr(is + 1));
    }
    for (const auto& [key, list] : behind) places[setting(list, false, false)].push_back(fmt::format("'{} {}'", verb, key));
    std::vector<std::string> names = typed(*option);
    const bool part = names.empty() && verb != app.get_name();
    if (part) names = {app.get_name()};
    if (!part && !option->get_expected_max()) continue;
    for (const std::string& name : names) places[setting(values, is_list(*option), takes_files(*option))].push_back(fmt::format("'{} {}'", verb, name));
  }
}

/// "--problem=": the values of flags stand behind a sign alone.
void add_flags(CLI::App& verb, Places& places) {
  for (CLI::Option* option : verb.get_options())
    if (!option->get_expected_max() && !offered(*option).empty())
      for (const std::string& name : typed(*option)) places[setting(offered(*option), false, false) + " files="].push_back(fmt::format("'{} {}'", verb.get_name(), name));
}

/// Wherever no option is before the word: what the verb itself takes.
void add_own_values(CLI::App& verb, Places& places) {
  if (!parts_of(verb).empty()) return;
  const auto all = verb.get_options([](const CLI::Option* option) { return option->get_positional(); });
  places[all.empty() ? "" : setting(offered(*all[0]), false, takes_files(*all[0]))].push_back(fmt::format("'{} '*", verb.get_name()));
}

std::string bash_cases(const Places& places) {
  std::string out;
  for (const auto& [sets, behind] : places) out += fmt::format("    {}){} ;;\n", fmt::join(behind, "|"), sets);
  return out;
}

/// Bash breaks words at = and :, so that they are put together first; what it has before the last break is left out of the answer.
constexpr const char* kWords = R"(  local at=$COMP_CWORD word=${COMP_WORDS[COMP_CWORD]} before words named= values= list= files= head= broken= is=
  COMPREPLY=()
  while [[ $COMP_WORDBREAKS == *:* ]] && ((at > 2)) && [[ ${COMP_WORDS[at]} == : || ${COMP_WORDS[at-1]} == : ]]; do
    word=${COMP_WORDS[--at]}$word
  done
  broken=${word%"${COMP_WORDS[COMP_CWORD]}"}
  [[ $word == *: ]] && broken=$word
  if [[ $word == = ]]; then is=yes word= before=${COMP_WORDS[at-1]}
  else
    before=${COMP_WORDS[at-1]}
    if [[ $before == = ]]; then is=yes before=${COMP_WORDS[at-2]}; fi
  fi
  [[ -n $is && $before != -* ]] && before=$before=
)";

constexpr const char* kAnswer = R"(  if [[ $list$word == yes*,* ]]; then head=${word%,*}, word=${word##*,}; fi
  [[ -n $values ]] && COMPREPLY=($(compgen -P "$head" -W "$values" -- "$word"))
  if [[ -z $files ]]; then compopt +o default 2> /dev/null
  elif [[ -n $values ]]; then
    local IFS=$'\n'
    COMPREPLY+=($(compgen -f -- "$word"))
    compopt -o filenames 2> /dev/null
  fi
  COMPREPLY=("${COMPREPLY[@]#"$broken"}")
  if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2> /dev/null; fi
}
complete -o default -F _belfry belfry
)";

std::string bash_values(CLI::App& app) {
  Places places, own, flags;
  for (CLI::App* verb : parts_of(app)) {
    add_values(*verb, verb->get_name(), places);
    for (CLI::App* part : parts_of(*verb)) add_values(*part, verb->get_name(), places);
    add_own_values(*verb, own);
    add_flags(*verb, flags);
  }
  const std::string behind = "case \"${COMP_WORDS[1]} $before\" in\n";
  return "  " + behind + bash_cases(places) + "    *=) ;;\n" + bash_cases(own) + "    *) files=yes ;;\n  esac\n  [[ -n $is ]] && " + behind + bash_cases(flags) + "  esac\n";
}

/// Options and verbs, values of options that have a list of them, and files where they are meant.
std::string bash_text(CLI::App& app) {
  std::string out = fmt::format("_belfry() {{\n{}  if ((COMP_CWORD == 1)); then\n    named=yes words='{}'\n  else\n    case ${{COMP_WORDS[1]}} in\n", kWords, words(app));
  std::string nested;
  for (CLI::App* verb : parts_of(app)) {
    out += fmt::format("      {}) words='{}' ;;\n", verb->get_name(), words(*verb));
    if (parts_of(*verb).empty()) continue;
    nested += fmt::format("      {})\n        if ((COMP_CWORD == 2)); then named=yes; else\n          case ${{COMP_WORDS[2]}} in\n", verb->get_name());
    for (CLI::App* part : parts_of(*verb)) nested += fmt::format("            {}) words='{}' ;;\n", part->get_name(), words(*part));
    nested += "          esac\n        fi ;;\n";
  }
  out += fmt::format("    esac\n    case ${{COMP_WORDS[1]}} in\n{}    esac\n  fi\n", nested);
  out += "  if [[ $word == -* || -n $named ]]; then\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n    compopt +o default 2> /dev/null\n    return 0\n  fi\n";
  return out + bash_values(app) + kAnswer;
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
    if (!typed(*option).empty() && option->get_expected_max()) out += takes_files(*option) ? " -r" : " -r -f";
    if (!values.empty()) out += " -a " + quoted(fmt::format("{}", fmt::join(values, " ")));
    out += fmt::format(" -d {}\n", quoted(option->get_description()));
  }
  return out;
}

std::string fish_text(CLI::App& app) {
  std::string out;
  for (CLI::App* verb : parts_of(app)) {
    const std::string seen = "__fish_seen_subcommand_from " + verb->get_name();
    out += fmt::format("complete -c belfry -n __fish_use_subcommand -f -a {} -d {}\n", verb->get_name(), quoted(verb->get_description()));
    out += fish_options(*verb, seen);
    std::string names;
    for (const CLI::App* part : parts_of(*verb)) names += " " + part->get_name();
    for (CLI::App* part : parts_of(*verb)) {
      out += fmt::format("complete -c belfry -n '{}; and not __fish_seen_subcommand_from{}' -f -a {} -d {}\n", seen, names, part->get_name(), quoted(part->get_description()));
      out += fish_options(*part, fmt::format("{}; and __fish_seen_subcommand_from {}", seen, part->get_name()));
    }
  }
  return out;
}

std::vector<std::string> op_names(const OpSet& ops) {
  std::vector<std::string> out;
  for (const auto& op : ops.all()) out.push_back(op->name);
  return out;
}

}  // namespace

CLI::Validator one_of(const std::vector<std::string>& values) {
  CLI::Validator out = CLI::IsMember(values);
  return out.name(fmt::format("{}{}", kOffers, fmt::join(values, " ")));
}

CLI::Validator offers(const std::vector<std::string>& values) {
  return CLI::Validator([](std::string&) { return std::string(); }, "", fmt::format("{}{}", kOffers, fmt::join(values, " ")));
}

CLI::Validator offers_list(const std::vector<std::string>& values) {
  return CLI::Validator([](std::string&) { return std::string(); }, "", fmt::format("{}{}", kOffersList, fmt::join(values, " ")));
}

CLI::Validator offers_nets() {
  std::vector<std::string> names;
  for (const NetDef& net : standard_nets()) names.push_back(net.name);
  return offers(names).description("FILE");
}

std::vector<std::string> offered(CLI::Option& option) {
  std::vector<std::string> out;
  for (const std::string& name : validators(option)) {
    if (!name.starts_with(kOffers) && !name.starts_with(kOffersList)) continue;
    const std::vector<std::string> values = CLI::detail::split(name.substr(name.find(' ') + 1), ' ');
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

std::string either(const std::vector<std::string>& values) {
  std::string out;
  for (std::size_t k = 0; k < values.size(); ++k) out += (!k ? "" : k + 1 < values.size() ? ", " : " or ") + values[k];
  return out;
}

void add_completion_verb(CLI::App& app, const LibrarySource& library) {
  const std::vector<std::string> shells = {"bash", "zsh", "fish"};
  CLI::App* verb = app.add_subcommand("completion", "A script that completes verbs, options and their values in a shell");
  verb->footer("Before: mkdir -p ~/.local/share/bash-completion/completions\nExample: belfry completion bash > ~/.local/share/bash-completion/completions/belfry");
  auto shell = std::make_shared<std::string>();
  verb->add_option("shell", *shell, either(shells))->required()->check(one_of(shells));
  verb->callback([shell, program = &app, library] {
    program->get_subcommand("show")->get_option("--ops")->check(offers(op_names(*library()->ops)));
    if (*shell == "zsh") std::cout << "#compdef belfry\nautoload -U +X bashcompinit && bashcompinit\n";
    std::cout << (*shell == "fish" ? fish_text(*program) : bash_text(*program));
  });
}

}  // namespace belfry
