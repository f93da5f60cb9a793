// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <dlfcn.h>
#include <utility>

#include "providers/ofi/queue.h"
#include "tests/support/catch.h"
#include "tests/system/ofi/lanes.h"

// What a Queue does where a completion queue is smaller than was asked for, or fails, and where nothing is
// left to post with.
using namespace weft;
using namespace weft::test;

namespace {

const std::string kOwnTcp = WEFT_OWN_TCP;

Config limited() {
  Config config = ofiConfig();
  config.libfabric = WEFT_LIMITED_LIBFABRIC;
  return config;
}

// A variable of that library, as long as this lives.
template <class T>
class Limit {
 public:
  Limit(const char* name, T value) {
    void* const library = ::dlopen(WEFT_LIMITED_LIBFABRIC, RTLD_NOW | RTLD_LOCAL);
    variable_ = library ? static_cast<T*>(::dlsym(library, name)) : nullptr;
    REQUIRE(variable_);
    before_ = std::exchange(*variable_, value);
  }
  ~Limit() { *variable_ = before_; }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  T* variable_;
  T before_{};
};

}  // namespace

TEST_CASE("no more works are taken than a completion queue of the size that was granted can tell of") {
  const Limit<size_t> small("largestQueue", 2000);
  OfiSide a(kOwnTcp, 1 << 20, limited()), b(kOwnTcp, 1 << 20, limited());
  REQUIRE(connectBoth(a, b));
  const uint32_t granted = a.queue->depths().sends;
  CHECK(granted < QueueDepths{}.sends);
  uint32_t taken = 0;
  while (taken < QueueDepths{}.sends && a.post(a.work(Opcode::write, 0, 64, taken))) taken++;
  CHECK(taken <= granted);
  CHECK(pollUntil({&a, &b}, [&] { return a.count(CompletionKind::sent) == taken; }));
}

TEST_CASE("a Queue whose completion queue failed opens no more lanes, and says why") {
  OfiSide a(kOwnTcp, 1 << 20, limited()), b(kOwnTcp, 1 << 20, limited());
  REQUIRE(connectBoth(a, b));
  {
    const Limit<bool> failing("queuesFail", true);
    REQUIRE(pollUntil({&a}, [&] { return a.count(CompletionKind::broken, false) == 1; }));
  }
  const auto lane = a.queue->openEndpoint();
  REQUIRE_FALSE(lane);
  CHECK(lane.error().code() == Code::unavailable);
  CHECK(lane.error().message().find("the completion queue failed") != std::string::npos);
}

TEST_CASE("a lane that has nothing to knock with is not fenced by that") {
  OfiSide a(kOwnTcp), b(kOwnTcp);
  REQUIRE(connectBoth(a, b));
  ofi::OperationPool& pool = static_cast<ofi::OfiQueue&>(*a.queue).operations();
  std::vector<ofi::Operation*> all;
  while (ofi::Operation* one = pool.take()) all.push_back(one);
  a.lane->retire();
  CHECK_FALSE(pollUntil(
      {&a}, [&] { return a.count(CompletionKind::retired) > 0; }, std::chrono::milliseconds(100)));
  for (ofi::Operation* one : all) pool.give(one);
  CHECK(pollUntil({&a, &b}, [&] { return a.count(CompletionKind::retired, true) == 1; }));
}
