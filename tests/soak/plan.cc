// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/soak/plan.h"

#include <algorithm>
#include <iterator>

#include "tests/system/driver/traffic.h"

namespace weft::soak {

namespace {

using system::Random;

constexpr size_t kGap = 64;  // never written, between the receives of a row
constexpr size_t kTags = 4;

// Empty, tiny, around the eager limit, medium, and now and then a few MiB.
size_t drawSize(Random& random, bool alone) {
  switch (random.below(8)) {
    case 0:
      return 0;
    case 1:
      return 1 + random.below(64);
    case 2:
      return 8192 - 4 + random.below(9);
    case 3:
    case 4:
      return random.below(8192);
    case 5:
      return alone && random.below(4) == 0 ? random.below(size_t{3} << 20) : random.below(size_t{128} << 10);
    default:
      return random.below(size_t{64} << 10);
  }
}

Group drawGroup(Random& random, size_t parts) {
  Group group;
  size_t at = kGap;
  for (size_t i = 0; i < parts; ++i) {
    Message message;
    message.bytes = drawSize(random, parts == 1);
    message.room = message.bytes + (random.below(2) == 0 ? 0 : random.below(300));
    message.offset = at + random.below(16);
    message.tag = static_cast<int>(random.below(kTags)) * 1009;
    message.seed = random.next();
    at = message.offset + message.room + kGap;
    group.parts.push_back(message);
  }
  return group;
}

// Where a harsh rule strikes: among posted works, among completions, or among calls of the control path.
// Without connectRefused: libfabric 1.17's sockets were seen to crash when a lane is closed at that moment.
struct Harsh {
  const char* rule;
  uint64_t range;  // its nth operation is drawn up to this
};

constexpr Harsh kHarsh[] = {
    {"fault=drop,op=notified", 2000},
    {"fault=drop,op=writeNotify", 2000},
    {"fault=drop,op=write", 400},
    {"fault=drop,op=sent", 2000},
    {"fault=error,op=writeNotify", 2000},
    {"fault=errorLanded,op=writeNotify", 2000},
    {"fault=error,op=sent", 2000},
    {"fault=kill,op=writeNotify,window=4", 2000},
    {"fault=killLate,op=writeNotify,window=4", 2000},
    {"fault=killSilent,op=any", 2000},
    {"fault=kill,op=poll", 20000},
    {"fault=registerMemory", 12},
    {"fault=openQueue", 3},
    {"fault=openEndpoint", 3},
    {"fault=connect", 3},
    {"fault=connectNever", 3},
};

}  // namespace

Traffic drawTraffic(uint64_t seed, int mostReceives) {
  Random random(seed);
  Traffic traffic;
  for (size_t groups = 10 + random.below(50); groups > 0; --groups) {
    const bool many = mostReceives > 1 && random.below(4) == 0;
    Group group = drawGroup(random, many ? 2 + random.below(static_cast<uint64_t>(mostReceives - 1)) : 1);
    const Message& last = group.parts.back();
    traffic.rowBytes = std::max(traffic.rowBytes, last.offset + last.room + kGap);
    for (const Message& message : group.parts) traffic.mostBytes = std::max(traffic.mostBytes, message.bytes);
    traffic.groups.push_back(std::move(group));
  }
  return traffic;
}

std::string gentleRules(uint64_t seed) {
  return "seed=" + std::to_string(seed % 1000000) +
         ",fault=delay,op=writeNotify,p=0.01,polls=5"
         ",fault=delay,op=write,p=0.02,polls=9"
         ",fault=reorder,op=any,p=0.02,window=3"
         ",fault=refuse,p=0.01,times=3"
         ",fault=early,p=0.003,polls=4"
         ",fault=delay,op=notified,p=0.01,polls=3"
         ",fault=duplicate,op=notified,p=0.01"
         ",fault=delay,op=sent,p=0.01,polls=4";
}

std::string harshRules(uint64_t seed) {
  Random random(seed);
  const Harsh& harsh = kHarsh[random.below(std::size(kHarsh))];
  return std::string(",") + harsh.rule + ",nth=" + std::to_string(1 + random.below(harsh.range));
}

}  // namespace weft::soak
