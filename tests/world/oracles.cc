// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/world/oracles.h"

#include <algorithm>

#include "src/base/log.h"

namespace weft::world {

bool losesRank(const HurtPlan& hurt) {
  return hurt.kind == HurtKind::kill || (hurt.kind == HurtKind::stop && hurt.lasts > std::chrono::minutes(1));
}

namespace {

constexpr TimePoint kBeginning{std::chrono::seconds(1)};
constexpr Nanoseconds kForming = std::chrono::seconds(1);  // that a group takes at most which nobody hurts

bool isRefusal(const HurtPlan& hurt) {
  return hurt.kind == HurtKind::noSockets || hurt.kind == HurtKind::noRegistering ||
         hurt.kind == HurtKind::noMemory;
}

// It may have connected nobody.
bool isRefused(const WorldPlan& plan, int rank) {
  return std::any_of(plan.hurts.begin(), plan.hurts.end(),
                     [&](const HurtPlan& hurt) { return isRefusal(hurt) && hurt.rank == rank; });
}

bool standsStill(const HurtPlan& hurt) {
  return hurt.kind == HurtKind::stop || hurt.kind == HurtKind::pause || hurt.kind == HurtKind::cut;
}

bool touches(const HurtPlan& hurt, int rank) {
  return hurt.rank == rank || (hurt.kind == HurtKind::cut && hurt.other == rank);
}

// Whether what was done to the rank takes longer, in sum, than its peers wait when they close.
bool isSlow(const WorldPlan& plan, int rank) {
  Nanoseconds sum{};
  for (const HurtPlan& hurt : plan.hurts)
    if (touches(hurt, rank) && standsStill(hurt))
      sum += std::min<Nanoseconds>(hurt.lasts, std::chrono::hours(1));
  return sum > plan.config.closeTimeout / 2;
}

// A rail that is lost is made up for by another one, if that is all that happens, and if the fabric can say
// what was delivered: one that only accepts loses what it had completed, and a probe of the receiver finds
// that out.
bool losesRails(const WorldPlan& plan, int rank) {
  const bool any = std::any_of(plan.hurts.begin(), plan.hurts.end(),
                               [&](const HurtPlan& hurt) { return hurtsRail(hurt) && hurt.rank == rank; });
  const bool onlyAccepts = plan.fabric.delivery == Delivery::accepted;
  return any && (onlyAccepts || plan.lanesOf(rank) == 1 || plan.hurts.size() > 1);
}

bool isSpoilt(const WorldPlan& plan, const FlowPlan& flow) {
  return std::any_of(plan.hurts.begin(), plan.hurts.end(), [&](const HurtPlan& hurt) {
    const bool ofFlow =
        hurt.kind == HurtKind::abort || hurt.kind == HurtKind::misuse || hurt.kind == HurtKind::withdraw;
    return ofFlow && &plan.flows[static_cast<size_t>(hurt.other)] == &flow;
  });
}

bool mayFail(const WorldPlan& plan, int rank) {
  return isLost(plan, rank) || isSlow(plan, rank) || losesRails(plan, rank) || isRefused(plan, rank);
}

bool mayFail(const WorldPlan& plan, const FlowPlan& flow) {
  if (isSpoilt(plan, flow)) return true;
  return mayFail(plan, flow.from) || mayFail(plan, flow.to);
}

// When the last thing was done to the rank that it is lost by, and how long it may take others to hear of it.
TimePoint latest(const WorldPlan& plan, int lost) {
  TimePoint when = kBeginning;
  for (const HurtPlan& hurt : plan.hurts) {
    const auto patience = hurt.kind == HurtKind::kill ? Milliseconds(100) : plan.config.peerTimeout * 3 / 2;
    if (losesRank(hurt) && hurt.rank == lost)
      when = std::max(when, kBeginning + hurt.at + patience + (hurt.onceFormed ? kForming : Nanoseconds{}));
  }
  return when + plan.config.connectTimeout + 10 * plan.config.closeTimeout;
}

// Both ends do what they should, whatever was done to others.
bool isWell(const WorldPlan& plan, const FlowPlan& flow) {
  for (const HurtPlan& hurt : plan.hurts) {
    const bool ofRank = touches(hurt, flow.from) || touches(hurt, flow.to);
    if (ofRank && (losesRank(hurt) || hurtsRail(hurt) || isRefusal(hurt))) return false;
  }
  return !isSlow(plan, flow.from) && !isSlow(plan, flow.to);
}

// A receiver that closes in the middle tells its sender at once, whatever the connection has come to.
bool heardTooLate(const WorldPlan& plan, const End& end, int rank) {
  if (plan.hurts.size() != 1) return false;
  const HurtPlan& hurt = plan.hurts.front();
  if (hurt.kind != HurtKind::abort || hurt.rank != end.flow().to || rank != end.flow().from) return false;
  const Nanoseconds began = std::max(hurt.at, end.flow().begins);
  return isSpoilt(plan, end.flow()) && end.report().when > kBeginning + began + std::chrono::seconds(1);
}

std::string judgeFailure(const WorldPlan& plan, const End& end, int rank) {
  const EndReport& report = end.report();
  if (!mayFail(plan, end.flow()))
    return end.name() + " failed, and nothing was done to either of its ranks: " + report.why;
  const int other = rank == end.flow().from ? end.flow().to : end.flow().from;
  if (report.aborted || !isLost(plan, other) || isSlow(plan, rank) || isRefused(plan, rank)) return {};
  if (plan.hurts.size() == 1 && report.when > latest(plan, other))
    return end.name() + " heard too late that its peer is lost: " + report.why;
  const std::string culprit = "rank" + std::to_string(other);
  const bool names = report.why.find(culprit) != std::string::npos;
  if (report.messages > 0 && !names) return end.name() + " does not name " + culprit + ": " + report.why;
  return {};
}

bool hurtsGroup(const HurtPlan& hurt) {
  return hurt.kind == HurtKind::leave || hurt.kind == HurtKind::another;
}

// A group needs all of its ranks, all of which are in it, and the daemons.
bool groupMayFail(const WorldPlan& plan) {
  for (int process = 0; process < plan.processes(); process++)
    if (mayFail(plan, process)) return true;
  return std::any_of(plan.hurts.begin(), plan.hurts.end(), hurtsGroup);
}

// As others speak of it.
std::string nameOf(const WorldPlan& plan, int process) {
  return plan.isDaemon(process) ? plan.daemons[static_cast<size_t>(process - plan.ranks)].address
                                : format("rank %d", process);
}

// Where one process is all that was hurt, its group's other ranks hear of it in time, and by its name,
// whether the group is formed yet or not.
std::string judgeFailure(const WorldPlan& plan, const Member& member, int rank) {
  const MemberReport& report = member.report();
  if (!groupMayFail(plan)) return member.name() + " failed, and nothing was done to its ranks: " + report.why;
  if (plan.hurts.size() != 1) return {};
  const HurtPlan& hurt = plan.hurts.front();
  if (hurt.rank == rank || !(losesRank(hurt) || hurtsGroup(hurt))) return {};
  // A rank that wants another operation may see it first, and takes the others' for wrong.
  const bool disagrees =
      hurt.kind == HurtKind::another && report.why.find("matching a message") != std::string::npos;
  if (!disagrees && report.why.find(nameOf(plan, hurt.rank)) == std::string::npos)
    return member.name() + " does not name " + nameOf(plan, hurt.rank) + ": " + report.why;
  if (losesRank(hurt) && report.when > latest(plan, hurt.rank) + 2 * plan.config.collnetTimeout)
    return member.name() + " heard too late that a rank is lost: " + report.why;
  return {};
}

}  // namespace

bool isLost(const WorldPlan& plan, int rank) {
  return std::any_of(plan.hurts.begin(), plan.hurts.end(),
                     [&](const HurtPlan& hurt) { return losesRank(hurt) && hurt.rank == rank; });
}

std::string judge(const WorldPlan& plan, const End& end, int rank) {
  if (!end.complaint().empty()) return end.complaint();
  if (isLost(plan, rank)) return {};  // nobody sees what becomes of it
  const EndReport& report = end.report();
  if (isWell(plan, end.flow()) && report.closing >= plan.config.closeTimeout)
    return end.name() + " was closed by a deadline, though both of its ranks are there and answer";
  if (heardTooLate(plan, end, rank))
    return end.name() + " heard too late that its receiver closed: " + report.why;
  if (report.failed) return judgeFailure(plan, end, rank);
  if (!end.closed()) return end.name() + " is not closed: " + end.progress();
  if (report.messages != end.flow().messages())
    return end.name() + " ended before its time: " + end.progress();
  return {};
}

std::string judge(const WorldPlan& plan, const Member& member, int rank) {
  if (!member.complaint().empty()) return member.complaint();
  if (isLost(plan, rank)) return {};
  if (!member.closed()) return member.name() + " is not closed: " + member.progress();
  if (member.report().failed) return judgeFailure(plan, member, rank);
  if (member.report().done != member.plan().operations.size())
    return member.name() + " ended before its time: " + member.progress();
  return {};
}

// The end that finds a message too large fails, and its other end hears why before it hears that it was
// closed.
std::string judgePair(const WorldPlan& plan, const End& sender, const End& receiver) {
  const bool misused = plan.hurts.size() == 1 && plan.hurts.front().kind == HurtKind::misuse &&
                       sender.report().misused && sender.report().failed && receiver.report().failed;
  if (!misused) return {};
  for (const End* end : {&sender, &receiver})
    if (end->report().why.find("matching a message") == std::string::npos)
      return end->name() + " does not hear that a message was too large: " + end->report().why;
  return {};
}

}  // namespace weft::world
