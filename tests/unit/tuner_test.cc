// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/tuner/tuner.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <unistd.h>

#include "src/tuner/platforms.h"
#include "src/tuner/table_file.h"
#include "tests/support/catch.h"

using namespace weft;
using namespace weft::tuner;

namespace {

constexpr size_t kCells = kAlgorithms * kProtocols;

Surroundings onP5() {
  return {"ofi:efa", true, "p5.48xlarge", {}, {}, {}, {}, {}};
}

Tuner tunerOf(const Surroundings& around, Shape shape = {4, 32}) {
  return {decide(Config(), around), defaultGpuLatencies(), shape};
}

struct Table {
  std::array<float, kCells> costs{};
  CostTable view() { return {costs.data(), kAlgorithms, kProtocols}; }
  float& at(Algorithm a, Protocol p) { return costs[indexOf(a) * kProtocols + indexOf(p)]; }
};

Table full(float cost) {
  Table table;
  table.costs.fill(cost);
  return table;
}

constexpr int kAllReduce = static_cast<int>(Collective::allReduce);
constexpr Algorithm kModelled[] = {Algorithm::tree, Algorithm::ring, Algorithm::nvlsTree};

std::optional<Estimate> costOf(Collective collective, Algorithm a, Protocol p, double bytes, Shape shape) {
  return estimate(*findPlatform("p5.48xlarge", "ofi:efa-direct"), defaultGpuLatencies(), shape,
                  {collective, a, p, bytes, 1});
}

}  // namespace

TEST_CASE("every number of every platform says where it is from") {
  for (const std::string& machine : knownMachines()) {
    const auto platform = findPlatform(machine, "ofi:efa");
    REQUIRE(platform);
    std::vector<Number> numbers(platform->hopUs.begin(), platform->hopUs.end());
    numbers.insert(numbers.end(), {platform->nodeGBps, platform->nvlsTreeGBps});
    numbers.insert(numbers.end(), platform->llGBps.begin(), platform->llGBps.end());
    for (const Number& number : numbers) CHECK((number.value == 0 || number.source.size() > 10));
    CHECK(platform->nodeGBps.known());
  }
}

TEST_CASE("a platform is a machine on its fabric, and nothing else") {
  CHECK(findPlatform("p5.48xlarge", "ofi:efa"));
  CHECK(findPlatform("p5.48xlarge", "ofi:efa-direct"));
  CHECK(!findPlatform("p5.48xlarge", "ofi:tcp"));
  CHECK(!findPlatform("p4d.24xlarge", "ofi:efa"));
  CHECK(!findPlatform("", ""));
}

TEST_CASE("the model is within a fifth of the all-gathers that were published for p5") {
  // crazyguitar/aws-gpu-communication-benchmark: nodes, bytes, bus bandwidth in GB/s.
  struct Row {
    uint64_t nodes;
    double bytes;
    double busGBps;
  };
  for (const Row& row : {Row{2, 32 << 20, 131}, Row{8, 32 << 20, 46}, Row{32, 32 << 20, 12.4}}) {
    const Shape shape{row.nodes, row.nodes * 8};
    const double share = static_cast<double>(shape.ranks - 1) / static_cast<double>(shape.ranks);
    const double measuredUs = row.bytes * share / (row.busGBps * 1e3);
    const auto cost = costOf(Collective::allGather, Algorithm::ring, Protocol::simple, row.bytes, shape);
    REQUIRE(cost);
    CHECK(cost->us() > measuredUs * 0.8);
    CHECK(cost->us() < measuredUs * 1.2);
  }
}

TEST_CASE("more bytes, more nodes and more ranks never cost less") {
  for (const Algorithm a : kModelled) {
    for (int p = 0; p < kProtocols; p++) {
      if (a == Algorithm::nvlsTree && Protocol{p} != Protocol::simple) continue;
      double last = 0;
      for (double bytes = 0; bytes < 1e12; bytes = bytes * 2 + 1) {
        const double us = costOf(Collective::allReduce, a, Protocol{p}, bytes, {4, 32})->us();
        CHECK(us >= last);
        last = us;
      }
      last = 0;
      for (uint64_t nodes = 2; nodes <= 4096; nodes *= 2) {
        const double us = costOf(Collective::allReduce, a, Protocol{p}, 1 << 20, {nodes, nodes * 8})->us();
        CHECK(us >= last);
        last = us;
      }
      last = 0;
      for (uint64_t ranks = 4; ranks <= 64; ranks += 4) {
        const double us = costOf(Collective::allReduce, a, Protocol{p}, 1 << 20, {4, ranks})->us();
        CHECK(us >= last);
        last = us;
      }
    }
  }
}

