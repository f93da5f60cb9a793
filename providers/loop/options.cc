// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/loop/options.h"

#include <algorithm>

#include "src/base/log.h"
#include "src/base/number.h"

namespace weft::loop {

namespace {

bool assignRates(const std::string& text, std::vector<size_t>* out) {
  out->clear();
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('/', at), text.size());
    uint64_t rate = 0;
    if (!readNumber(text.substr(at, end - at), uint64_t{1} << 40, &rate)) return false;
    out->push_back(rate);
    at = end + 1;
  }
  return out->size() <= kMaxRails;
}

bool assignLanding(const std::string& text, Landing* out) {
  *out = text == "poll" ? Landing::whenPolled : Landing::atOnce;
  return text == "poll" || text == "now";
}

bool assignDelivery(const std::string& text, Delivery* out) {
  *out = text == "accepted"     ? Delivery::accepted
         : text == "selectable" ? Delivery::selectable
                                : Delivery::always;
  return text == "accepted" || text == "selectable" || text == "always";
}

struct Key {
  const char* name;
  const char* allowed;
  bool (*set)(LoopOptions& options, const std::string& text);
};

constexpr uint64_t kGiB = uint64_t{1} << 30;

constexpr Key kKeys[] = {
    {"rails", "0 to 32",
     [](LoopOptions& o, const std::string& t) { return readNumber(t, kMaxRails, &o.rails); }},
    {"seed", "a number", [](LoopOptions& o, const std::string& t) { return readNumber(t, ~0ull, &o.seed); }},
    {"landing", "now or poll",
     [](LoopOptions& o, const std::string& t) { return assignLanding(t, &o.landing); }},
    {"delivery", "accepted, selectable or always",
     [](LoopOptions& o, const std::string& t) { return assignDelivery(t, &o.delivery); }},
    {"shuffle", "0 or 1", [](LoopOptions& o, const std::string& t) { return readNumber(t, 1, &o.shuffle); }},
    {"piece", "bytes",
     [](LoopOptions& o, const std::string& t) { return readNumber(t, kGiB, &o.pieceBytes); }},
    {"piecesPerPoll", "a number",
     [](LoopOptions& o, const std::string& t) { return readNumber(t, 1u << 30, &o.piecesPerPoll); }},
    {"bytesPerPoll", "bytes, one number a rail with / between",
     [](LoopOptions& o, const std::string& t) { return assignRates(t, &o.bytesPerPoll); }},
    {"silentFailures", "0 or 1",
     [](LoopOptions& o, const std::string& t) { return readNumber(t, 1, &o.silentFailures); }},
    {"announceClose", "0 or 1",
     [](LoopOptions& o, const std::string& t) { return readNumber(t, 1, &o.announceClose); }},
    {"targetMustKnow", "0 or 1",
     [](LoopOptions& o, const std::string& t) { return readNumber(t, 1, &o.targetMustKnow); }},
    {"postIsCall", "0 or 1",
     [](LoopOptions& o, const std::string& t) { return readNumber(t, 1, &o.postIsCall); }},
    {"messages", "0 or 1",
     [](LoopOptions& o, const std::string& t) { return readNumber(t, 1, &o.messages); }},
    {"lines128", "0 or 1",
     [](LoopOptions& o, const std::string& t) { return readNumber(t, 1, &o.lines128InOrder); }},
    {"sends", "works, 1 to 65536",
     [](LoopOptions& o, const std::string& t) {
       return readNumber(t, 1u << 16, &o.maxDepths.sends) && o.maxDepths.sends > 0;
     }},
    {"notifications", "1 to 1048576",
     [](LoopOptions& o, const std::string& t) {
       return readNumber(t, 1u << 20, &o.maxDepths.notifications) && o.maxDepths.notifications > 0;
     }},
    {"maxWrite", "bytes",
     [](LoopOptions& o, const std::string& t) { return readNumber(t, kGiB, &o.maxWriteBytes); }},
    {"speed", "Mbit/s",
     [](LoopOptions& o, const std::string& t) {
       return readNumber(t, 1u << 30, &o.speedMbps) && o.speedMbps > 0;
     }},
};

Error bad(const std::string& what) {
  return Error(Code::config, "reading the options of the loop provider", what);
}

std::string keyNames() {
  std::string names;
  for (const Key& key : kKeys) names += (names.empty() ? "" : ", ") + std::string(key.name);
  return names;
}

Status assignItem(LoopOptions& options, const std::string& item) {
  const size_t equals = std::min(item.find('='), item.size());
  const std::string name = item.substr(0, equals);
  const std::string value = equals < item.size() ? item.substr(equals + 1) : "";
  for (const Key& key : kKeys) {
    if (name != key.name) continue;
    if (key.set(options, value)) return {};
    return bad(format("%s is \"%s\"; allowed: %s", key.name, value.c_str(), key.allowed));
  }
  return bad(format("there is no \"%s\"; allowed: %s", name.c_str(), keyNames().c_str()));
}

// Refuses what needs landing=poll without it; what else has no effect is let be.
Status consistent(const LoopOptions& options) {
  const bool wantsPoll = options.shuffle || options.pieceBytes || !options.bytesPerPoll.empty();
  if (wantsPoll && !options.deferred()) return bad("shuffle, piece and bytesPerPoll need landing=poll");
  return {};
}

}  // namespace

Result<LoopOptions> parseOptions(const std::string& text, const Config& config) {
  LoopOptions options;
  options.rails = config.loopRails;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    TRY(assignItem(options, text.substr(at, end - at)));
    at = end + 1;
  }
  TRY(consistent(options));
  return options;
}

}  // namespace weft::loop
