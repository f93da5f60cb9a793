// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Every check of strict mode ends a process that does what it looks for.
#include <string>
#include <sys/wait.h>

#include "tests/softefa/check/node.h"
#include "tests/support/catch.h"

using namespace softefa::check;

namespace {

// What strict mode said before it ended softefa-misuse; empty when it did not.
std::string lastWords(const std::string& misuse) {
  const Outcome outcome = runProgram("", std::string("exec '") + SOFTEFA_MISUSE + "' " + misuse);
  INFO(outcome.output);
  const size_t begin = outcome.output.find("softefa: strict ");
  if (begin == std::string::npos) {
    CHECK(outcome.status == 0);
    return {};
  }
  CHECK((WIFSIGNALED(outcome.status) || WEXITSTATUS(outcome.status) != 0));
  return outcome.output.substr(begin + 16, outcome.output.find('\n', begin) - begin - 16);
}

bool says(const std::string& misuse, const std::string& check, const std::string& words) {
  const std::string said = lastWords(misuse);
  INFO(misuse << ": " << said);
  CHECK(said.rfind(check + ": ", 0) == 0);
  return said.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("strict mode lets good work be") {
  CHECK(lastWords("nothing").empty());
}

TEST_CASE("strict cq: a completion queue that overruns") {
  CHECK(says("cq", "cq", "of 4 entries is full"));
}

TEST_CASE("strict mr: memory used after its registration ended") {
  CHECK(says("mr-send", "mr", "sends from memory"));
  CHECK(says("mr-receive", "mr", "the receive with wr_id 1"));
  CHECK(says("mr-write", "mr", "RDMA for qp"));
  CHECK(says("mr-read", "mr", "the read with wr_id 1"));
}

TEST_CASE("strict overlap: two writes under way to the same bytes") {
  CHECK(says("overlap", "overlap", "lands on a newer write of 10 bytes"));
  CHECK(says("overlap-beside", "overlap", "lands on a newer write of 10 bytes"));
  CHECK(lastWords("beside").empty());
}

TEST_CASE("strict ah: address handles that are missing or gone") {
  CHECK(says("ah-target", "ah", "without an address handle here"));
  CHECK(says("ah-destroyed", "ah", "was destroyed"));
}

TEST_CASE("strict state: work for a queue pair that is not ready") {
  CHECK(says("state", "state", "before it was ready"));
}