TEST_CASE("small all-reduces take a tree, and nothing is estimated that NCCL does not have") {
  const Shape shape{16, 128};
  CHECK(costOf(Collective::allReduce, Algorithm::tree, Protocol::ll, 8, shape)->us() <
        costOf(Collective::allReduce, Algorithm::ring, Protocol::ll, 8, shape)->us());
  CHECK(costOf(Collective::allReduce, Algorithm::ring, Protocol::simple, 1e9, shape)->us() <
        costOf(Collective::allReduce, Algorithm::ring, Protocol::ll, 1e9, shape)->us());
  CHECK(!costOf(Collective::allGather, Algorithm::tree, Protocol::simple, 8, shape));
  CHECK(!costOf(Collective::allReduce, Algorithm::nvlsTree, Protocol::ll, 8, shape));
  CHECK(!costOf(Collective::broadcast, Algorithm::ring, Protocol::ll, 8, shape));
  CHECK(!costOf(Collective::allReduce, Algorithm::pat, Protocol::simple, 8, shape));
}

TEST_CASE("odd shapes and sizes get no estimate, or a finite one") {
  for (const Shape shape : {Shape{0, 0}, Shape{1, 8}, Shape{8, 1}, Shape{2, 0}})
    CHECK(!costOf(Collective::allReduce, Algorithm::ring, Protocol::simple, 8, shape));
  for (const uint64_t many : {uint64_t{2}, ~uint64_t{0}})
    for (const double bytes : {0.0, 1.0, 1.8e19}) {
      const auto cost = costOf(Collective::allReduce, Algorithm::tree, Protocol::ll, bytes, {many, many});
      REQUIRE(cost);
      CHECK(std::isfinite(cost->us()));
    }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(!costOf(Collective::allReduce, Algorithm::ring, Protocol::simple, nan, {4, 32}));
}

TEST_CASE("a platform that lacks a number gets no estimate that would need it") {
  Platform platform = *findPlatform("p5.48xlarge", "ofi:efa");
  platform.hopUs[indexOf(Protocol::ll)].source.clear();
  platform.nvlsTreeGBps = {};
  const auto has = [&](Algorithm a, Protocol p) {
    return estimate(platform, defaultGpuLatencies(), {4, 32}, {Collective::allReduce, a, p, 8, 1})
        .has_value();
  };
  CHECK(!has(Algorithm::ring, Protocol::ll));
  CHECK(has(Algorithm::ring, Protocol::simple));
  CHECK(!has(Algorithm::nvlsTree, Protocol::simple));
}

TEST_CASE("the same arguments give the same table, in any order of calls") {
  const Tuner one = tunerOf(onP5());
  const Tuner other = tunerOf(onP5());
  std::map<size_t, std::array<float, kCells>> seen;
  for (size_t bytes = 1; bytes < (size_t{1} << 40); bytes *= 8) {
    Table table = full(5);
    one.price(kAllReduce, bytes, 1, table.view());
    seen[bytes] = table.costs;
  }
  for (size_t bytes = size_t{1} << 39; bytes > 0; bytes /= 8) {
    Table table = full(5);
    other.price(kAllReduce, bytes, 1, table.view());
    CHECK(seen.at(bytes) == table.costs);
  }
}

