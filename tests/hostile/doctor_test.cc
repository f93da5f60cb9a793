// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tools/doctor/letter.h"
#include "tools/doctor/mend.h"
#include "tools/doctor/report.h"

// A rank of `weft doctor --all` that was taken over, or that a stranger took: what it says of its host ends
// in a script that an operator runs as root elsewhere.
using namespace weft::doctor;

namespace {

std::string letterOf(const std::vector<std::string>& fields) {
  std::string letter;
  for (const std::string& field : fields) letter += field + '\x1f';
  return letter;
}

// The lines of the script that a shell would run, without those that every script has.
std::vector<std::string> commandsOf(const std::string& script) {
  std::vector<std::string> commands;
  for (size_t at = 0; at < script.size();) {
    const size_t end = std::min(script.find('\n', at), script.size());
    const std::string line = script.substr(at, end - at);
    if (!line.empty() && line.front() != '#' && line != "set -e") commands.push_back(line);
    at = end + 1;
  }
  return commands;
}

std::vector<std::string> commandsOf(const HostReport& report) {
  return commandsOf(fixScript({report}));
}

constexpr const char* kEvil = "touch /tmp/owned";

}  // namespace

TEST_CASE("a command line in a letter is no command: neither in the old form nor as a cure") {
  const HostReport old = readReport(letterOf({"node1", "4", "limits", "x", "y", "1", kEvil}));
  CHECK(commandsOf(old).empty());
  const HostReport cure = readReport(letterOf({"node1", "4", "limits", "x", "y", "root", kEvil, "0"}));
  REQUIRE(cure.findings.size() == 1);
  CHECK(cure.findings[0].mend.by == Mend::By::nobody);
  CHECK(commandsOf(cure).empty());
  CHECK(fixScript({cure}).find(kEvil) == std::string::npos);
}

TEST_CASE("the arguments of a cure have their types") {
  for (const char* name : {"eth0; touch /tmp/owned", "-all", "../x", "", "a name", "0123456789abcdef"}) {
    const HostReport report =
        readReport(letterOf({"node1", "4", "interfaces", "x", "y", "root", "bring-up", "1", name}));
    REQUIRE(report.findings.size() == 1);
    CHECK(report.findings[0].mend.by == Mend::By::nobody);
  }
  for (const std::string count : {"0", "2", "18446744073709551615"})
    CHECK(readReport(letterOf({"n", "4", "t", "w", "e", "root", "bring-up", count, "eth0", "eth1"}))
              .findings[0]
              .mend.by == Mend::By::nobody);
}

TEST_CASE("what another host wants done by its root is a comment here") {
  HostReport report{
      "node1",
      {{weft::doctor::Severity::error, "memory", "/dev/shm", "small", byRoot(Cure::enlargeShm)}},
      {}};
  const HostReport read = readReport(reportLetter(report));
  REQUIRE(read.findings.size() == 1);
  CHECK(read.where == Where::elsewhere);
  CHECK(commandsOf(read).empty());
  CHECK(fixScript({read}).find("# as root there: mount -o remount") != std::string::npos);
  CHECK(commandsOf(report).size() == 1);  // on its own host it is a command
}

TEST_CASE("no text of a letter ends its comment") {
  const std::string out = std::string("x\n") + kEvil + "\r\n" + kEvil + "\xe2\x80\xa8" + kEvil;
  for (const char* by : {"hand", "setting", "root"}) {
    const HostReport report =
        readReport(letterOf({out, "4", out, out, out, by, "let-port-in", "2", "20000", out, out}));
    CHECK(commandsOf(report).empty());
    CHECK(reportText(report, true).find(std::string("\n") + kEvil) == std::string::npos);
  }
  const HostReport sets = readReport(letterOf({"n", "4", "t", "w", "e", "setting", "", "1", "A=1\n" + out}));
  CHECK(commandsOf(sets).empty());
}

TEST_CASE("names of this host are quoted: an interface may be called like a command") {
  const HostReport report{
      "here", {{Severity::note, "interfaces", "x", "down", byRoot(Cure::bringUp, {"`reboot`;$(id)"})}}, {}};
  REQUIRE(commandsOf(report).size() == 1);
  CHECK(commandsOf(report)[0] == "ip link set dev '`reboot`;$(id)' up");
  const HostReport dashed{
      "here", {{Severity::note, "interfaces", "x", "down", byRoot(Cure::bringUp, {"-all"})}}, {}};
  CHECK(commandsOf(dashed).empty());
}

TEST_CASE("a shell that runs the script does nothing that a letter said") {
  const std::string mark = std::tmpnam(nullptr);
  const std::string evil = "\n touch " + mark + "\n$(touch " + mark + ")`touch " + mark + "`;touch " + mark;
  std::vector<HostReport> reports;
  for (const char* by : {"root", "setting", "hand", "1"})
    reports.push_back(readReport(letterOf({evil, "4", evil, evil, evil, by, "bring-up", "1", evil, evil})));
  const std::string script = fixScript(reports);
  FILE* shell = ::popen("sh 2>/dev/null", "w");
  REQUIRE(shell != nullptr);
  std::fputs(script.c_str(), shell);
  CHECK(::pclose(shell) == 0);
  FILE* made = std::fopen(mark.c_str(), "r");
  CHECK(made == nullptr);
  if (made) std::fclose(made);
}

TEST_CASE("a node's addresses are addresses, and its counts are bounded") {
  Node node;
  uint16_t port = 0;
  std::string letter =
      letterOf({"weft doctor 2", "node1", "99999999", "18446744073709551615", "evil.example"});
  for (int i = 0; i < 5000; i++) letter += "192.0.2.1\x1f";
  CHECK(readNode(letter, &node, &port));
  CHECK(port == 0);
  CHECK(node.addresses.size() < 300);
  for (const std::string& one : node.addresses) CHECK(one == "192.0.2.1");
  std::string many = letterOf({"node1"});
  for (int i = 0; i < 100000; i++)
    many +=
        "4\x1ft\x1fw\x1f"
        "e\x1fhand\x1f\x1f"
        "1\x1fx\x1f";
  CHECK(readReport(many).findings.size() < 1000);
  CHECK(reportLetter(readReport(many)).size() <= kMostLetter);
}
