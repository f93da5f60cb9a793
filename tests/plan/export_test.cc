// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/export.h"

#include <cstdio>
#include <map>
#include <sstream>
#include <tuple>

#include "tests/plan/examples.h"
#include "tests/support/catch.h"

// What is written for other simulators, read back.
namespace weft::plan {

namespace {

// (sender, receiver, tag, bytes) of each message, counted up by its send and down by its receive.
struct Schedule {
  size_t ranks = 0;
  size_t lines = 0;
  double computedNs = 0;
  double sentBytes = 0;
  std::map<std::tuple<size_t, size_t, size_t, size_t>, int> balance;
  bool backwards = false;  // a line requires one that does not stand before it
};

void readGoalLine(const std::string& line, size_t rank, Schedule* schedule) {
  size_t number = 0, before = 0, bytes = 0, peer = 0, tag = 0;
  double ns = 0;
  if (std::sscanf(line.c_str(), "l%zu requires l%zu", &number, &before) == 2) {
    if (before >= number) schedule->backwards = true;
    return;
  }
  ++schedule->lines;
  if (std::sscanf(line.c_str(), "l%zu: calc %lf", &number, &ns) == 2) {
    schedule->computedNs += ns;
  } else if (std::sscanf(line.c_str(), "l%zu: send %zub to %zu tag %zu", &number, &bytes, &peer, &tag) == 4) {
    schedule->sentBytes += static_cast<double>(bytes);
    ++schedule->balance[{rank, peer, tag, bytes}];
  } else if (std::sscanf(line.c_str(), "l%zu: recv %zub from %zu tag %zu", &number, &bytes, &peer, &tag) ==
             4) {
    --schedule->balance[{peer, rank, tag, bytes}];
  } else {
    FAIL("not a line of GOAL: " << line);
  }
}

Schedule readGoal(const std::string& text) {
  Schedule schedule;
  std::istringstream lines(text);
  std::string line;
  size_t rank = 0;
  while (std::getline(lines, line)) {
    if (std::sscanf(line.c_str(), "num_ranks %zu", &schedule.ranks) == 1) continue;
    if (line.empty() || line == "}" || std::sscanf(line.c_str(), "rank %zu {", &rank) == 1) continue;
    readGoalLine(line, rank, &schedule);
  }
  return schedule;
}

bool balanced(const Schedule& schedule) {
  for (const auto& [message, count] : schedule.balance)
    if (count != 0) return false;
  return true;
}

uint64_t varint(std::string_view* rest) {
  uint64_t value = 0;
  for (unsigned shift = 0; !rest->empty() && shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(rest->front());
    rest->remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

// The fields of a message: numbers as they are, texts as their length.
std::multimap<uint64_t, uint64_t> fieldsOf(std::string_view message) {
  std::multimap<uint64_t, uint64_t> fields;
  while (!message.empty()) {
    const uint64_t key = varint(&message);
    const uint64_t value = varint(&message);
    REQUIRE(((key & 7) == 0 || (key & 7) == 2));
    if ((key & 7) == 2) {
      REQUIRE(value <= message.size());
      message.remove_prefix(value);
    }
    fields.emplace(key >> 3, value);
  }
  return fields;
}

// Three messages over each of two connections to the next rank.
std::vector<RankTraffic> ringOf(size_t count) {
  std::vector<RankTraffic> ranks(count);
  for (size_t rank = 0; rank < count; ++rank)
    for (uint64_t channel = 1; channel <= 2; ++channel)
      for (int i = 0; i < 3; ++i) {
        const uint64_t connection = 10 * channel + rank;
        ranks[rank].messages.push_back({true, connection, 0, 1, 100});
        ranks[(rank + 1) % count].messages.push_back({false, connection, 0, 1, 100});
      }
  return ranks;
}

std::vector<std::multimap<uint64_t, uint64_t>> readChakra(std::string_view bytes) {
  std::vector<std::multimap<uint64_t, uint64_t>> messages;
  while (!bytes.empty()) {
    const uint64_t length = varint(&bytes);
    REQUIRE(length <= bytes.size());
    messages.push_back(fieldsOf(bytes.substr(0, length)));
    bytes.remove_prefix(length);
  }
  return messages;
}

}  // namespace

TEST_CASE("a job's GOAL schedule has a receive for each send, and a ring's bytes") {
  const Job job = example("resnet-50", "p3dn").job;
  const Schedule schedule = readGoal(goalOf(asMessages(activitiesOf(job), 4)));
  CHECK(schedule.ranks == 4);
  CHECK(balanced(schedule));
  CHECK(!schedule.backwards);
  CHECK(schedule.sentBytes == Approx(4 * 2 * 3.0 / 4 * job.bytes()).epsilon(1e-6));
  CHECK(schedule.computedNs == Approx(4 * job.computeUs() * 1e3).epsilon(1e-6));
}

TEST_CASE("a Chakra trace has a node for each activity, after a head with the version") {
  const std::vector<Activity> activities = activitiesOf(example("zero3-175b", "ndm-a100-v4").job);
  CHECK(activities.size() == 96 * (2 + 3) + 1);
  const auto messages = readChakra(chakraOf(activities, 0));
  REQUIRE(messages.size() == activities.size() + 1);
  CHECK(messages[0].count(1) == 1);
  size_t collectives = 0;
  for (size_t i = 0; i < activities.size(); ++i) {
    const auto& node = messages[i + 1];
    CHECK(node.find(1)->second == i);
    if (node.find(3)->second == 7) ++collectives;
    for (auto [at, end] = node.equal_range(5); at != end; ++at) CHECK(at->second < i);
  }
  CHECK(collectives == 96 * 3);
}

TEST_CASE("recorded messages are exported with both of their ends") {
  const std::string job = WEFT_PLAN_TRACES;
  const auto traffic = readTraffic(job);
  REQUIRE(traffic);
  const auto ranks = activitiesOf(job, *traffic);
  REQUIRE(ranks);
  const Schedule schedule = readGoal(goalOf(*ranks));
  CHECK(balanced(schedule));
  CHECK(!schedule.backwards);
  // As the recording's page has them.
  CHECK((*traffic)[0].receivedMessages + (*traffic)[1].receivedMessages == 6559);
  CHECK((*traffic)[0].receivedBytes + (*traffic)[1].receivedBytes == Approx(5.746e9).epsilon(1e-3));
}

TEST_CASE("recorded messages of a ring of four are exported from rank to rank, over two connections each") {
  const auto ranks = activitiesOf("job", ringOf(4));
  REQUIRE(ranks);
  REQUIRE(ranks->size() == 4);
  const Schedule schedule = readGoal(goalOf(*ranks));
  CHECK(schedule.ranks == 4);
  CHECK(balanced(schedule));
  CHECK(schedule.sentBytes == 4 * 2 * 3 * 100);
  for (const auto& [message, count] : schedule.balance) {
    const auto& [from, to, tag, bytes] = message;
    CHECK(to == (from + 1) % 4);
  }
  CHECK(schedule.balance.size() == 4 * 2 * 3);  // no two messages of a pair have one tag
}

TEST_CASE("recordings of which a rank's is missing, or is there twice, are not exported") {
  const auto failure = [](const std::vector<RankTraffic>& ranks) {
    const auto refused = activitiesOf("job", ranks);
    return refused ? "none" : refused.error().detail();
  };
  std::vector<RankTraffic> ranks = ringOf(4);
  ranks.pop_back();
  CHECK(failure(ranks) ==
        "job: trace 2 has messages of a connection to no other trace here; give the traces of all ranks of "
        "one job, each once");
  ranks = ringOf(4);
  ranks.push_back(ranks[0]);
  CHECK(failure(ranks) ==
        "job: trace 0 has a connection to 2 others at once; give the traces of all ranks of one job, each "
        "once");
  ranks.resize(1);
  CHECK(failure(ranks) ==
        "job: is the trace of one rank; give the traces of all ranks of one job, each once");
}

}  // namespace weft::plan
