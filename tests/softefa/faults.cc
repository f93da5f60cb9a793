// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/faults.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/softefa/settings.h"
#include "tests/softefa/status.h"

namespace softefa {

namespace {

enum Purpose : uint64_t { kReorder = 1, kReorderTime, kLoss };

uint64_t mix(uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

bool parsePercent(std::string text, uint64_t& value) {
  if (text.ends_with('%')) text.pop_back();
  return parseNumber(text, value) && value <= 100;
}

constexpr uint64_t kLastErrno = 4095;
constexpr std::array<const char*, 9> kCalls{"alloc_pd",  "reg_mr",    "reg_dmabuf_mr",
                                            "create_ah", "create_cq", "create_qp",
                                            "modify_qp", "post_send", "post_recv"};

// "VALUE@N": VALUE, 1 to `most`, for the N-th from now on.
bool parsePlan(const std::string& text, uint64_t most, int& value, uint64_t& nth) {
  const size_t at = text.find('@');
  uint64_t number = 0;
  if (!parseNumber(text.substr(0, at), number) || number < 1 || number > most) return false;
  value = static_cast<int>(number);
  nth = 1;
  return at == std::string::npos || (parseNumber(text.substr(at + 1), nth) && nth > 0);
}

}  // namespace

bool Faults::setSwitch(Rules& rules, const std::string& name, const std::string& value) {
  bool* const target = name == "dead"      ? &rules.dead
                       : name == "dying"   ? &rules.dying
                       : name == "scatter" ? &rules.scatter
                                           : nullptr;
  if (!target || (value != "0" && value != "1")) return false;
  *target = value == "1";
  return true;
}

bool Faults::setPlan(Rules& rules, const std::string& name, const std::string& value) {
  Plan plan;
  if (name == "status") {
    if (!parsePlan(value, static_cast<uint64_t>(Status::unreachable), plan.value, plan.left)) return false;
    rules.status = plan;
    return true;
  }
  const size_t colon = value.find(':');
  if (name != "fail" || colon == std::string::npos) return false;
  const std::string call = value.substr(0, colon);
  if (std::find(kCalls.begin(), kCalls.end(), call) == kCalls.end()) return false;
  if (!parsePlan(value.substr(colon + 1), kLastErrno, plan.value, plan.left)) return false;
  rules.failures[call] = plan;
  return true;
}

bool Faults::set(Rules& rules, const std::string& name, const std::string& value) {
  if (name == "reorder") return parsePercent(value, rules.reorderPercent);
  if (name == "reorder_time") return parseDuration(value, rules.reorderTime);
  if (name == "loss") return parsePercent(value, rules.lossPercent);
  if (name == "retransmit") return parseDuration(value, rules.retransmit);
  if (name == "delay") return parseDuration(value, rules.delay);
  if (name == "late") return parseDuration(value, rules.late);
  if (name == "rate") return parseNumber(value, rules.bytesPerMicrosecond);
  if (name == "mute" && !value.empty()) return rules.muted.insert(value).second || true;
  if (name == "unmute") return rules.muted.erase(value) > 0 || true;
  return setSwitch(rules, name, value) || setPlan(rules, name, value);
}

bool Faults::apply(const std::string& assignments, std::string& wrong) {
  Rules rules = rules_;
  for (const auto& item : splitList(assignments)) {
    if (item == "none") {
      rules = Rules{};
      continue;
    }
    const size_t equals = item.find('=');
    std::string name = item.substr(0, equals);
    bool ours = true;
    uint64_t nic = 0;
    if (const size_t dot = name.find('.');
        name.starts_with("nic") && dot != std::string::npos && parseNumber(name.substr(3, dot - 3), nic)) {
      ours = nic == nic_;
      name = name.substr(dot + 1);
    }
    Rules others = rules;
    if (equals == std::string::npos || !set(ours ? rules : others, name, item.substr(equals + 1))) {
      wrong = item;
      return false;
    }
  }
  rules_ = rules;
  return true;
}

uint64_t Faults::draw(const PacketHeader& header, uint64_t purpose) const {
  uint64_t from = 0;
  std::memcpy(&from, header.from.bytes.data() + 8, sizeof from);
  uint64_t value = mix(seed_ ^ mix(purpose));
  for (const uint64_t part :
       {from, uint64_t{header.fromQpn} << 32 | header.messageId, uint64_t{header.offset},
        static_cast<uint64_t>(header.kind) << 32 | header.attempt}) {
    value = mix(value ^ part);
  }
  return value;
}

bool Faults::holdsPackets() const {
  return rules_.reorderPercent > 0 || rules_.lossPercent > 0 || rules_.delay.count() > 0 ||
         rules_.bytesPerMicrosecond > 0;
}

std::optional<Clock::time_point> Faults::release(const PacketHeader& header, Clock::time_point now,
                                                 bool& lost) {
  lost = draw(header, kLoss) % 100 < rules_.lossPercent;
  if (lost && header.kind == PacketKind::datagram) return std::nullopt;
  Clock::time_point when = now + rules_.delay;
  if (lost) when += rules_.retransmit;
  if (rules_.reorderTime.count() > 0 && draw(header, kReorder) % 100 < rules_.reorderPercent) {
    when += std::chrono::microseconds(
        draw(header, kReorderTime) % static_cast<uint64_t>(rules_.reorderTime.count()) + 1);
  }
  if (rules_.bytesPerMicrosecond > 0) {
    wireFree_ = std::max(wireFree_, now) +
                std::chrono::nanoseconds(header.length * uint64_t{1000} / rules_.bytesPerMicrosecond);
    when = std::max(when, wireFree_);
  }
  return when;
}

bool Faults::muted(const Gid& gid) const {
  return std::any_of(rules_.muted.begin(), rules_.muted.end(),
                     [&](const std::string& host) { return host == "*" || sameHost(gid, gidOf(host, 0)); });
}

uint32_t Faults::plannedStatus() {
  Plan& plan = rules_.status;
  return plan.left > 0 && --plan.left == 0 ? static_cast<uint32_t>(plan.value) : 0;
}

int Faults::plannedFailure(const std::string& call) {
  if (rules_.failures.empty()) return 0;
  const auto planned = rules_.failures.find(call);
  if (planned == rules_.failures.end() || planned->second.left == 0) return 0;
  return --planned->second.left == 0 ? planned->second.value : 0;
}

}  // namespace softefa
