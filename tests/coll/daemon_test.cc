// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/coll/tree_of_daemons.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"

// An aggregation daemon by itself: where it listens, and that members of one group cannot harm another.
using namespace weft;
using namespace weft::coll;
using namespace weft::test;

namespace {

bool canDial(const std::string& host, uint16_t port) {
  Patience shortly(Clock::system(), Milliseconds(2000 * patience()));
  return static_cast<bool>(dialDaemon(host + ":" + std::to_string(port), shortly));
}

Result<std::unique_ptr<agg::Daemon>> startWith(const std::string& secret, const std::string& listen) {
  agg::DaemonOptions options = daemonOptions();
  options.secret = secret;
  options.listen = listen;
  return agg::Daemon::start(std::move(options));
}

}  // namespace

// 127.0.0.2 stands for the addresses by which other hosts come: a socket of 127.0.0.1 alone does not hear it.
TEST_CASE("daemon: without a secret it listens on the loopback address alone") {
  const auto open = startWith("", "");
  REQUIRE(open);
  CHECK((*open)->isOpenToThisHostOnly());
  CHECK(canDial("127.0.0.1", (*open)->port()));
  CHECK_FALSE(canDial("127.0.0.2", (*open)->port()));
  const auto guarded = startWith("open sesame", "");
  REQUIRE(guarded);
  CHECK_FALSE((*guarded)->isOpenToThisHostOnly());
  CHECK(canDial("127.0.0.2", (*guarded)->port()));
}

TEST_CASE("daemon: an address that other hosts reach wants a secret") {
  for (const char* listen : {"0.0.0.0:0", "[::]:0", ":0"}) {
    INFO(listen);
    const auto refused = startWith("", listen);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == Code::config);
    CHECK(refused.error().message().find("WEFT_AGGD_SECRET") != std::string::npos);
  }
  CHECK(startWith("", "127.0.0.1:0"));
  CHECK(startWith("open sesame", "0.0.0.0:0"));
}
