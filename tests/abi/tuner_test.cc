// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
// The tuner's tables of the built library, called as NCCL calls them: after the network's init, in a table
// that NCCL has filled, with whatever else a caller may bring.
#include "nccl/tuner.h"

#include <cmath>
#include <fstream>
#include <unistd.h>

#include "tests/abi/driver.h"

using namespace weft::abi;

namespace {

template <class Tuner>
constexpr int kTunerVersion = 0;
template <>
constexpr int kTunerVersion<ncclTuner_v2_t> = 2;
template <>
constexpr int kTunerVersion<ncclTuner_v3_t> = 3;
template <>
constexpr int kTunerVersion<ncclTuner_v4_t> = 4;
template <>
constexpr int kTunerVersion<ncclTuner_v5_t> = 5;
template <>
constexpr int kTunerVersion<ncclTuner_v6_t> = 6;

#define ALL_TUNERS ncclTuner_v2_t, ncclTuner_v3_t, ncclTuner_v4_t, ncclTuner_v5_t, ncclTuner_v6_t
#define COST_TUNERS ncclTuner_v3_t, ncclTuner_v4_t, ncclTuner_v5_t, ncclTuner_v6_t

constexpr float kNcclCost = 50;

// What getCollInfo works on: NCCL's costs, or for v2 its two answers.
struct Asked {
  std::array<float, NCCL_NUM_ALGORITHMS * NCCL_NUM_PROTOCOLS> costs{};
  int algorithm = NCCL_ALGO_UNDEF;
  int protocol = NCCL_PROTO_UNDEF;
  int channels = 0;

  Asked() {
    costs.fill(kNcclCost);
    at(NCCL_ALGO_TREE, NCCL_PROTO_LL128) = NCCL_ALGO_PROTO_IGNORE;
  }
  float& at(int a, int p) { return costs[static_cast<size_t>(a * NCCL_NUM_PROTOCOLS + p)]; }
  bool operator==(const Asked&) const = default;
};

// NCCL's side of one communicator's tuner.
template <class Tuner>
class TunerUse {
 public:
  TunerUse() : library_(openPlugin()) {
    const std::string symbol = "ncclTunerPlugin_v" + std::to_string(kTunerVersion<Tuner>);
    table = static_cast<const Tuner*>(dlsym(library_, symbol.c_str()));
    REQUIRE(table != nullptr);
  }
  ~TunerUse() { dlclose(library_); }
  TunerUse(const TunerUse&) = delete;
  TunerUse& operator=(const TunerUse&) = delete;

  ncclResult_t init(size_t ranks, size_t nodes, ncclDebugLogger_t logger = &recordLine) {
    if constexpr (kTunerVersion<Tuner> >= 5)
      return table->init(&context, 1, ranks, nodes, logger, nullptr, nullptr);
    else
      return table->init(ranks, nodes, logger, &context);
  }

  ncclResult_t ask(Asked& asked, int collective = ncclFuncAllReduce, size_t bytes = 1 << 20) {
    const auto function = static_cast<ncclFunc_t>(collective);
    auto* const costs = reinterpret_cast<float**>(asked.costs.data());
    if constexpr (kTunerVersion<Tuner> == 2)
      return table->getCollInfo(context, function, bytes, 0, 0, 1, &asked.algorithm, &asked.protocol,
                                &asked.channels);
    else if constexpr (kTunerVersion<Tuner> == 3)
      return table->getCollInfo(context, function, bytes, 1, costs, NCCL_NUM_ALGORITHMS, NCCL_NUM_PROTOCOLS,
                                &asked.channels);
    else
      return table->getCollInfo(context, function, bytes, 1, costs, NCCL_NUM_ALGORITHMS, NCCL_NUM_PROTOCOLS,
                                0, &asked.channels);
  }

  ncclResult_t finish(void* which) {
    if constexpr (requires { table->finalize; })
      return table->finalize(which);
    else
      return table->destroy(which);
  }
  ncclResult_t finish() { return finish(std::exchange(context, nullptr)); }

  const Tuner* table = nullptr;
  void* context = nullptr;

 private:
  void* library_;
};

}  // namespace

TEST_CASE("the library exports the tuner's tables v2 to v6") {
  void* library = openPlugin();
  REQUIRE(library != nullptr);
  for (int version = 0; version < 12; version++) {
    const std::string symbol = "ncclTunerPlugin_v" + std::to_string(version);
    CHECK((dlsym(library, symbol.c_str()) != nullptr) == (version >= 2 && version <= 6));
  }
  dlclose(library);
}

