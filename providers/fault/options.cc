// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/fault/options.h"

#include <algorithm>
#include <iterator>

#include "src/base/log.h"
#include "src/base/number.h"

namespace weft::fault {

namespace {

constexpr const char* kKindNames[] = {
    "drop",         "duplicate", "delay",          "reorder",     "hold",           "early",
    "refuse",       "error",     "errorLanded",    "kill",        "killLate",       "killSilent",
    "corrupt",      "discover",  "noDevice",       "open",        "registerMemory", "openQueue",
    "openEndpoint", "connect",   "connectRefused", "connectNever"};
static_assert(std::size(kKindNames) == static_cast<size_t>(FaultKind::connectNever) + 1);

constexpr const char* kOpNames[] = {"any",      "write", "writeNotify", "read",
                                    "notified", "sent",  "poll",        "call"};
static_assert(std::size(kOpNames) == static_cast<size_t>(FaultOp::call) + 1);

template <size_t N>
std::string join(const char* const (&names)[N]) {
  std::string all;
  for (const char* name : names) all += (all.empty() ? "" : ", ") + std::string(name);
  return all;
}

template <class E, size_t N>
bool pick(const char* const (&names)[N], const std::string& text, E* out) {
  const auto at = std::find(std::begin(names), std::end(names), text);
  if (at == std::end(names)) return false;
  *out = static_cast<E>(at - std::begin(names));
  return true;
}

// "0.25", "1": read by hand, since strtod follows the locale.
bool probability(const std::string& text, double* out) {
  const size_t dot = std::min(text.find('.'), text.size());
  uint64_t whole = 0, part = 0;
  if (!readNumber(text.substr(0, dot), 1, &whole)) return false;
  double scale = 1;
  if (dot < text.size()) {
    if (!readNumber(text.substr(dot + 1), 999'999'999, &part)) return false;
    for (size_t i = dot + 1; i < text.size(); i++) scale *= 10;
  }
  *out = static_cast<double>(whole) + static_cast<double>(part) / scale;
  return *out > 0 && *out <= 1;
}

struct RuleKey {
  const char* name;
  const char* allowed;
  bool (*set)(FaultRule& rule, const std::string& text);
};

constexpr uint64_t kMany = 1u << 30;

bool setPolls(FaultRule& rule, const std::string& text) {
  uint32_t polls = 0;
  if (!readNumber(text, kMany, &polls)) return false;
  rule.polls = polls;
  return true;
}

constexpr RuleKey kRuleKeys[] = {
    {"op", "any, write, writeNotify, read, notified, sent or poll",
     [](FaultRule& r, const std::string& t) { return pick(kOpNames, t, &r.op) && r.op != FaultOp::call; }},
    {"nth", "a number from 1",
     [](FaultRule& r, const std::string& t) { return readNumber(t, kMany, &r.nth) && r.nth > 0; }},
    {"count", "a number; 0 for all",
     [](FaultRule& r, const std::string& t) { return readNumber(t, kMany, &r.count); }},
    {"p", "above 0, up to 1",
     [](FaultRule& r, const std::string& t) { return probability(t, &r.probability); }},
    {"rail", "an index from 0",
     [](FaultRule& r, const std::string& t) { return readNumber(t, kMany, &r.rail); }},
    {"device", "a device's name",
     [](FaultRule& r, const std::string& t) {
       r.device = t;
       return !t.empty();
     }},
    {"lane", "an index from 0",
     [](FaultRule& r, const std::string& t) { return readNumber(t, kMany, &r.lane); }},
    {"minBytes", "bytes",
     [](FaultRule& r, const std::string& t) { return readNumber(t, kMany, &r.minBytes); }},
    {"polls", "a number", setPolls},
    {"times", "a number from 1",
     [](FaultRule& r, const std::string& t) { return readNumber(t, kMany, &r.times) && r.times > 0; }},
    {"window", "a number from 1",
     [](FaultRule& r, const std::string& t) { return readNumber(t, 4096, &r.window) && r.window > 0; }},
};

Error bad(const std::string& what) {
  return Error(Code::config, "reading the fault injector's rules", what);
}

Error badValue(const std::string& name, const std::string& value, const std::string& allowed) {
  return bad(format("%s is \"%s\"; allowed: %s", name.c_str(), value.c_str(), allowed.c_str()));
}

std::string keyNames() {
  std::string names = "seed, delivery, fault";
  for (const RuleKey& key : kRuleKeys) names += std::string(", ") + key.name;
  return names;
}

Status setGlobal(FaultOptions& options, const std::string& name, const std::string& value) {
  if (name == "seed") {
    if (!readNumber(value, ~uint64_t{0}, &options.seed)) return badValue(name, value, "a number");
    return {};
  }
  if (value == "accepted")
    options.delivery = Delivery::accepted;
  else if (value == "selectable")
    options.delivery = Delivery::selectable;
  else
    return badValue(name, value, "accepted or selectable");
  return {};
}

Status setRule(FaultOptions& options, const std::string& name, const std::string& value) {
  for (const RuleKey& key : kRuleKeys) {
    if (name != key.name) continue;
    if (options.rules.empty()) return bad(name + " comes before any fault; write fault=NAME first");
    if (!key.set(options.rules.back(), value)) return badValue(name, value, key.allowed);
    return {};
  }
  return bad(format("there is no \"%s\"; allowed: %s", name.c_str(), keyNames().c_str()));
}

Status setItem(FaultOptions& options, const std::string& item) {
  const size_t equals = std::min(item.find('='), item.size());
  const std::string name = item.substr(0, equals);
  const std::string value = equals < item.size() ? item.substr(equals + 1) : "";
  if (name == "seed" || name == "delivery") return setGlobal(options, name, value);
  if (name != "fault") return setRule(options, name, value);
  FaultRule rule;
  if (!pick(kKindNames, value, &rule.kind)) return badValue(name, value, join(kKindNames));
  if (rule.kind >= FaultKind::discover) rule.op = FaultOp::call;
  options.rules.push_back(rule);
  return {};
}

}  // namespace

uint32_t FaultRule::pollsOf() const {
  if (polls) return *polls;
  switch (kind) {
    case FaultKind::duplicate:
      return 0;
    case FaultKind::hold:
      return 1;
    case FaultKind::kill:
      return 8;
    default:
      return 3;
  }
}

const char* faultName(FaultKind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}

const char* opName(FaultOp op) {
  return kOpNames[static_cast<size_t>(op)];
}

bool fits(FaultKind kind, FaultOp op) {
  const auto oneOf = [kind](std::initializer_list<FaultKind> kinds) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  using enum FaultKind;
  if (kind >= discover) return op == FaultOp::call;
  switch (op) {
    case FaultOp::call:
      return false;
    case FaultOp::notified:
      return oneOf({drop, delay, duplicate});
    case FaultOp::sent:
      return oneOf({drop, delay, error});
    case FaultOp::poll:
      return oneOf({kill, killLate, killSilent});
    case FaultOp::read:
      return kind != early && kind != corrupt;
    default:
      return true;
  }
}

Result<FaultOptions> parseOptions(const std::string& text) {
  FaultOptions options;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    TRY(setItem(options, text.substr(at, end - at)));
    at = end + 1;
  }
  for (const FaultRule& rule : options.rules) {
    if (!fits(rule.kind, rule.op))
      return bad(format("fault %s cannot hit op %s", faultName(rule.kind), opName(rule.op)));
  }
  return options;
}

}  // namespace weft::fault