TEST_CASE("entries that NCCL ignores stay ignored, others are replaced by finite costs") {
  const Tuner tuner = tunerOf(onP5());
  Table table = full(7);
  table.at(Algorithm::ring, Protocol::simple) = kIgnored;
  table.at(Algorithm::tree, Protocol::ll) = std::numeric_limits<float>::quiet_NaN();
  CHECK(tuner.price(kAllReduce, 1 << 20, 1, table.view()) == 5);
  CHECK(table.at(Algorithm::ring, Protocol::simple) == kIgnored);
  CHECK(std::isnan(table.at(Algorithm::tree, Protocol::ll)));
  CHECK(table.at(Algorithm::tree, Protocol::simple) > 7);
  CHECK(std::isfinite(table.at(Algorithm::ring, Protocol::ll)));
  for (const Algorithm a :
       {Algorithm::collnetDirect, Algorithm::collnetChain, Algorithm::nvls, Algorithm::pat})
    for (int p = 0; p < kProtocols; p++) CHECK(table.at(a, Protocol{p}) == 7);
}

TEST_CASE("tables of other sizes are written where they have entries, and nowhere else") {
  const Tuner tuner = tunerOf(onP5());
  for (const int algorithms : {-1, 0, 1, 2, 6, 7, 9}) {
    for (const int protocols : {-1, 0, 1, 2, 3, 4}) {
      const size_t cells =
          static_cast<size_t>(std::max(0, algorithms)) * static_cast<size_t>(std::max(0, protocols));
      std::vector<float> costs(cells + 1, 3);
      tuner.price(kAllReduce, 1 << 20, 1, {costs.data(), algorithms, protocols});
      CHECK(costs.back() == 3);
      for (size_t i = 0; i < cells; i++) {
        const bool known = i / static_cast<size_t>(protocols) < kAlgorithms &&
                           i % static_cast<size_t>(protocols) < kProtocols;
        if (!known) CHECK(costs[i] == 3);
      }
    }
  }
  CHECK(tuner.price(kAllReduce, 8, 1, {nullptr, kAlgorithms, kProtocols}) == 0);
}

TEST_CASE("what NCCL may not know yet, and what makes no sense, changes nothing") {
  for (const int collective : {-1, 5, 8, 999}) {
    Table table = full(7);
    CHECK(tunerOf(onP5()).price(collective, 8, 1, table.view()) == 0);
    CHECK(table.costs == full(7).costs);
  }
  for (const Shape shape : {Shape{0, 0}, Shape{1, 8}, Shape{8, 4}, Shape{3, 0}}) {
    Table table = full(7);
    Surroundings around = onP5();
    around.lines128 = false;
    CHECK(tunerOf(around, shape).price(kAllReduce, 8, 1, table.view()) == 0);
    CHECK(table.costs == full(7).costs);
  }
  for (const int pipelined : {-5, 0, 1 << 30}) {
    Table table = full(7);
    CHECK(tunerOf(onP5()).price(kAllReduce, ~size_t{0}, pipelined, table.view()) > 0);
    for (const float cost : table.costs) CHECK((cost >= 0 && cost < 3.6e9F));
  }
}

TEST_CASE("LL128 is priced out without 128-byte lines, whatever the platform") {
  for (const char* machine : {"p5.48xlarge", "some server"}) {
    Surroundings around = onP5();
    around.machine = machine;
    around.lines128 = false;
    Table table = full(7);
    table.at(Algorithm::tree, Protocol::ll128) = kIgnored;
    tunerOf(around).price(static_cast<int>(Collective::broadcast), 8, 1, table.view());
    CHECK(table.at(Algorithm::ring, Protocol::ll128) == kPricedOut);
    CHECK(table.at(Algorithm::tree, Protocol::ll128) == kIgnored);
    CHECK(table.at(Algorithm::ring, Protocol::simple) == 7);
  }
}

TEST_CASE("a platform without numbers has no entry, and the table stays NCCL's") {
  Surroundings around = onP5();
  around.machine = "p4d.24xlarge";
  const Policy policy = decide(Config(), around);
  CHECK(!policy.platform);
  CHECK(policy.text().find("no published or measured numbers for p4d.24xlarge") != std::string::npos);
  Table table = full(7);
  CHECK(tunerOf(around).price(kAllReduce, 8, 1, table.view()) == 0);
  CHECK(table.costs == full(7).costs);
}

