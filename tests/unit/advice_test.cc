// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/advice.h"

#include <cerrno>
#include <fcntl.h>
#include <set>
#include <string_view>
#include <sys/resource.h>
#include <vector>

#include "src/base/net/sockets.h"
#include "src/base/process.h"
#include "tests/support/catch.h"

using namespace weft;

namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The limit of descriptors while it lives.
class Descriptors {
 public:
  explicit Descriptors(rlim_t soft) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit lower{soft, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &lower);
  }
  ~Descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  rlim_t hard() const { return before_.rlim_max; }
  static rlim_t soft() {
    rlimit now{};
    ::getrlimit(RLIMIT_NOFILE, &now);
    return now.rlim_cur;
  }

 private:
  rlimit before_{};
};

constexpr PortRange kPorts{21850, 21853};

}  // namespace

TEST_CASE("an errno of a limit is never alone: the next step follows") {
  for (const int errnum : {EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOSPC, EDQUOT, EACCES, EPERM, EROFS, EADDRINUSE,
                           EADDRNOTAVAIL, ECONNREFUSED, ENETUNREACH, EHOSTUNREACH, ENETDOWN}) {
    CAPTURE(errnoText(errnum));
    CHECK_FALSE(nextStep(errnum).empty());
    const std::string message = Error(Code::system, "doing", "a thing", errnum).message();
    CHECK(message == "doing: a thing (" + errnoText(errnum) + "); " + nextStep(errnum));
  }
  CHECK(Error(Code::system, "doing", "a thing", EINVAL).message() == "doing: a thing (Invalid argument)");
  CHECK(Error(Code::system, "doing", nextStep(EROFS), EROFS).message() ==
        "doing: " + nextStep(EROFS) + " (Read-only file system)");
}

TEST_CASE("a socket that the limit of descriptors refuses names that limit") {
  const Descriptors few(64);
  std::vector<Fd> all;
  while (true) {
    Fd one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!one) break;
    all.push_back(std::move(one));
  }
  const auto refused = listenOn(SocketAddress::loopback(), "listening");
  REQUIRE_FALSE(refused);
  CHECK(has(refused.error().message(), "this process may have 64 descriptors: raise ulimit -n"));
}

TEST_CASE("the soft limit of descriptors becomes the hard one, once") {
  const Descriptors few(256);
  CHECK(raiseDescriptorLimit() == "256 to " + std::to_string(few.hard()));
  CHECK(Descriptors::soft() == few.hard());
  CHECK(raiseDescriptorLimit().empty());
}

TEST_CASE("a range of ports: what it may be") {
  CHECK(parsePortRange("")->any());
  CHECK(parsePortRange("20000-20999")->count() == 1000);
  CHECK(parsePortRange("20000")->count() == 1);
  for (const char* wrong : {"0-5", "9-8", "a-b", "1-70000", "5-", "-5", "1-2-3", "20000 - 20999"}) {
    CAPTURE(wrong);
    const auto refused = parsePortRange(wrong);
    REQUIRE_FALSE(refused);
    CHECK(has(refused.error().message(), "WEFT_PORT_RANGE"));
  }
}

TEST_CASE("listeners stay within their range, and say when it is used up") {
  std::vector<Fd> all;
  std::set<uint16_t> ports;
  for (int i = 0; i < kPorts.count(); i++) {
    auto one = listenOn(SocketAddress::loopback(), "listening", Hears::itsFamily, kPorts);
    REQUIRE(one);
    ports.insert(localAddress(one->get()).port());
    all.push_back(one.take());
  }
  CHECK(ports.size() == 4);
  CHECK(*ports.begin() >= kPorts.first);
  CHECK(*ports.rbegin() <= kPorts.last);
  const auto none = listenOn(SocketAddress::loopback(), "listening", Hears::itsFamily, kPorts);
  REQUIRE_FALSE(none);
  CHECK(has(none.error().message(), "every port of WEFT_PORT_RANGE=21850-21853 is in use"));
}
