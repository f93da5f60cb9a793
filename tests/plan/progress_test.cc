// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/progress.h"

#include <string>
#include <unistd.h>

#include "src/base/fd.h"
#include "tests/support/catch.h"

// What a long plan says of itself, to a pipe in place of a terminal.
namespace weft::plan {

namespace {

std::string toldWith(const Progress::Pace& pace) {
  int ends[2] = {-1, -1};
  REQUIRE(::pipe(ends) == 0);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  {
    Progress progress(writer.get(), 3, pace);
    progress.begin("8 GPUs");
    progress.begin("16 GPUs");
    for (int i = 0; i < 256; ++i) progress.computed();
  }
  writer.reset();
  std::string text(4096, '\0');
  const ssize_t got = ::read(reader.get(), text.data(), text.size());
  REQUIRE(got >= 0);
  text.resize(static_cast<size_t>(got));
  return text;
}

}  // namespace

TEST_CASE("a long plan says on a line which part it is at, and a short one nothing") {
  Progress::Pace pace;
  CHECK(toldWith(pace).empty());
  pace.silence = Progress::Clock::duration::zero();
  CHECK(toldWith(pace) == "weft plan: 2 of 3: 16 GPUs, 256 steps computed, 0:00 so far\n");
}

}  // namespace weft::plan