TEMPLATE_TEST_CASE("without weft's network the tuner changes nothing", "", ALL_TUNERS) {
  forgetLines();
  TunerUse<TestType> tuner;
  CHECK(std::string(tuner.table->name) == "weft");
  REQUIRE(tuner.init(16, 2) == ncclSuccess);
  Asked asked;
  CHECK(tuner.ask(asked) == ncclSuccess);
  CHECK(asked == Asked());
  CHECK(linesOf(NCCL_LOG_INFO).find("TUNER/weft: weft's network is not in use") != std::string::npos);
  CHECK(tuner.finish() == ncclSuccess);
}

TEMPLATE_TEST_CASE("LL128 between nodes is priced out where lines are not promised", "", COST_TUNERS) {
  Driver<ncclNet_v12_t> driver("loop");
  REQUIRE(driver.init() == ncclSuccess);
  TunerUse<TestType> tuner;
  REQUIRE(tuner.init(16, 2) == ncclSuccess);
  for (int collective = ncclFuncBroadcast; collective <= ncclFuncAllReduce; collective++) {
    Asked asked;
    CHECK(tuner.ask(asked, collective) == ncclSuccess);
    for (int a = 0; a < NCCL_NUM_ALGORITHMS; a++) {
      CHECK(asked.at(a, NCCL_PROTO_LL) == kNcclCost);
      CHECK(asked.at(a, NCCL_PROTO_SIMPLE) == kNcclCost);
      if (a == NCCL_ALGO_TREE)
        CHECK(asked.at(a, NCCL_PROTO_LL128) == NCCL_ALGO_PROTO_IGNORE);
      else
        CHECK(asked.at(a, NCCL_PROTO_LL128) > 1e8F);
    }
    CHECK(asked.channels == 0);
  }
  CHECK(tuner.finish() == ncclSuccess);
  REQUIRE(tuner.init(8, 1) == ncclSuccess);  // on one node no message is ours
  Asked asked;
  CHECK(tuner.ask(asked) == ncclSuccess);
  CHECK(asked == Asked());
  CHECK(tuner.finish() == ncclSuccess);
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("where lines are promised and nobody has numbers, the table stays NCCL's", "",
                   ALL_TUNERS) {
  Driver<ncclNet_v12_t> driver("loop(lines128=1)");
  REQUIRE(driver.init() == ncclSuccess);
  TunerUse<TestType> tuner;
  REQUIRE(tuner.init(16, 2) == ncclSuccess);
  Asked asked;
  CHECK(tuner.ask(asked) == ncclSuccess);
  CHECK(asked == Asked());
  CHECK(linesOf(NCCL_LOG_INFO).find("no published or measured numbers") != std::string::npos);
  CHECK(tuner.finish() == ncclSuccess);
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("the tuner stands aside for the user's own settings", "", ALL_TUNERS) {
  for (const auto& [name, value] : {std::pair{"NCCL_ALGO", "Ring"}, std::pair{"NCCL_PROTO", "Simple"},
                                    std::pair{"NCCL_TUNER_PLUGIN", "other"}, std::pair{"WEFT_TUNER", "0"}}) {
    setenv(name, value, 1);
    {
      Driver<ncclNet_v12_t> driver("loop");
      REQUIRE(driver.init() == ncclSuccess);
      TunerUse<TestType> tuner;
      REQUIRE(tuner.init(16, 2) == ncclSuccess);
      Asked asked;
      CHECK(tuner.ask(asked) == ncclSuccess);
      CHECK(asked == Asked());
      CHECK(linesOf(NCCL_LOG_INFO).find(name) != std::string::npos);
      CHECK(tuner.finish() == ncclSuccess);
      CHECK(driver.finalize() == ncclSuccess);
    }
    unsetenv(name);
  }
}

TEMPLATE_TEST_CASE("what was decided is said once, however many communicators there are", "", ALL_TUNERS) {
  Driver<ncclNet_v12_t> driver("loop");
  REQUIRE(driver.init() == ncclSuccess);
  TunerUse<TestType> tuner;
  forgetLines();
  void* contexts[3] = {};
  for (void*& context : contexts) {
    REQUIRE(tuner.init(16, 2) == ncclSuccess);
    context = tuner.context;
  }
  CHECK(countOf(NCCL_LOG_INFO) == 1);
  for (void* context : contexts) CHECK(tuner.finish(context) == ncclSuccess);
  tuner.context = nullptr;
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("odd arguments end in success and change nothing", "", ALL_TUNERS) {
  Driver<ncclNet_v12_t> driver("loop");
  REQUIRE(driver.init() == ncclSuccess);
  TunerUse<TestType> tuner;
  Asked asked;
  CHECK(tuner.ask(asked) == ncclSuccess);  // no context
  tuner.context = &asked;
  CHECK(tuner.ask(asked) == ncclSuccess);  // not ours
  CHECK(tuner.finish() == ncclSuccess);
  CHECK(tuner.finish(nullptr) == ncclSuccess);
  for (const auto& [ranks, nodes] : {std::pair<size_t, size_t>{0, 0}, {0, 2}, {2, 8}, {~size_t{0}, 1}}) {
    REQUIRE(tuner.init(ranks, nodes, nullptr) == ncclSuccess);
    CHECK(tuner.ask(asked) == ncclSuccess);
    CHECK(tuner.finish() == ncclSuccess);
  }
  REQUIRE(tuner.init(16, 2) == ncclSuccess);
  for (const int collective : {static_cast<int>(ncclFuncSendRecv), static_cast<int>(ncclNumFuncs)})
    CHECK(tuner.ask(asked, collective) == ncclSuccess);
  CHECK(asked == Asked());
  if constexpr (kTunerVersion<TestType> == 2)
    CHECK(tuner.table->getCollInfo(tuner.context, ncclFuncAllReduce, 8, 1, 1, 1, nullptr, nullptr, nullptr) ==
          ncclSuccess);
  else if constexpr (kTunerVersion<TestType> >= 4)
    CHECK(tuner.table->getCollInfo(tuner.context, ncclFuncAllReduce, 8, 0, nullptr, 7, 3, 0, nullptr) ==
          ncclSuccess);
  else
    CHECK(tuner.table->getCollInfo(tuner.context, ncclFuncAllReduce, 8, 0, nullptr, 7, 3, nullptr) ==
          ncclSuccess);
  CHECK(tuner.finish() == ncclSuccess);
  if constexpr (kTunerVersion<TestType> >= 5)
    CHECK(tuner.table->init(nullptr, 1, 16, 2, &recordLine, nullptr, nullptr) == ncclSuccess);
  else
    CHECK(tuner.table->init(16, 2, &recordLine, nullptr) == ncclSuccess);
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("a measured table replaces the costs it has numbers for, and only those", "", ALL_TUNERS) {
  const std::string path = "/tmp/weft-abi-table-" + std::to_string(getpid());
  std::ofstream(path) << "weft-tuner-table 1\nprovider loop\ndate today\nhosts 2\nranks 2\nstep_us 20\n"
                         "device_gbps 10\ndevices 1\n";
  setenv("WEFT_TUNER_TABLE", path.c_str(), 1);
  {
    Driver<ncclNet_v12_t> driver("loop");
    REQUIRE(driver.init() == ncclSuccess);
    TunerUse<TestType> tuner;
    REQUIRE(tuner.init(16, 2) == ncclSuccess);
    Asked asked, again;
    asked.at(NCCL_ALGO_RING, NCCL_PROTO_LL) = again.at(NCCL_ALGO_RING, NCCL_PROTO_LL) =
        NCCL_ALGO_PROTO_IGNORE;
    CHECK(tuner.ask(asked) == ncclSuccess);
    CHECK(tuner.ask(again) == ncclSuccess);
    CHECK(asked == again);
    if constexpr (kTunerVersion<TestType> == 2) {
      CHECK(asked.algorithm == NCCL_ALGO_TREE);
      CHECK(asked.protocol == NCCL_PROTO_SIMPLE);
    } else {
      // 8.4 us, 26 steps of 3.4 us and 4 of 20 us; 1 MiB x 2 x 15/16 at 10 GB/s
      CHECK(std::abs(asked.at(NCCL_ALGO_RING, NCCL_PROTO_SIMPLE) - (8.4F + 88.4F + 80 + 196.6F)) < 1);
      CHECK(asked.at(NCCL_ALGO_RING, NCCL_PROTO_LL) == NCCL_ALGO_PROTO_IGNORE);
      CHECK(asked.at(NCCL_ALGO_TREE, NCCL_PROTO_LL) > kNcclCost);
      CHECK(asked.at(NCCL_ALGO_NVLS_TREE, NCCL_PROTO_SIMPLE) == kNcclCost);
      CHECK(asked.at(NCCL_ALGO_PAT, NCCL_PROTO_SIMPLE) == kNcclCost);
    }
    CHECK(tuner.finish() == ncclSuccess);
    CHECK(driver.finalize() == ncclSuccess);
  }
  std::ofstream(path) << "nonsense\n";
  {
    Driver<ncclNet_v12_t> driver("loop(lines128=1)");
    REQUIRE(driver.init() == ncclSuccess);
    driver.warningsExpected = true;
    CHECK(countOf(NCCL_LOG_WARN) == 1);
    CHECK(linesOf(NCCL_LOG_WARN).find("WEFT_TUNER_TABLE is not used") != std::string::npos);
    TunerUse<TestType> tuner;
    REQUIRE(tuner.init(16, 2) == ncclSuccess);
    Asked asked;
    CHECK(tuner.ask(asked) == ncclSuccess);
    CHECK(asked == Asked());
    CHECK(tuner.finish() == ncclSuccess);
    CHECK(driver.finalize() == ncclSuccess);
  }
  unsetenv("WEFT_TUNER_TABLE");
  unlink(path.c_str());
}
