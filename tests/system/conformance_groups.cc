// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <numeric>

#include "tests/system/driver/program.h"
#include "tests/system/driver/traffic.h"

// Grouped receives: several messages with a tag each in one request, from sends that are posted one by one in
// any order across tags. Within a tag, messages match in posting order.
namespace weft::system {
namespace {

constexpr size_t kSlot = size_t{96} << 10;
constexpr int kTagBase = 1000;
constexpr uint64_t kSeed = 23;

// Both sides derive the same plan: which tags each group has, in which order it lists them, and how long each
// message is. Sends go out in an order of their own that keeps each tag's order.
struct Message {
  int group;
  int position;  // in the group
  int tag;
  size_t size;
  uint64_t seed;
};

struct Plan {
  std::vector<std::vector<Message>> groups;
  std::vector<Message> sends;
};

template <class T>
void shuffle(std::vector<T>& items, Random& random) {
  for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

Plan makePlan(int groups, int maxGroup, uint64_t seed) {
  Random random(seed);
  Plan plan;
  for (int g = 0; g < groups; ++g) {
    std::vector<int> tags(static_cast<size_t>(maxGroup));
    std::iota(tags.begin(), tags.end(), kTagBase);
    shuffle(tags, random);
    tags.resize(1 + random.below(static_cast<uint64_t>(maxGroup)));
    auto& group = plan.groups.emplace_back();
    for (int i = 0; i < static_cast<int>(tags.size()); ++i) {
      const size_t size = random.below(5) == 0 ? 0 : random.below(random.below(3) == 0 ? kSlot : 3000);
      group.push_back({g, i, tags[static_cast<size_t>(i)], size, random.next()});
    }
  }
  for (const auto& group : plan.groups) plan.sends.insert(plan.sends.end(), group.begin(), group.end());
  return plan;
}

// Swaps neighbours of different tags, so that each tag keeps its order; `distance` bounds how far ahead of
// its group a message gets, or a window of groups would never complete.
void mixSends(std::vector<Message>& sends, Random& random, int distance) {
  for (size_t pass = 0; pass < 20; ++pass) {
    for (size_t i = 1; i < sends.size(); ++i) {
      const bool far = sends[i].group - sends[i - 1].group > distance;
      if (sends[i].tag != sends[i - 1].tag && !far && random.below(2) == 0) std::swap(sends[i], sends[i - 1]);
    }
  }
}

size_t slotOf(int group, int position, int window) {
  return static_cast<size_t>((group % window) * netdriver::kMaxGroup + position);
}

class GroupReceiver {
 public:
  GroupReceiver(Run& run, const Comm& comm, const Memory& memory, int window)
      : run_(run), comm_(comm), memory_(memory), window_(window), requests_(static_cast<size_t>(window)) {}

  void post(const std::vector<Message>& group) {
    RecvArgs args;
    args.n = static_cast<int>(group.size());
    for (size_t i = 0; i < group.size(); ++i) {
      const size_t slot = slotOf(group[i].group, group[i].position, window_);
      args.data[i] = memory_.data() + slot * kSlot;
      args.sizes[i] = kSlot;
      args.tags[i] = group[i].tag;
      args.mhandles[i] = memory_.mhandle();
    }
    request(group) = postRecv(run_, comm_, args);
  }

  void finish(const std::vector<Message>& group) {
    const Sizes sizes = wait(run_, comm_, request(group));
    for (size_t i = 0; i < group.size(); ++i) {
      const Message& m = group[i];
      const std::string what = "group " + std::to_string(m.group) + " tag " + std::to_string(m.tag);
      run_.expect(static_cast<size_t>(sizes[i]) == m.size,
                  what + ": size " + std::to_string(sizes[i]) + " of " + std::to_string(m.size));
      const std::byte* data = memory_.data() + slotOf(m.group, m.position, window_) * kSlot;
      run_.expect(firstDifference({data, m.size}, m.seed) < 0, what + ": wrong data");
      run_.count("messages");
    }
    run_.count("groups");
  }

 private:
  void*& request(const std::vector<Message>& group) {
    return requests_[static_cast<size_t>(group.front().group % window_)];
  }

  Run& run_;
  const Comm& comm_;
  const Memory& memory_;
  int window_;
  std::vector<void*> requests_;
};

void receiveAll(Run& run, const Comm& comm, const Plan& plan, int window) {
  const Memory memory =
      makeMemory(run, comm, kSlot * static_cast<size_t>(window) * static_cast<size_t>(netdriver::kMaxGroup));
  GroupReceiver receiver(run, comm, memory, window);
  const auto groups = static_cast<int>(plan.groups.size());
  for (int g = 0; g < groups + window; ++g) {
    if (g >= window) receiver.finish(plan.groups[static_cast<size_t>(g - window)]);
    if (g < groups) receiver.post(plan.groups[static_cast<size_t>(g)]);
  }
}

// As many at once as NCCL allows.
void sendAll(Run& run, const Comm& comm, const std::vector<Message>& sends) {
  constexpr size_t kWindow = 32;
  const Memory memory = makeMemory(run, comm, kSlot * kWindow);
  std::vector<void*> requests(kWindow);
  for (size_t i = 0; i < sends.size() + kWindow; ++i) {
    void*& request = requests[i % kWindow];
    if (request != nullptr) wait(run, comm, std::exchange(request, nullptr));
    if (i >= sends.size()) continue;
    const Message& m = sends[i];
    std::byte* data = memory.data() + i % kWindow * kSlot;
    fill({data, m.size}, m.seed);
    request = postSend(run, comm, {data, m.size, m.tag, memory.mhandle()});
  }
}

void runPlan(Run& run, End& end, int window, int distance) {
  const Comm comm = connectOneWay(run, end);
  const int maxGroup = std::min(end.properties().maxRecvs, netdriver::kMaxGroup);
  run.require(maxGroup >= 1, "maxRecvs is " + std::to_string(maxGroup));
  Plan plan = makePlan(run.scaled(150, 5000), maxGroup, kSeed);
  Random random(kSeed + 1);
  mixSends(plan.sends, random, distance);
  if (end.receives()) {
    receiveAll(run, comm, plan, window);
  } else {
    sendAll(run, comm, plan.sends);
  }
}

// One group at a time, whose messages arrive in any order.
void oneGroup(Run& run, End& end) {
  runPlan(run, end, 1, 0);
}

// Eight groups posted; messages of later ones overtake those of earlier ones.
void manyGroups(Run& run, End& end) {
  runPlan(run, end, 8, 3);
}

// NCCL_NET_MAX_REQUESTS groups of the largest size, all posted before the first send.
void fullPool(Run& run, End& end) {
  const Comm comm = connectOneWay(run, end);
  const int maxGroup = std::min(end.properties().maxRecvs, netdriver::kMaxGroup);
  Plan plan;
  Random random(3);
  for (int g = 0; g < NCCL_NET_MAX_REQUESTS; ++g) {
    auto& group = plan.groups.emplace_back();
    for (int i = 0; i < maxGroup; ++i)
      group.push_back({g, i, kTagBase + i, random.below(2000), random.next()});
    plan.sends.insert(plan.sends.end(), group.begin(), group.end());
  }
  if (!end.receives()) {
    end.sync();
    // Last tag first, as far as the order within tags allows.
    std::stable_sort(plan.sends.begin(), plan.sends.end(),
                     [](const auto& a, const auto& b) { return a.tag > b.tag; });
    const Memory memory = makeMemory(run, comm, kSlot);
    for (const Message& m : plan.sends) {
      fill({memory.data(), m.size}, m.seed);
      wait(run, comm, postSend(run, comm, {memory.data(), m.size, m.tag, memory.mhandle()}));
    }
    return;
  }
  const Memory memory = makeMemory(run, comm, kSlot * NCCL_NET_MAX_REQUESTS * netdriver::kMaxGroup);
  GroupReceiver receiver(run, comm, memory, NCCL_NET_MAX_REQUESTS);
  for (const auto& group : plan.groups) receiver.post(group);
  end.sync();
  for (const auto& group : plan.groups) receiver.finish(group);
}

constexpr Case kCases[] = {
    {.name = "one-group", .pair = &oneGroup},
    {.name = "many-groups", .pair = &manyGroups},
    {.name = "full-pool", .pair = &fullPool},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
