#include <belfry/frontends/cli/cli.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <belfry/frontends/cli/common_internal.h>
#include <belfry/frontends/cli/offered_internal.h>
#include <belfry/frontends/cli/verbs_internal.h>
#include <belfry/frontends/session/library.h>
#include <belfry/graph/float_environment.h>
#include <belfry/graph/graph.h>
#include <belfry/placer/strategies/strategies.h>

namespace belfry {

namespace {

/// What is printed is data: a full disk or a closed pipe is a failure.
int after_output(int code) {
  std::cout.flush();
  if (std::cout && std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
  be_quiet(false);
  say("belfry: the standard output could not be written; its disk may be full\n");
  return code ? code : 1;
}

/// What was given that is no option of the verb, with that which was meant perhaps; where `all` are wanted, those too that are like none. Whether there are such.
bool say_unknown_options(const CLI::App& app, int argc, char** argv, bool all) {
  bool said = false;
  const CLI::App* verb = &app;
  while (!verb->get_subcommands().empty()) verb = verb->get_subcommands()[0];
  std::vector<std::string> known;
  for (const CLI::Option* option : verb->get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  for (int i = 1; i < argc; ++i) {
    const std::string given = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
    if (given.size() < 3 || !given.starts_with("--") || std::find(known.begin(), known.end(), given) != known.end()) continue;
    const std::string meant = did_you_mean(given, known);
    if (meant.empty() && !all) continue;
    say(fmt::format("{} has no option {}{}\n", verb->get_name(), given, meant));
    said = true;
  }
  return said;
}

/// Of a command line that asks for help its verbs and that alone: what else stands there may be what help is wanted for. Empty where none is asked for.
std::vector<std::string> asks_for_help(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> out;
  const CLI::App* verb = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string given = argv[i];
    if (given == "-h" || given == "--help") return out.push_back(given), out;
    const auto next = verb->get_subcommands([&](const CLI::App* part) { return part->get_name() == given; });
    if (!next.empty() && static_cast<int>(out.size()) + 1 == i) out.push_back(given), verb = next[0];
  }
  return {};
}

/// CLI11 takes what stands behind the letter, = too.
void refuse_letter_with_equals(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (const std::string_view given = argv[i]; given.size() > 2 && given[0] == '-' && given[1] != '-' && given[2] == '=')
      throw WrongUse(fmt::format("{}: an option of one letter has its value behind a space: {} {}", given, given.substr(0, 2), given.size() > 3 ? given.substr(3) : "VALUE"));
}

int parsed(CLI::App& app, int argc, char** argv) {
  be_quiet(false);
  try {
    std::vector<std::string> help = asks_for_help(app, argc, argv);
    std::reverse(help.begin(), help.end());
    if (!help.empty()) app.parse(std::move(help));
    refuse_letter_with_equals(argc, argv);
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::RuntimeError& e) {
    return e.get_exit_code();  // a verb that is done and has found what it looks for
  } catch (const CLI::ExtrasError& e) {
    app.exit(e);
    say_unknown_options(app, argc, argv, false);
    return 2;
  } catch (const CLI::RequiredError& e) {  // what is lacking may be what a misspelt option was to say
    if (!say_unknown_options(app, argc, argv, true)) app.exit(e);
    return 2;
  } catch (const CLI::ArgumentMismatch& e) {
    const std::string text = e.what();  // "--towers: At Most 1 required but received 2"
    constexpr std::string_view kTwice = ": At Most 1 required but received ";
    const auto at = text.find(kTwice);
    if (at == text.npos) return app.exit(e), 2;
    say(fmt::format("{} is given {} times; give it once\nRun with --help for more information.\n", text.substr(0, at), text.substr(at + kTwice.size())));
    return 2;
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const WrongUse& e) {
    be_quiet(false);
    say(fmt::format("belfry: {}\n", e.what()));
    return 2;
  } catch (const std::filesystem::filesystem_error& e) {
    be_quiet(false);
    say(fmt::format("belfry: {}: {}; mend that, or name another place\n", e.path1().string(), e.code().message()));
    return 1;
  } catch (const std::exception& e) {
    be_quiet(false);
    say(fmt::format("belfry: {}\n", e.what()));
    return 1;
  }
}

/// Strategies of one's own stand in the help of each verb that takes one.
void name_own_strategies(CLI::App& app, const Library& library) {
  std::string own;
  std::vector<std::string> names;
  for (const StrategyDef& s : library.strategies) {
    const std::vector<StrategyDef> standard = standard_strategies();
    if (std::any_of(standard.begin(), standard.end(), [&](const StrategyDef& known) { return known.name == s.name; })) continue;
    own += fmt::format("; {}: {}", s.name, s.help);
    names.push_back(s.name);
    for (const StrategyField& f : s.fields) own += fmt::format(", -O {}={}", f.name, f.values.empty() ? f.help : either(f.values) + ": " + f.help);
  }
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; }))
    if (CLI::Option* strategy = verb->get_option_no_throw("--strategy")) strategy->description(strategy->get_description() + own)->check(offers(names));
}

