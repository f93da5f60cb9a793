// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/config_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/advice.h"
#include "src/base/fd.h"
#include "src/base/log.h"

// The form of weft.conf: lines, comments, quotes. The names are checked by config.cc.
namespace weft {

namespace {

constexpr size_t kMostBytes = 64 * 1024;

Error badFile(std::string what) {
  return Error(Code::config, "reading settings", std::move(what));
}

// The error names the file and the way out.
Error unreadable(const std::string& path, const std::string& why) {
  return badFile(
      format("the configuration file %s cannot be read: %s; mend it, or set %s to another file or to "
             "nothing",
             path.c_str(), why.c_str(), kConfigFileVariable));
}

std::string_view trimmed(std::string_view text) {
  constexpr const char* kBlanks = " \t\r";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// A # begins a comment at the start of a line and after a blank; elsewhere it belongs to the value.
std::string_view withoutComment(std::string_view line) {
  for (size_t i = 0; i < line.size(); i++)
    if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) return line.substr(0, i);
  return line;
}

// Quotes around a value, as shells and systemd need them, are not part of it.
std::string_view unquoted(std::string_view value) {
  const bool quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return quoted ? value.substr(1, value.size() - 2) : value;
}

bool isName(std::string_view text) {
  const auto belongs = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), belongs);
}

// A name that occurs again replaces the earlier value, and is remembered for a warning.
Status addLine(ConfigFile* file, std::string_view line, int number) {
  line = trimmed(withoutComment(line));
  if (line.empty()) return {};
  const size_t equals = line.find('=');
  const std::string_view name = trimmed(line.substr(0, std::min(equals, line.size())));
  if (equals == std::string_view::npos || !isName(name))
    return badFile(format("%s: \"%.60s\" is not of the form NAME = value", file->place(number).c_str(),
                          std::string(line).c_str()));
  ConfigFile::Entry entry{std::string(unquoted(trimmed(line.substr(equals + 1)))), number};
  const auto [place, added] = file->entries.try_emplace(std::string(name), entry);
  if (added) return {};
  file->repeated.push_back(format("%s: %s stands in line %d already, which counts for nothing",
                                  file->place(number).c_str(), place->first.c_str(), place->second.line));
  place->second = std::move(entry);
  return {};
}

// Nothing where there is no such file.
Result<std::optional<std::string>> readText(const std::string& path) {
  // Not blocking, so that a pipe of that name does not hold up the job.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    if (errno == ENOENT) return std::optional<std::string>();
    return unreadable(path, errnoWords(errno));
  }
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) return unreadable(path, errnoWords(errno));
  if (!S_ISREG(facts.st_mode)) return unreadable(path, "it is not a plain file");
  std::string text(kMostBytes + 1, '\0');
  size_t held = 0;
  while (held < text.size()) {
    const ssize_t count = ::read(fd.get(), &text[held], text.size() - held);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return unreadable(path, errnoWords(errno));
    if (count == 0) break;
    held += static_cast<size_t>(count);
  }
  if (held > kMostBytes) return unreadable(path, "it has more than 64 KiB");
  text.resize(held);
  if (text.find('\0') != std::string::npos) return unreadable(path, "it is not text");
  return std::optional<std::string>(std::move(text));
}

}  // namespace

const ConfigFile::Entry* ConfigFile::find(std::string_view name) const {
  const auto found = entries.find(name);
  return found == entries.end() ? nullptr : &found->second;
}

std::string ConfigFile::place(int line) const {
  return format("%s:%d", path.c_str(), line);
}

Result<ConfigFile> parseConfigFile(std::string path, std::string_view text) {
  ConfigFile file;
  file.path = std::move(path);
  for (int number = 1; !text.empty(); number++) {
    const size_t end = std::min(text.find('\n'), text.size());
    TRY(addLine(&file, text.substr(0, end), number));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return file;
}

Result<ConfigFile> loadConfigFile(const std::function<const char*(const char* name)>& lookup) {
  const char* named = lookup(kConfigFileVariable);
  const std::string path = named ? named : kConfigFileDefault;
  if (path.empty()) return ConfigFile();
  TRY(const std::optional<std::string> text, readText(path));
  if (text) return parseConfigFile(path, *text);
  if (!named) return ConfigFile();
  return unreadable(path, "there is no such file");
}

}  // namespace weft
