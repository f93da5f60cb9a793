// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/agg/topology.h"

#include "tests/support/catch.h"

// The topology file of aggregation daemons.
using namespace weft;
using namespace weft::agg;

namespace {

std::string refusal(const char* text) {
  const auto read = parseTopology(text);
  return read ? "" : read.error().message();
}

}  // namespace

TEST_CASE("a topology of a root and its leaves") {
  const auto read =
      parseTopology("# ours\nroot host0:7391 -\n\nleaf1  host1:7391\troot # rack 1\nleaf2 host2:7391 root");
  REQUIRE(read);
  REQUIRE(read->size() == 3);
  CHECK(findEntry(*read, "leaf1")->address == "host1:7391");
  CHECK(findEntry(*read, "leaf1")->parent == "root");
  CHECK(findEntry(*read, "root")->parent.empty());
  CHECK(findEntry(*read, "leaf3") == nullptr);
}

TEST_CASE("what cannot be a topology is refused by its line or its names") {
  CHECK(refusal("root host0 -").find("line 1 is not") != std::string::npos);
  CHECK(refusal("root host0:1").find("line 1 is not") != std::string::npos);
  CHECK(refusal("a h:1 -\na h:2 -").find("line 2 describes a again") != std::string::npos);
  CHECK(refusal("a h:1 b").find("the parent b, which no line describes") != std::string::npos);
  CHECK(refusal("a h:1 b\nb h:2 a").find("its own parent") != std::string::npos);
  CHECK(refusal("a h:1 a").find("its own parent") != std::string::npos);
  CHECK(refusal("a h:1 -\nb h:2 a\nc h:3 b").find("more than one level") != std::string::npos);
}
