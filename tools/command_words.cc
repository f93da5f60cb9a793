// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/command_words.h"

#include <iostream>
#include <memory>
#include <vector>

#include "src/base/nearest.h"

namespace weft {

namespace {

// "1 to 64" of the parser's "UINT:INT in [1 - 64]"; empty: any.
std::string rangeOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find(" in [");
  const size_t middle = type.find(" - ", begin == std::string::npos ? 0 : begin);
  const size_t end = type.find(']', middle == std::string::npos ? 0 : middle);
  if (begin == std::string::npos || middle == std::string::npos || end == std::string::npos) return {};
  return type.substr(begin + 5, middle - begin - 5) + " to " + type.substr(middle + 3, end - middle - 3);
}

// "{wait,rate}" of "TEXT:{wait,rate}"; empty: any text.
std::string choiceOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{');
  const size_t end = type.find('}');
  return begin == std::string::npos || end == std::string::npos ? std::string()
                                                                : type.substr(begin, end + 1 - begin);
}

bool isNumber(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
}

// The word that stands for an option's value.
std::string valueWord(const CLI::Option& option) {
  if (const std::string choice = choiceOf(option); !choice.empty()) return choice;
  const std::string type = option.get_type_name();
  if (const size_t checked = type.find(':');
      checked != std::string::npos && type.substr(checked + 1) == "SIZE")
    return "SIZE";
  return isNumber(option) ? "N" : "TEXT";
}

// Names before the description, limits behind it: "--nodes N   of the communicator (1 to 64; 4 by default)".
class PlainFormatter final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_name().empty()) return {};  // a flag
    const bool several = option->get_expected_max() >= CLI::detail::expected_max_vector_size;
    return " " + valueWord(*option) + (several ? " ..." : "");
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string notes;
    const auto add = [&](const std::string& note) { notes += (notes.empty() ? "" : "; ") + note; };
    if (const std::string range = rangeOf(*option); !range.empty()) add(range);
    const std::string known = option->get_default_str();
    if (!known.empty() && !option->get_type_name().empty()) add(known + " by default");
    for (const CLI::Option* other : option->get_needs()) add("with " + other->get_name());
    const std::string text = option->get_description();
    return notes.empty() ? text : text + " (" + notes + ")";
  }
};

std::vector<std::string> optionNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::string didYouMean(const std::string& nearest) {
  return nearest.empty() ? nearest : "; did you mean " + nearest + "?";
}

// A word that nothing takes.
std::string aboutExtra(const CLI::App& command, const std::string& word) {
  if (!word.starts_with('-')) return word + ": nothing takes this word";
  const std::string name = word.substr(0, word.find('='));
  return name + ": no such option" + didYouMean(nearestWord(name, optionNames(command)));
}

// The text between two others; empty: they are not there.
std::string between(const std::string& text, const std::string& first, const std::string& last) {
  const size_t begin = text.find(first);
  if (begin == std::string::npos) return {};
  const size_t from = begin + first.size();
  const size_t end = last.empty() ? text.size() : text.find(last, from);
  return end == std::string::npos ? std::string() : text.substr(from, end - from);
}

std::string allowedWords(const CLI::Option& option) {
  if (const std::string range = rangeOf(option); !range.empty()) return "; it takes " + range;
  if (const std::string choice = choiceOf(option); !choice.empty())
    return "; it takes one of " + choice.substr(1, choice.size() - 2);
  return isNumber(option) ? "; it takes a number" : "";
}

// A value that does not fit. The parser's text begins with the option, and has the value in it.
std::string aboutValue(const CLI::App& command, const std::string& said) {
  const size_t colon = said.find(": ");
  const bool converted = said.starts_with("Could not convert: ");
  const std::string name = converted ? between(said, "Could not convert: ", " = ") : said.substr(0, colon);
  const CLI::Option* option = name.empty() ? nullptr : command.get_option_no_throw(name);
  if (!option) return said;
  std::string value = converted ? between(said, " = ", "") : between(said, ": Value ", " ");
  if (value.empty() && !choiceOf(*option).empty()) value = between(said, ": ", " not in ");
  return value.empty() ? said : name + ": " + value + " is not possible" + allowedWords(*option);
}

std::string withReplaced(std::string text, const std::string& part, const std::string& other) {
  const size_t at = text.find(part);
  return at == std::string::npos ? text : text.replace(at, part.size(), other);
}

std::string wordsOf(const CLI::App& command, const CLI::App& app, const CLI::ParseError& error) {
  const std::string said = error.what();
  switch (static_cast<CLI::ExitCodes>(error.get_exit_code())) {
    case CLI::ExitCodes::ExtrasError: {
      const std::vector<std::string> extras = app.remaining(true);
      return extras.empty() ? said : aboutExtra(command, extras.front());
    }
    case CLI::ExitCodes::RequiredError:
      return withReplaced(said, " is required", ": it is missing");
    case CLI::ExitCodes::RequiresError:
      return withReplaced(said, " requires ", ": only together with ");
    case CLI::ExitCodes::ExcludesError:
      return withReplaced(said, " excludes ", ": not together with ");
    case CLI::ExitCodes::ArgumentMismatch:
      return said.ends_with(" missing") ? said.substr(0, said.find(": ")) + ": its value is missing" : said;
    case CLI::ExitCodes::ValidationError:
    case CLI::ExitCodes::ConversionError:
      return aboutValue(command, said);
    default:
      return said;
  }
}

}  // namespace

void speakPlainly(CLI::App& app) {
  app.formatter(std::make_shared<PlainFormatter>());
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) speakPlainly(*command);
}

int answerFor(const CLI::App& command, const std::string& program, const CLI::App& app,
              const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  std::cerr << program << ": " << wordsOf(command, app, error) << "; see " << program << " --help\n";
  return kUsageCode;
}

}  // namespace weft