TEST_CASE("the user's own choice stands") {
  const auto aside = [](auto&& change) {
    Surroundings around = onP5();
    around.lines128 = false;
    Config config;
    change(&around, &config);
    const Tuner tuner(decide(config, around), defaultGpuLatencies(), {4, 32});
    Table table = full(7);
    tuner.price(kAllReduce, 8, 1, table.view());
    CHECK(tuner.pick(kAllReduce, 8, 1, true).has_value() == !tuner.policy().aside);
    CHECK((table.costs == full(7).costs) == tuner.policy().aside);
    return tuner.policy().aside;
  };
  CHECK(aside([](Surroundings* s, Config*) { s->algorithms = "Ring"; }));
  CHECK(aside([](Surroundings* s, Config*) { s->protocols = "^LL128"; }));
  CHECK(aside([](Surroundings* s, Config*) { s->plugin = "libnccl-tuner-ofi.so"; }));
  CHECK(aside([](Surroundings* s, Config*) { s->fabric = ""; }));
  CHECK(aside([](Surroundings*, Config* c) { c->tuner = false; }));
  CHECK(!aside([](Surroundings* s, Config*) { s->plugin = "/opt/weft/libnccl-net-weft.so"; }));
  CHECK(!aside([](Surroundings*, Config*) {}));
}

TEST_CASE("NCCL's variables are looked at, an empty one counts as unset") {
  const std::map<std::string, std::string> set = {{"NCCL_ALGO", "Tree"}, {"NCCL_PROTO", ""}};
  const Lookup lookup = [&](const char* name) {
    const auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  };
  const Surroundings around = lookAround("loop", true, "m", Config(), lookup);
  CHECK(around.algorithms == "Tree");
  CHECK(around.protocols.empty());
  CHECK(around.plugin.empty());
  CHECK(decide(Config(), around).text().find("NCCL_ALGO is set") != std::string::npos);
}

TEST_CASE("what ranks must agree on names what would make them choose differently") {
  Surroundings around = onP5();
  const std::string p5 = decide(Config(), around).identity();
  around.lines128 = false;
  CHECK(decide(Config(), around).identity() != p5);
  around.machine = "p5en.48xlarge";
  CHECK(decide(Config(), around).identity() == "p5en without LL128");
  around.machine = "";
  CHECK(decide(Config(), around).identity() == "none without LL128");
  around.protocols = "Simple";
  CHECK(decide(Config(), around).identity() == "aside");
}

TEST_CASE("an answer instead of costs keeps to what needs no promise") {
  const Tuner tuner = tunerOf(onP5(), {16, 128});
  for (size_t bytes = 8; bytes < (size_t{1} << 36); bytes *= 4) {
    const auto pick = tuner.pick(kAllReduce, bytes, 1, false);
    REQUIRE(pick);
    CHECK(pick->protocol != Protocol::ll128);
    CHECK(pick->algorithm != Algorithm::nvlsTree);
  }
  CHECK(tuner.pick(static_cast<int>(Collective::allGather), 8, 1, true)->algorithm == Algorithm::ring);
  CHECK(!tuner.pick(static_cast<int>(Collective::broadcast), 8, 1, true));
}

namespace {

const MeasuredTable kMeasured{"ofi:efa", "2025-01-31", 2, 16, 15.25, 12.5, 4};

// A file that goes with the test.
class TableFile {
 public:
  explicit TableFile(const std::string& text) : path_("/tmp/weft-tuner-table-" + std::to_string(getpid())) {
    std::ofstream(path_) << text;
    config.tunerTable = path_;
  }
  ~TableFile() { std::remove(path_.c_str()); }
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;

  Policy policy() const {
    return decide(config,
                  lookAround("ofi:efa", true, "p5.48xlarge", config, [](const char*) { return nullptr; }));
  }

