// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <csignal>
#include <dirent.h>
#include <fstream>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/ofi/device.h"
#include "tests/support/catch.h"
#include "tests/system/ofi/lanes.h"

// What opening libfabric may not do to the process it is opened in. A program of its own: the library's
// constructors run once.
using namespace weft;
using namespace weft::test;

namespace {

void ours(int) {}

size_t threadCount() {
  size_t count = 0;
  DIR* tasks = ::opendir("/proc/self/task");
  while (tasks && ::readdir(tasks)) count++;
  if (tasks) ::closedir(tasks);
  return count - 2;
}

size_t environmentSize() {
  size_t count = 0;
  while (environ[count]) count++;
  return count;
}

struct sigaction actionOf(int number) {
  struct sigaction action {};
  ::sigaction(number, nullptr, &action);
  return action;
}

}  // namespace

TEST_CASE("libfabric takes no signal, starts no thread and changes no variable") {
  struct sigaction mine {};
  mine.sa_handler = ours;
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) REQUIRE(::sigaction(number, &mine, nullptr) == 0);
  const auto fault = actionOf(SIGSEGV).sa_handler;
  const size_t variables = environmentSize();

  const std::string provider = oneProcessProviders().at(0);
  OfiSide a(provider), b(provider);
  REQUIRE(connectBoth(a, b));

  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) CHECK(actionOf(number).sa_handler == ours);
  CHECK(actionOf(SIGSEGV).sa_handler == fault);
  CHECK(environmentSize() == variables);
  CHECK(threadCount() == 1);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) ::signal(number, SIG_DFL);
}

// Where the kernel does not copy registered pages for children, libibverbs keeps them from children instead.
TEST_CASE("a forked child that has no registered page has everything else") {
  const OfiSide side(oneProcessProviders().at(0));
  auto& device = static_cast<ofi::OfiDevice&>(*side.device);
  const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  auto* page = device.helloSource() - reinterpret_cast<uintptr_t>(device.helloSource()) % bytes;
  REQUIRE(::madvise(page, bytes, MADV_DONTFORK) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);
    ::_exit(device.helloMemory().blob().empty() || device.info().name.empty());
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(::madvise(page, bytes, MADV_DOFORK) == 0);
}

// What libfabric's shm leaves when its process is killed, of a process that had our number: it names its
// files PID:DOMAIN:ENDPOINT, and believes one whose header names a process that lives.
TEST_CASE("files of a killed process with our number do not keep shm from opening") {
  std::vector<std::string> left;
  for (int domain = 0; domain < 2; domain++) {
    for (int endpoint = 0; endpoint < 8; endpoint++)
      left.push_back("/dev/shm/" + std::to_string(::getpid()) + ":" + std::to_string(domain) + ":" +
                     std::to_string(endpoint));
  }
  const std::vector<int32_t> header(1024, ::getppid());
  for (const std::string& path : left) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(header.data()), 4096);
  }
  {
    const OfiSide side("shm");
    CHECK(side.lane);
  }
  for (const std::string& path : left) CHECK(::unlink(path.c_str()) == 0);
}

TEST_CASE("a library that is not there is named, with what to do") {
  Config config;
  config.libfabric = "/nonexistent/libfabric.so.1";
  const auto made = ofi::makeTransport("", config);
  REQUIRE_FALSE(made);
  CHECK(made.error().code() == Code::unavailable);
  CHECK(made.error().message().find("/nonexistent/libfabric.so.1") != std::string::npos);
  CHECK(made.error().message().find("WEFT_LIBFABRIC") != std::string::npos);
}

TEST_CASE("a library that is something else is named, with what it lacks") {
  Config config;
  config.libfabric = "libm.so.6";
  const auto made = ofi::makeTransport("", config);
  REQUIRE_FALSE(made);
  CHECK(made.error().message().find("libm.so.6 has no fi_version") != std::string::npos);
}

TEST_CASE("a library that will not do hides none behind it") {
  CHECK(ofi::Library::openFirst({"/nonexistent/libfabric.so.1", "libm.so.6", "libfabric.so.1"}));
  const auto none = ofi::Library::openFirst({"libm.so.6", "/nonexistent/libfabric.so.1"});
  REQUIRE_FALSE(none);
  CHECK(none.error().message().find("libm.so.6 has no fi_version") != std::string::npos);
  CHECK(none.error().message().find("/nonexistent/libfabric.so.1") != std::string::npos);
}

TEST_CASE("an unknown provider is refused, with a reason that is remembered") {
  auto transport = OfiSide::REQUIRED(ofi::makeTransport("nosuch", Config()));
  CHECK_FALSE(transport->discover());
  REQUIRE(transport->refusals().size() == 1);
  CHECK(transport->refusals().front().what == "ofi:nosuch");
  CHECK_FALSE(transport->refusals().front().why.empty());
}

TEST_CASE("a filter that names nothing leaves nothing, and says so") {
  Config config;
  config.socketIfname = "=nosuchif";
  auto transport = OfiSide::REQUIRED(ofi::makeTransport("tcp;ofi_rxm", config));
  CHECK(OfiSide::REQUIRED(transport->discover()).empty());
  const auto refusals = transport->refusals();
  REQUIRE_FALSE(refusals.empty());
  CHECK(refusals.front().why.find("WEFT_SOCKET_IFNAME") != std::string::npos);
}

TEST_CASE("running out of descriptors is an error, and is over when there are some again") {
  OfiSide a(oneProcessProviders().at(0));
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  struct rlimit none = before;
  none.rlim_cur = 0;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  auto lane = a.queue->openEndpoint();
  auto queue = a.device->openQueue({});
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK_FALSE(lane);
  CHECK_FALSE(queue);
  CHECK(a.queue->openEndpoint());
}
