// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/sharp.h"

#include <chrono>
#include <dlfcn.h>

#include "src/base/config.h"
#include "src/base/log.h"
#include "src/coll/offload.h"
#include "src/coll/ring.h"
#include "tests/coll/gpu_memory.h"
#include "tests/coll/scenarios.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"

// Groups whose operations libsharp_coll does, over a library of ours with its interface and the loop
// provider.
using namespace weft;
using namespace weft::coll;
using namespace weft::test;

namespace {

const char* standIn() {
  return environmentValue("SHARP_STAND_IN");
}

template <class Function>
Function* control(const char* name) {
  static void* const library = dlopen(standIn(), RTLD_NOW);
  REQUIRE(library);
  auto* found = reinterpret_cast<Function*>(dlsym(library, name));
  REQUIRE(found);
  return found;
}

void fail(const char* what, int rank, int code, int times = 1) {
  control<void(const char*, int, int, int)>("sharpStandInFail")(what, rank, code, times);
}

int leftOpen() {
  return control<int()>("sharpStandInContexts")();
}

struct Switches {
  explicit Switches(bool old, bool canStream) { set(old, canStream); }
  ~Switches() { set(false, true); }
  Switches(const Switches&) = delete;
  Switches& operator=(const Switches&) = delete;
  static void set(bool old, bool canStream) {
    control<void(bool, bool)>("sharpStandInSwitches")(old, canStream);
  }
};

Config settings() {
  Config config;
  config.collnet = "sharp";
  config.libsharp = standIn();
  config.collnetTimeout = Milliseconds(3000);
  return config;
}

// All ranks' answers to being connected.
std::vector<std::string> open(Ranks& ranks) {
  std::vector<std::string> failures(static_cast<size_t>(ranks.count()));
  ranks.each([&](int rank) {
    auto group = openGroup(ranks.meshOptions(rank));
    if (group)
      ranks.put(rank, group.take());
    else
      failures[static_cast<size_t>(rank)] = group.error().message();
  });
  return failures;
}

void form(Ranks& ranks) {
  for (const std::string& failure : open(ranks)) REQUIRE(failure == "");
}

}  // namespace

TEST_CASE("sharp: every size of vector comes out right, and nothing of the library is left") {
  for (const int count : {1, 2, 5}) {
    INFO(count << " ranks");
    {
      Ranks ranks(count, settings());
      form(ranks);
      checkSizes(ranks);
    }
    CHECK(leftOpen() == 0);
  }
}

TEST_CASE("sharp: types and operations that the switches do not know are done by the ranks") {
  Ranks ranks(3, settings());
  form(ranks);
  checkTypes(ranks);
}

TEST_CASE("sharp: windows, by the switches and where these only reduce whole vectors") {
  for (const bool stream : {true, false}) {
    const Switches these(false, stream);
    Ranks ranks(4, settings());
    form(ranks);
    checkWindows(ranks);
  }
}

TEST_CASE("sharp: the library has NVIDIA's defaults, and NCCL is told what the switches of all jobs do") {
  const auto told = [](ElementType type, ReduceOp op) { return offloadReduces(settings(), type, op); };
  {
    Ranks ranks(2, settings());
    form(ranks);
    CHECK(std::string(environmentValue("SHARP_COLL_ENABLE_SAT")) == "1");
    CHECK(told(ElementType::f32, ReduceOp::sum));
    CHECK(told(ElementType::bf16, ReduceOp::max));
    CHECK_FALSE(told(ElementType::f32, ReduceOp::prod));
    CHECK(offloadReduces({}, ElementType::f32, ReduceOp::prod));
  }
  const Switches old(true, true);
  Ranks ranks(2, settings());
  form(ranks);
  CHECK(told(ElementType::f16, ReduceOp::sum));
  CHECK_FALSE(told(ElementType::bf16, ReduceOp::max));
  CHECK_FALSE(told(ElementType::i8, ReduceOp::sum));
}

