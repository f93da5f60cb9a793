// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/agg/topology.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "src/base/fd.h"
#include "src/base/log.h"

// Parsing the topology file, and the check of its tree.
namespace weft::agg {

namespace {

constexpr size_t kMostLines = 10000;

Error wrong(const std::string& why) {
  return Error(Code::config, "reading the topology", why);
}

std::vector<std::string> wordsOf(std::string_view line) {
  std::vector<std::string> words;
  line = line.substr(0, line.find('#'));
  for (size_t at = 0; at < line.size();) {
    const size_t begin = std::min(line.find_first_not_of(" \t\r", at), line.size());
    const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    if (end > begin) words.emplace_back(line.substr(begin, end - begin));
    at = end;
  }
  return words;
}

Status checkParents(const std::vector<TopologyEntry>& topology) {
  for (const TopologyEntry& entry : topology) {
    size_t steps = 0;
    for (const TopologyEntry* at = &entry; !at->parent.empty();) {
      const TopologyEntry* parent = findEntry(topology, at->parent);
      if (!parent) return wrong(at->name + " has the parent " + at->parent + ", which no line describes");
      if (++steps > topology.size()) return wrong(entry.name + " is its own parent by way of " + at->name);
      at = parent;
    }
    if (steps > 1)
      return wrong(entry.name + " is more than one level below its root; leaves and a root are supported");
  }
  return {};
}

}  // namespace

const TopologyEntry* findEntry(const std::vector<TopologyEntry>& topology, const std::string& name) {
  const auto found = std::find_if(topology.begin(), topology.end(),
                                  [&](const TopologyEntry& one) { return one.name == name; });
  return found == topology.end() ? nullptr : &*found;
}

Result<std::vector<TopologyEntry>> parseTopology(std::string_view text) {
  std::vector<TopologyEntry> topology;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const auto words = wordsOf(text.substr(at, end - at));
    at = end + 1;
    number++;
    if (number > kMostLines) return wrong(format("it has more than %zu lines", kMostLines));
    if (words.empty()) continue;
    if (words.size() != 3 || words[1].find(':') == std::string::npos)
      return wrong(format("line %zu is not \"NAME HOST:PORT PARENT\", with - for no parent", number));
    if (findEntry(topology, words[0]))
      return wrong(format("line %zu describes %s again", number, words[0].c_str()));
    topology.push_back({words[0], words[1], words[2] == "-" ? "" : words[2]});
  }
  TRY(checkParents(topology));
  return topology;
}

Result<std::vector<TopologyEntry>> readTopology(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Error(Code::config, "reading the topology", path + " cannot be opened", errno);
  std::string text;
  char some[4096];
  ssize_t got = 0;
  while ((got = ::read(file.get(), some, sizeof some)) > 0) text.append(some, static_cast<size_t>(got));
  if (got < 0) return Error(Code::config, "reading the topology", path + " cannot be read", errno);
  return parseTopology(text);
}

}  // namespace weft::agg
