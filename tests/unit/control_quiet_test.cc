// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <ctime>
#include <fcntl.h>

#include "tests/unit/control_sockets.h"
#include "tests/unit/control_support.h"

using namespace weft;
using namespace weft::control;

namespace {

std::chrono::nanoseconds processTime() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

size_t threads() {
  size_t count = 0;
  DIR* directory = opendir("/proc/self/task");
  while (const dirent* entry = readdir(directory)) count += entry->d_name[0] != '.';
  closedir(directory);
  return count;
}

}  // namespace

TEST_CASE("idle links use next to no processor time") {
  Side a, b;
  auto listener = b.listen();
  const auto [near, far] = connect(*a.hub, *b.hub, *listener);
  const auto before = processTime();
  const auto start = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(milliseconds(1500));  // the subject of this test is time passing
  const auto used = processTime() - before;
  const auto passed = std::chrono::steady_clock::now() - start;
  CHECK(used * 100 < passed);  // below 1 %, two hubs together
  CHECK(near->alive());
}

TEST_CASE("hubs come and go without leaving threads or descriptors") {
  const size_t descriptors = openDescriptors().size();
  const size_t tasks = threads();
  for (int i = 0; i < 100; i++) {
    Side a, b;
    auto listener = b.listen();
    connect(*a.hub, *b.hub, *listener);
  }
  CHECK(openDescriptors().size() == descriptors);
  CHECK(eventually([&] { return threads() == tasks; }));
}

TEST_CASE("every descriptor of a hub closes on exec") {
  const auto before = openDescriptors();
  Side a, b;
  auto listener = b.listen();
  connect(*a.hub, *b.hub, *listener);
  size_t checked = 0;
  for (const int fd : openDescriptors()) {
    if (std::find(before.begin(), before.end(), fd) != before.end()) continue;
    const int flags = fcntl(fd, F_GETFD);
    if (flags < 0) continue;  // closed meanwhile
    CHECK((flags & FD_CLOEXEC) != 0);
    checked++;
  }
  CHECK(checked >= 8);
}

TEST_CASE("a thousand connections over one link leave nothing behind") {
  Side a, b;
  auto listener = b.listen();
  connect(*a.hub, *b.hub, *listener);
  const size_t descriptors = openDescriptors().size();
  for (int i = 0; i < 1000; i++) {
    auto one = b.listen();
    connect(*a.hub, *b.hub, *one);
  }
  CHECK(openDescriptors().size() == descriptors);
}