TEST_CASE("sharp: no group is formed where GPU memory would meet what the switches do not do") {
  const Switches whole(false, false);
  Config config = settings();
  config.libcuda = cudaStandIn();
  {
    Ranks ranks(2, config);
    for (const std::string& failure : open(ranks))
      CHECK(failure.find("SHARP_COLL_ENABLE_SAT=1") != std::string::npos);
  }
  CHECK(leftOpen() == 0);
  Ranks ranks(2, settings());
  form(ranks);
}

TEST_CASE("sharp: memory of a group that is closed with an operation under way goes back to its job") {
  {
    Ranks ranks(2, settings());
    form(ranks);
    std::vector<std::byte> bytes(1000);
    MemoryDesc desc;
    desc.address = bytes.data();
    desc.length = bytes.size();
    const auto memory = ranks.group(0).registerMemory(desc);
    REQUIRE(memory);
    Operation operation = allReduce(1000);
    operation.send = operation.receive = bytes.data();
    operation.sendMemory = operation.receiveMemory = *memory;
    REQUIRE(ranks.group(0).start(operation).request);
  }
  CHECK(leftOpen() == 0);
}

TEST_CASE("sharp: eight operations at once, ranks that are ahead of others") {
  Ranks ranks(4, settings());
  form(ranks);
  checkManyAtOnce(ranks, 10);
}

TEST_CASE("sharp: where one rank gets no place in the switches no rank has a group, and all name it") {
  for (const char* what : {"init", "comm"}) {
    for (const int culprit : {0, 2}) {
      INFO(what << " of rank " << culprit);
      fail(what, culprit, -20);
      Ranks ranks(3, settings());
      for (const std::string& failure : open(ranks)) {
        CHECK(failure.find(format("rank %d", culprit)) != std::string::npos);
        CHECK(failure.find("Resource not available (-20)") != std::string::npos);
      }
    }
  }
  CHECK(leftOpen() == 0);
}

TEST_CASE("sharp: without the library no rank has a group, and the reason says what to set") {
  Config config = settings();
  config.libsharp = "/nowhere/libsharp_coll.so";
  Ranks ranks(2, config);
  for (const std::string& failure : open(ranks)) {
    CHECK(failure.find("/nowhere/libsharp_coll.so") != std::string::npos);
    CHECK(failure.find("WEFT_LIBSHARP") != std::string::npos);
  }
}

TEST_CASE("sharp: a tree that another job has locked is tried again, and not for ever") {
  Config config = settings();
  Ranks ranks(2, config);
  form(ranks);
  fail("start", 1, sharp::kLockFailed, 20);
  Run run(ranks, allReduce(10000), 3);
  SeededRandom random(1);
  run.finish(random);
  run.check();
  fail("start", 1, sharp::kLockFailed, 1'000'000'000);
  Run stuck(ranks, allReduce(10000), 4);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20 * patience());
  while (!stuck.failure(1)) {
    stuck.step(1);
    REQUIRE(std::chrono::steady_clock::now() < limit);
  }
  CHECK(stuck.failure(1)->find("stays locked") != std::string::npos);
  fail("start", 1, 0, 0);  // no more
}

TEST_CASE("sharp: an operation that the library refuses breaks the group on all ranks, with its words") {
  Ranks ranks(3, settings());
  form(ranks);
  fail("start", 1, -20);
  Run run(ranks, allReduce(10000), 3);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
  for (const int rank : {1, 0, 2})
    while (!run.failure(rank)) {
      run.step(rank);
      REQUIRE(std::chrono::steady_clock::now() < limit);
    }
  for (const int rank : {0, 1, 2})
    CHECK(run.failure(rank)->find("rank 1: libsharp_coll began no operation: Resource not available (-20)") !=
          std::string::npos);
}

