// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/fault/control.h"

#include "src/base/log.h"
#include "src/base/random.h"

namespace weft::fault {

bool RuleState::next() {
  const uint64_t ordinal = seen_.fetch_add(1, std::memory_order_relaxed) + 1;
  // From the ordinal, not from a running generator: the same operations are hit whatever happens between.
  if (rule.probability > 0)
    return SeededRandom(seed_ + ordinal * 0x9e3779b97f4a7c15u).chance(rule.probability);
  return ordinal >= rule.nth && (rule.count == 0 || ordinal - rule.nth < rule.count);
}

void RuleState::record(uint64_t works, uint64_t bytes) {
  hits_.fetch_add(1, std::memory_order_relaxed);
  works_.fetch_add(works, std::memory_order_relaxed);
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

FaultCounts RuleState::counts() const {
  return {seen_.load(std::memory_order_relaxed), hits_.load(std::memory_order_relaxed),
          works_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed)};
}

std::string RuleState::text() const {
  const FaultCounts c = counts();
  const auto n = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  return format("fault %s on %s hit %llu of %llu, with %llu works and %llu bytes unfinished",
                faultName(rule.kind), opName(rule.op), n(c.hits), n(c.seen), n(c.works), n(c.bytes));
}

std::shared_ptr<RuleState> FaultControl::add(FaultRule rule) {
  if (rule.kind >= FaultKind::discover) rule.op = FaultOp::call;
  const std::lock_guard lock(mutex_);
  auto state = std::make_shared<RuleState>(std::move(rule), seed_ * 1000003 + all_.size());
  active_.push_back(state);
  all_.push_back(state);
  version_.fetch_add(1, std::memory_order_release);
  return state;
}

void FaultControl::clear() {
  const std::lock_guard lock(mutex_);
  active_.clear();
  version_.fetch_add(1, std::memory_order_release);
}

Rules FaultControl::rules() const {
  const std::lock_guard lock(mutex_);
  return active_;
}

std::vector<std::string> FaultControl::report() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  for (const auto& state : all_) lines.push_back(state->text());
  return lines;
}

}  // namespace weft::fault
