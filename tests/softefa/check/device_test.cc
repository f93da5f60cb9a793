// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Finding devices, and completion events.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <string>

#include "tests/softefa/check/node.h"
#include "tests/softefa/settings.h"
#include "tests/support/catch.h"

using namespace softefa::check;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

// Settings for the length of a test.
class Exported {
 public:
  explicit Exported(std::initializer_list<std::pair<const char*, const char*>> values) {
    ::setenv("SOFTEFA_FABRIC", testFabric().c_str(), 1);
    for (const auto& [name, value] : values) {
      ::setenv(name, value, 1);
      names_.push_back(name);
    }
  }
  ~Exported() {
    for (const auto& name : names_) ::unsetenv(name.c_str());
  }
  Exported(const Exported&) = delete;
  Exported& operator=(const Exported&) = delete;

 private:
  std::vector<std::string> names_;
};

std::string content(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int devices() {
  int count = -1;
  ibv_free_device_list(ibv_get_device_list(&count));
  return count;
}

}  // namespace

TEST_CASE("as many NICs as wanted, at the PCI addresses and NUMA nodes given") {
  const Exported settings{
      {"SOFTEFA_NICS", "3"}, {"SOFTEFA_PCI", "0000:a0:1c.0,0001:b0:00.0"}, {"SOFTEFA_NUMA", "1,0"}};
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  REQUIRE(count == 3);
  CHECK(std::string(list[0]->name) == "rdmap160s28");
  const fs::path device = fs::path(list[0]->ibdev_path) / "device";
  CHECK(fs::canonical(device).filename() == "0000:a0:1c.0");
  CHECK(fs::canonical(device / "driver").filename() == "efa");
  CHECK(content(device / "numa_node") == "1");
  CHECK(fs::canonical(fs::path(list[1]->ibdev_path) / "device").filename() == "0001:b0:00.0");
  CHECK(content(fs::path(list[2]->ibdev_path) / "device" / "numa_node") == "-1");
  CHECK(content(fs::path(softefa::environment("SYSFS_PATH")) / "class/infiniband_verbs/abi_version") == "6");
  ibv_free_device_list(list);
}

TEST_CASE("no device where a setting is not understood") {
  for (const auto& [name, value] : {std::pair{"SOFTEFA_NICS", "9"},
                                    {"SOFTEFA_PCI", "10:1b.0"},
                                    {"SOFTEFA_NUMA", "x"},
                                    {"SOFTEFA_GENERATION", "newest"},
                                    {"SOFTEFA_STRICT", "much"},
                                    {"SOFTEFA_HOST", "a/b"},
                                    {"SOFTEFA_UNRESPONSIVE", "1h"}}) {
    INFO(name << "=" << value);
    const Exported settings{{name, value}};
    CHECK(devices() == 0);
  }
  const Exported none{{"SOFTEFA_NICS", "0"}};
  CHECK(devices() == 0);
}

TEST_CASE("an armed completion queue makes one event, and its descriptor readable") {
  Options options;
  options.events = true;
  Node a("a", options), b("b");
  REQUIRE(::fcntl(a.channel->fd, F_SETFL, O_NONBLOCK) == 0);
  const Target to = a.meet(b);
  const auto data = a.memory(8), in = b.memory(8);
  ibv_cq* const cq = ibv_cq_ex_to_cq(a.cq);
  ibv_cq* told = nullptr;
  void* context = nullptr;
  const auto sendOne = [&](uint64_t i) {
    REQUIRE(b.receive(i, in->piece(0, 8)) == 0);
    REQUIRE(a.send(i, to, data->piece(0, 8)) == 0);
  };
  sendOne(1);
  CHECK(a.take().vendor == 0);
  CHECK(ibv_get_cq_event(a.channel, &told, &context) == -1);  // was not armed
  CHECK(errno == EAGAIN);

  REQUIRE(ibv_req_notify_cq(cq, 0) == 0);
  sendOne(2);
  sendOne(3);
  pollfd ready{a.channel->fd, POLLIN, 0};
  REQUIRE(::poll(&ready, 1, 20000) == 1);  // without polling the queue: the device's thread does the work
  CHECK(ibv_get_cq_event(a.channel, &told, &context) == 0);
  CHECK(told == cq);
  ibv_ack_cq_events(cq, 1);
  CHECK(a.take().wrId == 2);
  CHECK(a.take().wrId == 3);
  CHECK(ibv_get_cq_event(a.channel, &told, &context) == -1);  // one for both
}

TEST_CASE("what is in use is not given up") {
  Node a("a");
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(a.cq)) == EBUSY);
  CHECK(ibv_dealloc_pd(a.pd) == EBUSY);
}

TEST_CASE("writes and reads of no bytes complete") {
  Options options;
  options.unsolicited = true;
  Node a("a", options), b("b", options);
  const Target to = a.meet(b);
  b.meet(a);
  const auto here = a.memory(8), there = b.memory(8);
  REQUIRE(a.write(1, to, here->piece(0, 0), *there, 0, 4) == 0);
  CHECK(a.take().vendor == 0);
  const Done note = b.take();
  CHECK(note.imm == 4);
  CHECK(note.byteLength == 0);
  REQUIRE(a.read(2, to, here->piece(0, 0), *there) == 0);
  CHECK(a.take().vendor == 0);
}