TEST_CASE("sharp: a rank that goes while others wait is named by all of them") {
  Ranks ranks(3, settings());
  form(ranks);
  Run run(ranks, allReduce(100000), 1);
  for (int pass = 0; pass < 1000; pass++)
    for (const int rank : {0, 1}) run.step(rank);
  run.leave(2);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
  for (const int rank : {0, 1})
    while (!run.step(rank)) REQUIRE(std::chrono::steady_clock::now() < limit);
  for (const int rank : {0, 1})
    CHECK(run.failure(rank).value_or("").find("rank 2 left the group") != std::string::npos);
}

TEST_CASE("sharp: a rank that dies before any other has looked is named by all of them") {
  Ranks ranks(3, settings());
  const std::string path = standIn();
  std::unique_ptr<Mesh> dyingMesh;  // goes after the job
  std::unique_ptr<SharpJob> dyingJob;
  ranks.each([&](int rank) {
    auto mesh = Mesh::open(ranks.meshOptions(rank));
    auto library = SharpLibrary::open(path);
    if (!mesh || !library) return;
    auto job = SharpJob::open(**mesh, library.take());
    if (!job) return;
    if (rank == 2) {
      dyingMesh = mesh.take();
      dyingJob = job.take();
      return;
    }
    const Mesh& all = **mesh;
    auto peers = std::make_unique<PeersBackend>(mesh.take(), PeersOptions());
    ranks.put(rank, ringOf(all, std::make_unique<SharpBackend>(job.take(), std::move(peers))));
  });
  REQUIRE((ranks.has(0) && ranks.has(1) && dyingJob));
  const Vectors first(ranks.group(0), 10'000, 1), second(ranks.group(1), 10'000, 2);
  // Event: rank 2's connections end without a goodbye.
  dyingJob.reset();
  dyingMesh.reset();
  std::vector<GroupRequest*> requests;
  for (const Vectors* data : {&first, &second}) {
    Operation operation = allReduce(10'000);
    operation.send = data->send.data();
    operation.receive = const_cast<std::byte*>(data->receive.data());
    operation.sendMemory = data->sendMemory;
    operation.receiveMemory = data->receiveMemory;
    const Started started = ranks.group(data == &first ? 0 : 1).start(operation);
    requests.push_back(started.request);  // null: the rank has found out already
  }
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
  for (const int rank : {0, 1}) {
    GroupRequest* request = requests[static_cast<size_t>(rank)];
    while (request && ranks.group(rank).test(request).ok) REQUIRE(std::chrono::steady_clock::now() < limit);
    INFO(ranks.group(rank).error().message());
    CHECK(ranks.group(rank).error().message().find("rank 2") != std::string::npos);
  }
}

TEST_CASE("sharp: a flush has its own place beside 64 operations, and one too many is an error") {
  Ranks ranks(2, settings());
  form(ranks);
  const Vectors data(ranks.group(0), 64, 1);
  const auto flush = [&] { return ranks.group(0).flush(data.receive.data(), 64, data.receiveMemory); };
  std::vector<std::unique_ptr<Run>> runs;
  for (uint64_t i = 0; i < 64; i++) runs.push_back(std::make_unique<Run>(ranks, allReduce(64), i));
  for (const auto& run : runs) run->step(0);
  for (int i = 0; i < 64; i++) REQUIRE(flush().request);
  const Started more = flush();
  CHECK_FALSE(more.ok);
  CHECK_FALSE(more.request);
  CHECK(ranks.group(0).error().message().find("64 flushes are under way") != std::string::npos);
}

TEST_CASE("sharp: memory that the library does not take is refused with its words") {
  Ranks ranks(2, settings());
  form(ranks);
  fail("memory", 0, -20);
  std::vector<std::byte> bytes(100);
  MemoryDesc desc;
  desc.address = bytes.data();
  desc.length = bytes.size();
  const auto refused = ranks.group(0).registerMemory(desc);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find("Resource not available") != std::string::npos);
}
