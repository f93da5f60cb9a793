// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/logger.h"

#include <string>

#include "src/base/log.h"
#include "tests/abi/log_recorder.h"
#include "tests/support/catch.h"

// What reaches NCCL's logger, which cuts a line at 1,023 characters and keeps the last warning as the error's
// text.
using namespace weft;
using namespace weft::abi;

namespace {

struct Logger {
  Logger() {
    forgetLines();
    plugin::useLogger(&recordLine);
  }
  ~Logger() {
    plugin::dropLogger();
    forgetLines();
  }
};

std::string words(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; i++) text += (i ? " word" : "word") + std::to_string(i);
  return text;
}

}  // namespace

TEST_CASE("a short line is one line") {
  const Logger logger;
  WEFT_LOG(warn, "as short as %d", 1);
  CHECK(linesOf(NCCL_LOG_WARN) == "NET/weft: as short as 1\n");
  CHECK(countOf(NCCL_LOG_INFO) == 0);
}

TEST_CASE("a long warning is one warning with its beginning, and its rest follows at info") {
  const Logger logger;
  const std::string text = words(400);
  REQUIRE(text.size() > 2048);
  WEFT_LOG(warn, "%s", text.c_str());
  const std::string warning = linesOf(NCCL_LOG_WARN);
  CHECK(countOf(NCCL_LOG_WARN) == 1);
  CHECK(warning.size() < 900);
  CHECK(warning.starts_with("NET/weft: word0 word1 "));
  CHECK(warning.ends_with(" ...\n"));
  // Expect: no word is lost or broken.
  std::string all = warning + linesOf(NCCL_LOG_INFO);
  for (const std::string cut : {" ...\n", "NET/weft: ...", "NET/weft: ", "\n"})
    for (size_t at; (at = all.find(cut)) != std::string::npos;) all.erase(at, cut.size());
  CHECK(all == text);
}

TEST_CASE("a long line without a space is cut where it has to be") {
  const Logger logger;
  WEFT_LOG(info, "%s", std::string(1700, 'x').c_str());
  CHECK(countOf(NCCL_LOG_INFO) == 3);
}
