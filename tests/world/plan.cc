// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/world/plan.h"

#include <algorithm>
#include <array>

#include "src/base/log.h"
#include "src/base/random.h"

namespace weft::world {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

template <class T, size_t n>
T oneOf(SeededRandom& random, const T (&list)[n]) {
  return list[random.below(n)];
}

// Short deadlines, in the proportions of the defaults: time costs nothing here, but steps do.
void drawConfig(SeededRandom& random, Config* config) {
  config->connectTimeout = milliseconds(3000);
  config->acceptTimeout = milliseconds(6000);
  config->closeTimeout = milliseconds(300);
  config->laneTimeout = milliseconds(2000);
  config->railTimeout = milliseconds(200);
  config->railRetry = milliseconds(50);
  config->peerSilentWarn = milliseconds(500);
  config->peerTimeout = milliseconds(4000);
  config->kernelTimeout = milliseconds(2000);
  config->idleTime = milliseconds(oneOf(random, {1, 20, 300'000}));
  config->idlePeers = oneOf(random, {1, 4, 256});
  config->sequenceBits = oneOf(random, {10, 32, 32});
  config->eagerMaxBytes = oneOf(random, {0, 1024, 8192, 8192});
  config->eagerSlots = oneOf(random, {8, 16, 64, 64});
  config->windowKib = oneOf(random, {64, 256, 4096});
  config->windowPoolMib = oneOf(random, {1, 64});
  config->stripeMinBytes = oneOf(random, {4096, 65536});
  config->gdr = "off";
}

void drawFabric(SeededRandom& random, loop::LoopOptions* fabric) {
  fabric->rails = oneOf(random, {1, 1, 2, 4});
  fabric->seed = random.next();
  fabric->messages = fabric->rails == 1 && random.below(2) == 0;
  const bool polled = random.below(4) != 0;
  fabric->landing = polled ? loop::Landing::whenPolled : loop::Landing::atOnce;
  fabric->delivery = oneOf(random, {Delivery::always, Delivery::selectable, Delivery::accepted});
  if (fabric->messages) fabric->delivery = Delivery::selectable;
  fabric->shuffle = polled && !fabric->messages && random.below(2) == 0;
  fabric->pieceBytes = polled ? oneOf<size_t>(random, {0, 777, 4096}) : 0;
  fabric->postIsCall = random.below(2) == 0;
  fabric->targetMustKnow = random.below(3) == 0;
  fabric->announceClose = random.below(2) == 0;
  fabric->maxDepths = {4096, 16384};
}

size_t drawBytes(SeededRandom& random) {
  static constexpr size_t kEdges[] = {0, 1, 64, 1023, 1024, 1025, 8191, 8192, 8193, 65'535, 65'537};
  if (random.below(2) == 0) return oneOf(random, kEdges);
  if (random.below(20) == 0) return random.below(600'000);
  return random.below(size_t{1} << (4 + random.below(13)));
}

void addFlow(WorldPlan* plan, int from, int to, int communicator) {
  plan->flows.push_back({from, to, communicator, {}, {}});
}

// NCCL's shapes: a ring, a tree, everybody with everybody, and pairs at random.
void drawFlows(SeededRandom& random, WorldPlan* plan, int communicator) {
  const int n = plan->ranks;
  const auto shape = random.below(4);
  if (shape == 0)
    for (int i = 0; i < n; i++) addFlow(plan, i, (i + 1) % n, communicator);
  if (shape == 1)
    for (int i = 1; i < n; i++) {
      addFlow(plan, i, (i - 1) / 2, communicator);
      addFlow(plan, (i - 1) / 2, i, communicator);
    }
  if (shape == 2)
    for (int i = 0; i < n * n; i++)
      if (i / n != i % n) addFlow(plan, i / n, i % n, communicator);
  if (shape == 3)
    for (int i = 0; i < 2 * n; i++) {
      const auto from = static_cast<int>(random.below(static_cast<uint64_t>(n)));
      const auto far = 1 + static_cast<int>(random.below(static_cast<uint64_t>(n - 1)));
      addFlow(plan, from, (from + far) % n, communicator);
    }
}

void drawMessages(SeededRandom& random, size_t operations, WorldPlan* plan) {
  uint64_t id = 0;
  while (id < operations) {
    FlowPlan& flow = plan->flows[random.below(plan->flows.size())];
    const size_t together = 1 + random.below(random.below(4) == 0 ? 8 : 1);
    std::vector<MessagePlan> group;
    for (size_t i = 0; i < together; i++)
      group.push_back({++id, drawBytes(random), static_cast<int>(random.below(3)) * 40'000});
    flow.groups.push_back(std::move(group));
  }
}

HurtPlan drawHurt(SeededRandom& random, const WorldPlan& plan) {
  HurtPlan hurt;
  static constexpr HurtKind kKinds[] = {
      HurtKind::kill,       HurtKind::kill,       HurtKind::stop,  HurtKind::stop,  HurtKind::pause,
      HurtKind::pause,      HurtKind::cut,        HurtKind::cut,   HurtKind::abort, HurtKind::railDies,
      HurtKind::railDies,   HurtKind::railSilent, HurtKind::abort, HurtKind::abort, HurtKind::misuse,
      HurtKind::railSilent, HurtKind::misuse};
  hurt.kind = oneOf(random, kKinds);
  const auto ranks = static_cast<uint64_t>(plan.ranks);
  hurt.rank = static_cast<int>(random.below(ranks));
  // While they connect, or while messages are on their way, which is over soon after.
  hurt.at = Nanoseconds(random.below(static_cast<uint64_t>(4 * plan.latency.count()) + 1)) +
            microseconds(random.below(uint64_t{1} << (4 + random.below(7))));
  hurt.lasts = microseconds(100 << random.below(12));
  const bool forEver = random.below(4) == 0;
  if (hurt.kind == HurtKind::stop && forEver) hurt.lasts = std::chrono::hours(1);
  if (hurt.kind == HurtKind::cut)
    hurt.other = static_cast<int>((static_cast<uint64_t>(hurt.rank) + 1 + random.below(ranks - 1)) % ranks);
  if (hurt.kind == HurtKind::abort || hurt.kind == HurtKind::misuse) {
    hurt.other = static_cast<int>(random.below(plan.flows.size()));
    const FlowPlan& flow = plan.flows[static_cast<size_t>(hurt.other)];
    hurt.rank = hurt.kind == HurtKind::misuse || random.below(2) ? flow.from : flow.to;
  }
  if (hurt.kind == HurtKind::railDies || hurt.kind == HurtKind::railSilent)
    hurt.other = static_cast<int>(random.below(static_cast<uint64_t>(plan.fabric.rails)));
  if (hurt.kind == HurtKind::pause) hurt.other = static_cast<int>(random.below(3));
  return hurt;
}

// Half of the worlds draw from a further stream, and the others are what they were before there was one: the
// number is such that the seeds which are kept from then, and those that find faults, are among the others.
bool isWider(uint64_t seed) {
  return SeededRandom(seed ^ 0x30ad).below(2) == 1;
}

void drawWider(SeededRandom& later, WorldPlan* plan) {
  plan->apart = later.below(2) == 0;
  plan->rests = later.below(2) == 0;
  if (later.below(4) == 0) plan->config.maxRails = oneOf(later, {1, 2, 3});
}

void drawOtherHurt(SeededRandom& later, WorldPlan* planned) {
  const WorldPlan& plan = *planned;
  HurtPlan* hurt = &planned->hurts.back();
  if (later.below(2) != 0) return;
  hurt->kind = later.below(2) == 0 ? HurtKind::railGone : HurtKind::withdraw;
  if (hurt->kind == HurtKind::railGone) {
    hurt->other = static_cast<int>(later.below(static_cast<uint64_t>(plan.fabric.rails)));
  } else {
    hurt->other = static_cast<int>(later.below(plan.flows.size()));
    hurt->rank = plan.flows[static_cast<size_t>(hurt->other)].to;
    planned->apart = true;
  }
}

void drawTcp(SeededRandom& net, WorldPlan* plan) {
  TcpHabits& habits = plan->tcp;
  habits.on = true;
  habits.v6 = net.below(3) == 0;
  habits.latency = microseconds(oneOf(net, {2, 20, 200}));
  habits.jitter = net.below(2) == 0 ? Nanoseconds{} : habits.latency;
  habits.bytesPerUs = oneOf<uint64_t>(net, {100, 1000, 10'000});
  habits.buffer = oneOf<size_t>(net, {6000, 16'384, 65'536, 300'000});
  plan->idle = microseconds(200);  // as small buffers hold little, a thread that looks seldom carries nothing
  habits.shortOf8 = oneOf<uint64_t>(net, {0, 1, 5});
  plan->config.tcpStreams = oneOf(net, {0, 1, 2, 4});
  plan->config.tcpSpeedMbps = oneOf(net, {0, 10'000});
  plan->fabric.delivery = Delivery::selectable;
  plan->fabric.messages = true;
}

// Alone, or beside loop's rails for most ranks or all.
void drawLocal(SeededRandom& net, WorldPlan* plan) {
  plan->localAlone = net.below(2) == 0;
  plan->idle = microseconds(200);
  if (!plan->localAlone) {
    plan->localRanks = net.below(2) == 0 ? ~uint64_t{0} : net.next() | net.next();
    return;
  }
  plan->fabric.rails = 1;
  plan->fabric.messages = false;
  plan->fabric.delivery = Delivery::always;
  plan->uneven = false;
}

void drawTcpHurt(SeededRandom& net, const WorldPlan& plan, HurtPlan* hurt) {
  const auto draw = net.below(6);
  if (draw > 2) return;
  hurt->kind = draw == 0 ? HurtKind::reset : draw == 1 ? HurtKind::railDown : HurtKind::noSockets;
  hurt->other = static_cast<int>(net.below(static_cast<uint64_t>(plan.railsOf(hurt->rank))));
  hurt->lasts = microseconds(100 << net.below(12));
  if (draw == 1 && net.below(3) == 0) hurt->lasts = std::chrono::hours(1);
}

OperationPlan drawOperation(SeededRandom& group, int ranks) {
  OperationPlan plan;
  static constexpr coll::ElementType kTypes[] = {coll::ElementType::u8, coll::ElementType::i32,
                                                 coll::ElementType::u64};
  plan.kind = oneOf(group, {coll::OperationKind::allReduce, coll::OperationKind::allReduce,
                            coll::OperationKind::allGather, coll::OperationKind::reduceScatter});
  plan.type = oneOf(group, kTypes);
  plan.op =
      oneOf(group, {coll::ReduceOp::sum, coll::ReduceOp::prod, coll::ReduceOp::min, coll::ReduceOp::max});
  const size_t bytes = (drawBytes(group) + 7) & ~size_t{7};
  if (plan.kind == coll::OperationKind::allReduce) {
    plan.bytes = std::max<size_t>(bytes, 8);
    plan.inPlace = group.below(3) == 0;
    return plan;
  }
  plan.bytesPerRank = std::max<size_t>((bytes / static_cast<size_t>(ranks)) & ~size_t{7}, 8);
  const size_t whole = plan.bytesPerRank * static_cast<size_t>(ranks);
  plan.windowOffset = group.below(2) == 0 ? 0 : 8 * group.below(whole / 8);
  plan.windowBytes = whole - plan.windowOffset;
  if (group.below(2) == 0) plan.windowBytes = 8 * (1 + group.below(plan.windowBytes / 8));
  return plan;
}

void drawGroups(SeededRandom& group, size_t operations, WorldPlan* plan) {
  plan->config.collnet = "peers";
  plan->config.collnetTimeout = plan->config.connectTimeout;
  plan->config.collnetChunkBytes = oneOf(group, {4096, 16'384, 65'536});
  plan->config.collnetOneStepBytes = oneOf(group, {0, 2048, 16'384});
  plan->rests = false;  // a group's own messages are never all through while its ranks are in it
  GroupPlan made;
  for (size_t i = 0; i < operations; i++) {
    made.operations.push_back(drawOperation(group, plan->ranks));
    made.operations.back().id = i + 1;
  }
  plan->groups.push_back(std::move(made));
}

SocketAddress addressOf(int process, bool v6) {
  return PlayedTcp::addressOf(process, 0, v6).withPort(7000);
}

// One for all ranks. Two numbers are drawn for nothing, so that the seeds which are kept mean what they
// meant.
void drawDaemons(SeededRandom& tree, WorldPlan* plan) {
  plan->config.collnet = "tree";
  (void)oneOf(tree, {0, 64});
  plan->config.aggdSecret = "a secret of the world's";
  if (!plan->tcp.on) plan->tcp.latency = plan->latency;
  const size_t window = oneOf<size_t>(tree, {1, 2, 16});
  (void)oneOf<size_t>(tree, {1, 1, 3});
  plan->daemons.push_back({addressOf(plan->hostOf(0), plan->tcp.v6).text(), window});
}

// Half of the worlds with groups are hurt when these have formed, too, and the others are what they were
// before that was so: the number is such that the seeds which are kept from then are among the others.
bool isHurtLater(uint64_t seed) {
  return SeededRandom(seed ^ 0x1a7e2).below(2) == 1;
}

void putOff(SeededRandom& tree, HurtPlan* hurt) {
  static constexpr HurtKind kKinds[] = {HurtKind::kill, HurtKind::stop,  HurtKind::pause,
                                        HurtKind::cut,  HurtKind::leave, HurtKind::another};
  hurt->onceFormed = std::find(std::begin(kKinds), std::end(kKinds), hurt->kind) != std::end(kKinds);
  if (hurt->onceFormed) hurt->at = microseconds(tree.below(uint64_t{1} << (6 + tree.below(8))));
}

// A daemon in the place of the rank.
void drawDaemonHurt(SeededRandom& tree, const WorldPlan& plan, HurtPlan* hurt) {
  if (tree.below(2) == 0) return;
  hurt->kind = oneOf(tree, {HurtKind::kill, HurtKind::kill, HurtKind::stop, HurtKind::cut, HurtKind::pause});
  hurt->rank = plan.hostOf(tree.below(plan.daemons.size()));
  hurt->lasts = microseconds(100 << tree.below(12));
  if (hurt->kind == HurtKind::stop && tree.below(3) == 0) hurt->lasts = std::chrono::hours(1);
  if (hurt->kind == HurtKind::cut)
    hurt->other = static_cast<int>(tree.below(static_cast<uint64_t>(plan.ranks)));
}

void drawGroupHurt(SeededRandom& group, const WorldPlan& plan, HurtPlan* hurt) {
  if (group.below(3) != 0) return;
  hurt->kind = group.below(2) == 0 ? HurtKind::leave : HurtKind::another;
  hurt->rank = static_cast<int>(group.below(static_cast<uint64_t>(plan.ranks)));
  hurt->other = 0;
}

void drawRefusal(SeededRandom& lack, HurtPlan* hurt) {
  if (lack.below(2) == 0) return;
  hurt->kind = lack.below(2) == 0 ? HurtKind::noRegistering : HurtKind::noMemory;
  hurt->other = static_cast<int>(lack.below(hurt->kind == HurtKind::noMemory ? 300 : 5));
}

const char* nameOf(HurtKind kind) {
  static constexpr const char* kNames[] = {"is killed",
                                           "stops",
                                           "pauses one thread",
                                           "loses a control path",
                                           "loses a rail",
                                           "has a silent rail",
                                           "aborts a connection",
                                           "sends too much",
                                           "loses a rail for good",
                                           "takes memory away",
                                           "calls another collective",
                                           "has a slow rail",
                                           "has connections reset",
                                           "has a rail that is down",
                                           "gets no descriptors",
                                           "gets no memory registered",
                                           "gets no memory",
                                           "leaves a collective group",
                                           "starts another operation"};
  return kNames[static_cast<size_t>(kind)];
}

double milli(Nanoseconds time) {
  return static_cast<double>(time.count()) / 1e6;
}

}  // namespace

size_t FlowPlan::messages() const {
  size_t n = 0;
  for (const auto& group : groups) n += group.size();
  return n;
}

size_t FlowPlan::largest() const {
  size_t most = 0;
  for (const auto& group : groups)
    for (const MessagePlan& message : group) most = std::max(most, message.bytes);
  return most;
}

std::string HurtPlan::text() const {
  return format("at %.3f ms%s rank %d %s (%d, for %.3f ms)", milli(at),
                onceFormed ? " after the group has formed" : "", rank, nameOf(kind), other, milli(lasts));
}

bool hurtsRail(const HurtPlan& hurt) {
  return hurt.kind == HurtKind::railDies || hurt.kind == HurtKind::railSilent ||
         hurt.kind == HurtKind::railGone || hurt.kind == HurtKind::reset || hurt.kind == HurtKind::railDown;
}

WorldPlan drawPlan(const PlanOptions& options) {
  WorldPlan plan;
  SeededRandom random(options.seed);
  plan.seed = options.seed;
  plan.ranks = options.ranks;
  drawConfig(random, &plan.config);
  plan.config.checksum = std::array{"all", "sample", "off"}[options.seed % 3];
  drawFabric(random, &plan.fabric);
  // Of a stream of its own, so that older seeds that are kept draw what they drew.
  SeededRandom later(options.seed ^ 0x6c61746572);
  plan.uneven = plan.fabric.rails > 1 && later.below(3) == 0;
  plan.latency = microseconds(oneOf(random, {5, 50, 500}));
  plan.communicators = random.below(3) == 0 ? 2 : 1;
  for (int i = 0; i < plan.communicators; i++) drawFlows(random, &plan, i);
  drawMessages(random, options.operations, &plan);
  if (random.below(2) == 0)
    for (FlowPlan& flow : plan.flows)
      if (random.below(3) == 0) flow.begins = microseconds(random.below(200'000));
  plan.occupiedFor = microseconds(oneOf(random, {0, 0, 20, 3000}));
  SeededRandom net(options.seed ^ 0x746370);
  if (options.fabric == FabricKind::tcp) drawTcp(net, &plan);
  if (options.fabric == FabricKind::local) drawLocal(net, &plan);
  const bool wider = isWider(options.seed);
  if (wider) drawWider(later, &plan);
  SeededRandom group(options.seed ^ 0x636f6c6c);
  SeededRandom lack(options.seed ^ 0x6c61636b);
  SeededRandom tree(options.seed ^ 0x74726565);
  if (options.groups) drawGroups(group, std::max<size_t>(1, options.operations / 8), &plan);
  if (options.daemons) drawDaemons(tree, &plan);
  if (!options.hurts || random.below(4) == 0) return plan;
  plan.breakable = true;
  for (uint64_t i = 1 + random.below(3); i > 0; i--) {
    plan.hurts.push_back(drawHurt(random, plan));
    if (wider) drawOtherHurt(later, &plan);
    if (options.fabric == FabricKind::tcp) drawTcpHurt(net, plan, &plan.hurts.back());
    if (options.refusals) drawRefusal(lack, &plan.hurts.back());
    if (options.groups) drawGroupHurt(group, plan, &plan.hurts.back());
    if (options.daemons) drawDaemonHurt(tree, plan, &plan.hurts.back());
    if (options.groups && isHurtLater(options.seed)) putOff(tree, &plan.hurts.back());
  }
  // Where rails are all that is lost everybody comes to rest.
  plan.rests = plan.rests && std::all_of(plan.hurts.begin(), plan.hurts.end(), hurtsRail);
  return plan;
}

std::string WorldPlan::text() const {
  std::string text = format(
      "%d ranks, %d communicators, %zu connections; %d rails%s, at most %d used, landing %s, delivery %d, "
      "shuffle %d, pieces "
      "of "
      "%zu, messages %d, target must know %d, eager up to %d in %d slots, windows of %d KiB, numbers of %d "
      "bits, sums of %s, engines occupied for %.3f ms%s%s\n",
      ranks, communicators, flows.size(), fabric.rails, uneven ? " or fewer" : "", config.maxRails,
      fabric.deferred() ? "when polled" : "at once", static_cast<int>(fabric.delivery), fabric.shuffle,
      fabric.pieceBytes, fabric.messages, fabric.targetMustKnow, config.eagerMaxBytes, config.eagerSlots,
      config.windowKib, config.sequenceBits, config.checksum.c_str(), milli(occupiedFor),
      apart ? ", places apart" : "", rests ? ", a rest before closing" : "");
  if (tcp.on) text += tcp.text();
  if (localAlone) text += "over shared memory\n";
  if (localRanks != 0)
    text += format("shared memory of ranks %llx\n", static_cast<unsigned long long>(localRanks));
  for (const GroupPlan& group : groups)
    text += format("a collective group: %zu operations, pieces of %d bytes, one step up to %d\n",
                   group.operations.size(), config.collnetChunkBytes, config.collnetOneStepBytes);
  for (const DaemonPlan& daemon : daemons)
    text += format("a daemon at %s, windows of %zu\n", daemon.address.c_str(), daemon.window);
  for (const HurtPlan& hurt : hurts) text += hurt.text() + "\n";
  return text;
}

}  // namespace weft::world