  Config config;

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("a measured table is read as it was written, and its numbers name it") {
  const TableFile file(tableText(kMeasured));
  const auto table = readTable(file.config.tunerTable);
  REQUIRE(table);
  CHECK(tableText(*table) == tableText(kMeasured));
  const Policy policy = file.policy();
  REQUIRE(policy.platform);
  CHECK(policy.platform->nodeGBps.value == 50);
  CHECK(policy.platform->hopUs[0].value == 15.25);
  CHECK(policy.platform->nodeGBps.source ==
        file.config.tunerTable + ": measured 2025-01-31, 2 hosts, 16 ranks");
  CHECK(policy.identity() !=
        TableFile(tableText({"ofi:efa", "2025-01-31", 2, 16, 15.5, 12.5, 4})).policy().identity());
  std::string nearly = tableText(kMeasured);
  nearly.insert(nearly.find("15.25") + 5, "000001");
  CHECK(policy.identity() != TableFile(nearly).policy().identity());
}

TEST_CASE("a table of one host has the work of its processors, all of it or none") {
  MeasuredTable table = kMeasured;
  table.host = {2, 5.5, 1.5, 0.5, 0.75, 6.5, 11.25, {5.5, 6.5, 20.5, 19.5}, {3.5, 4.5, 10.5, 9.25}};
  const std::string text = tableText(table);
  const auto read = parseTable(text);
  REQUIRE(read);
  CHECK(tableText(*read) == text);
  CHECK(read->host.processors == 2);
  CHECK(read->host.testUs == 0.5);
  CHECK(read->host.sharedStepUs == 11.25);
  CHECK(read->host.stepUs == 6.5);
  CHECK(read->host.near.copyGBps == 20.5);
  CHECK(read->host.far.reduceGBps == 9.25);
  std::string missing = text;
  missing.erase(missing.find("host_look_us"), std::string("host_look_us 0.75\n").size());
  const auto refused = parseTable(missing);
  REQUIRE(!refused);
  CHECK(refused.error().detail().find("host_look_us is missing beside others of host_") != std::string::npos);
  CHECK(!parseTable(text + "host_processors 2\n"));
}

TEST_CASE("a table of version 1 is read, whose names told no unit") {
  const auto old = parseTable(
      "weft-tuner-table 1\nprovider ofi:efa\ndate 2025-01-31\nhosts 2\nranks 16\nstep_us 15.25\ndevice_gbps "
      "12.5\n"
      "devices 4\n");
  REQUIRE(old);
  CHECK(tableText(*old) == tableText(kMeasured));
  CHECK(!parseTable(
      "weft-tuner-table 2\nprovider x\ndate d\nhosts 2\nranks 16\nstep_us 1\ndevice_gbps 1\ndevices 4\n"));
  MeasuredTable table = kMeasured;
  table.gpus = 8;
  table.machine = "p5.48xlarge";
  const auto again = parseTable(tableText(table));
  REQUIRE(again);
  CHECK(again->gpus == 8);
  CHECK(again->machine == "p5.48xlarge");
}

TEST_CASE("a bad table is one complaint, and costs stay NCCL's") {
  const std::string good = tableText(kMeasured);
  std::string twice = good + "devices_per_node 4\n";
  std::string huge = good + std::string(5000, '#');
  std::string missing = good.substr(0, good.find("devices_per_node 4"));
  for (const std::string& text : {std::string(), std::string("nonsense\n"), twice, huge, missing,
                                  good + "speed 9\n", good + "\x01\x02\n", good + std::string(1, '\0')}) {
    const Policy policy = TableFile(text).policy();
    CHECK(!policy.platform);
    CHECK(policy.complaint.starts_with("WEFT_TUNER_TABLE is not used: reading a tuner table: /tmp/"));
    CHECK(policy.complaint.find('\n') == std::string::npos);
  }
  for (const char* number : {"0", "-1", "nan", "inf", "1e7", "1e400", "12x", "0x10", "", "1 2"}) {
    std::string text = good;
    text.replace(text.find("step_us 15.25"), 13, std::string("step_us ") + number);
    const auto table = parseTable(text);
    REQUIRE(!table);
    CHECK(table.error().detail().find("line 7: step_us must be microseconds") != std::string::npos);
  }
}

TEST_CASE("a table that is not there, is no file, or is of another fabric is not used") {
  TableFile file(tableText(kMeasured));
  file.config.tunerTable = "/nowhere/table";
  CHECK(file.policy().complaint.find("/nowhere/table (No such file") != std::string::npos);
  file.config.tunerTable = "/dev/zero";
  CHECK(file.policy().complaint.find("/dev/zero is not a file") != std::string::npos);
  CHECK(!file.policy().platform);
  const Policy other = TableFile(tableText({"ofi:tcp", "x", 1, 2, 15.25, 12.5, 1})).policy();
  CHECK(!other.platform);
  CHECK(other.complaint.find("was measured over ofi:tcp and this is ofi:efa") != std::string::npos);
}
