// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "weft/result.h"

#include <cerrno>

#include "tests/support/catch.h"

using namespace weft;

namespace {

Result<int> half(int n) {
  if (n % 2) return Error(Code::invalidArgument, "halving", "the number is odd; give an even one", EINVAL);
  return n / 2;
}

Result<int> quarter(int n) {
  TRY(int h, half(n));
  TRY(half(h));
  return half(h);
}

Status check(int n) {
  TRY(quarter(n));
  return {};
}

}  // namespace

static_assert(sizeof(Error) == sizeof(void*));
static_assert(sizeof(Status) == sizeof(void*));

TEST_CASE("TRY passes values down and errors up") {
  CHECK(*quarter(8) == 2);
  CHECK(check(8));
  const Status failed = check(6);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code() == Code::invalidArgument);
  CHECK(failed.error().message() == "halving: the number is odd; give an even one (Invalid argument)");
}

TEST_CASE("errors copy deeply") {
  const Error first(Code::remote, "sending", "peer gone");
  Error second = first;
  second = Error(Code::timeout, "waiting", "");
  CHECK(first.message() == "sending: peer gone");
  CHECK(second.message() == "waiting");
}