/// What is of every verb: where its exit codes are told, and that what is written has a name.
void finish_verbs(CLI::App& app) {
  const CLI::Validator named([](std::string& path) { return std::string(path.empty() ? "is empty: name a file or folder, or leave the option out" : ""); }, "");
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) {
    verb->footer(verb->get_footer() + "\nExit codes: 0 done, 1 failed, 2 wrong use; belfry --help says more");
    for (const char* written : {"--out", "--log", "--checkpoints", "--tensorboard", "--save-state", "--trace", "--svg", "--html", "--dot"})
      if (CLI::Option* option = verb->get_option_no_throw(written)) option->check(named);
    finish_verbs(*verb);
  }
}

}  // namespace

int cli_main(int argc, char** argv, const std::shared_ptr<const Library>& own) {
  const DefaultFloats floats;
  // "belfry help place" and "belfry version" are habits of other programs.
  std::string help = "--help", version = "--version";
  std::vector<char*> others;
  if (argc > 1 && (argv[1] == std::string_view("help") || argv[1] == std::string_view("version"))) {
    others.assign(argv, argv + argc);
    if (argv[1] == std::string_view("version")) others[1] = version.data();
    else others.erase(others.begin() + 1), others.push_back(help.data());
    argv = others.data();
  }
  LibrarySource library = [own] { return own ? own : standard_library(); };
  CLI::App app("Places a dataflow graph on devices, writes the plan to a file, and runs it.", "belfry");
  const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
  app.failure_message([](const CLI::App*, const CLI::Error& e) { return fmt::format("belfry: {}\nRun with --help for more information.\n", e.what()); });
  app.set_version_flag("--version", [json] { return version_text(json); }, "What was built, by what, with what; with --json for machines");
  app.footer(
      "Example: belfry devices\nExit codes: 0 done, 1 failed (of compare also: bits differ; of forecast: it does not fit), 2 wrong use (what the command line alone shows, values "
      "of options too; a file that is not there is 1)");
  add_devices_verb(app);
  add_place_verb(app, library);
  add_show_verb(app, library);
  add_run_verb(app, library);
  add_train_verb(app, library);
  add_evaluate_verb(app, library);
  add_predict_verb(app, library);
  add_runs_verb(app);
  add_forecast_verb(app, library);
  add_bench_verb(app, library);
  add_compare_verb(app, library);
  add_diff_verb(app, library);
  add_convert_verb(app, library);
  add_data_verb(app, library);
  add_completion_verb(app, library);
  finish_verbs(app);
  if (own) name_own_strategies(app, *own);
  if (argc < 2) {
    fmt::print(stderr, "{}", app.help());
    return 2;
  }
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) verbs.push_back(verb->get_name());
  if (argv[1][0] != '-' && std::find(verbs.begin(), verbs.end(), argv[1]) == verbs.end()) {
    fmt::print(stderr, "belfry: there is no verb '{}'{}\n", argv[1], did_you_mean(argv[1], verbs));
    return 2;
  }
  if (argv[1][0] == '-' && !app.get_option_no_throw(argv[1])) {
    fmt::print(stderr, "belfry: there is no option '{}' before a verb; there are --help and --version\n", argv[1]);
    return 2;
  }
  if (argv[1] == std::string_view("--version"))
    for (int i = 2; i < argc; ++i)
      if (argv[i] != std::string_view("--json")) {
        fmt::print(stderr, "belfry: --version takes --json and nothing else, not '{}'\n", argv[i]);
        return 2;
      }
  app.require_subcommand(1);
  return after_output(parsed(app, argc, argv));
}

}  // namespace belfry
