// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/topo/rail_groups.h"

#include <algorithm>
#include <map>
#include <strings.h>

#include "src/base/config.h"
#include "src/base/log.h"

// The rules of WEFT_MERGE_NICS.
namespace weft::topo {

namespace {

constexpr size_t kMostRails = 16;  // the most lanes of a connection

// How far a rule looks for cards that belong together.
enum class Reach { none, card, pciSwitch };

struct Rule {
  Reach reach = Reach::none;
  std::vector<std::vector<std::string>> named;
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at)
      parts.emplace_back();
    else
      parts.back().push_back(c);
  }
  std::erase(parts, "");
  return parts;
}

Rule ruleFrom(const std::string& text) {
  const auto is = [&](const char* word) { return ::strcasecmp(text.c_str(), word) == 0; };
  if (is("off") || is("LOC")) return {Reach::none, {}};
  if (is("port")) return {Reach::card, {}};
  if (text.empty() || is("auto") || isMergeLevel(text)) return {Reach::pciSwitch, {}};
  Rule rule;
  for (const std::string& group : split(text, ';')) rule.named.push_back(split(group, ','));
  return rule;
}

// True for a device below `directory` in the PCI tree.
bool isBelow(const std::string& path, const std::string& directory) {
  return path.size() > directory.size() && path.starts_with(directory) && path[directory.size()] == '/';
}

std::string lastPart(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// True for the root of a PCI tree: above it is the processor, or whatever a hypervisor attaches its buses to.
bool isHostBridge(const std::string& directory) {
  return lastPart(directory).starts_with("pci");
}

// A card: one PCI address, with all its functions and their ports.
struct Card {
  std::string path;   // its PCI address without the function
  std::string alike;  // cards with the same text may form a device
  std::vector<int> ports;
  std::string home;  // the nearest bridge above it that has another such card or an accelerator below it
};

// Why no rule groups this device with others; empty: a rule may.
std::string alwaysAlone(const DeviceInfo& info) {
  if (!info.offload) return "alone: the processor moves its data, a second one would not add to that";
  if (info.pciPath.empty()) return "alone: sysfs does not show it on the PCI bus";
  if (info.virtualFunction) return "alone: a virtual function shares its port with others of the card";
  return {};
}

std::string cardPath(const std::string& pciPath) {
  const size_t dot = pciPath.rfind('.');
  return pciPath.substr(0, dot);
}

// The rules at work: devices become cards, cards find their homes, homes become groups.
class Grouping {
 public:
  Grouping(std::span<const DeviceInfo> devices, std::span<const std::string> accelerators, Reach reach)
      : devices_(devices), accelerators_(accelerators), reach_(reach), taken_(devices.size()) {}

  std::vector<RailGroup> run() {
    for (size_t i = 0; i < devices_.size(); i++) collect(static_cast<int>(i));
    std::stable_sort(cards_.begin(), cards_.end(),
                     [](const Card& a, const Card& b) { return a.path < b.path; });
    if (reach_ == Reach::pciSwitch) joinHomes();
    for (const Card& card : cards_) {
      if (taken_[first(card)]) continue;
      add(card.ports, card.ports.size() > 1 ? "ports of one card" : reasonAlone(card));
    }
    std::sort(groups_.begin(), groups_.end(),
              [](const RailGroup& a, const RailGroup& b) { return a.rails.front() < b.rails.front(); });
    return std::move(groups_);
  }

 private:
  void collect(int index) {
    const DeviceInfo& info = devices_[static_cast<size_t>(index)];
    std::string why = reach_ == Reach::none ? "alone: WEFT_MERGE_NICS does not put it together with others"
                                            : alwaysAlone(info);
    if (!why.empty()) return add({index}, std::move(why));
    const std::string path = cardPath(info.pciPath);
    const std::string alike =
        format("%s %s %d", info.provider.c_str(), info.linkLayer.c_str(), info.speedMbps);
    for (Card& card : cards_)
      if (card.path == path && card.alike == alike) return card.ports.push_back(index);
    cards_.push_back({path, alike, {index}, {}});
  }

  void add(std::vector<int> rails, std::string reason) {
    for (const int rail : rails) taken_[static_cast<size_t>(rail)] = true;
    groups_.push_back({std::move(rails), std::move(reason)});
  }

  static size_t first(const Card& card) { return static_cast<size_t>(card.ports.front()); }

  size_t acceleratorsBelow(const std::string& directory) const {
    return static_cast<size_t>(std::count_if(accelerators_.begin(), accelerators_.end(),
                                             [&](const auto& path) { return isBelow(path, directory); }));
  }

  std::string homeOf(const Card& card) const {
    for (std::string above = card.path; !isHostBridge(above);) {
      above.resize(above.rfind('/') == std::string::npos ? 0 : above.rfind('/'));
      if (above.empty()) break;
      const auto neighbour = [&](const Card& other) {
        return &other != &card && other.alike == card.alike && isBelow(other.path, above);
      };
      if (acceleratorsBelow(above) > 0 || std::any_of(cards_.begin(), cards_.end(), neighbour)) return above;
    }
    return {};
  }

  // Groups the cards with the same home, all alike, in the order of their addresses.
  void joinHomes() {
    std::map<std::pair<std::string, std::string>, std::vector<const Card*>> homes;
    for (Card& card : cards_) {
      card.home = homeOf(card);
      if (!card.home.empty()) homes[{card.home, card.alike}].push_back(&card);
    }
    for (const auto& [key, cards] : homes) join(key.first, cards);
  }

  // With accelerators below the home, each of them gets its share of the cards. Without accelerators a PCI
  // switch is reason enough for a group. The host bridge is not: unrelated devices hang there.
  void join(const std::string& home, const std::vector<const Card*>& cards) {
    const size_t accelerators = acceleratorsBelow(home);
    if (accelerators == 0 && isHostBridge(home)) return;
    const size_t many = cards.size() / std::max<size_t>(accelerators, 1);
    if (many < 2 || cards.size() % std::max<size_t>(accelerators, 1) != 0) return;
    const std::string place = isHostBridge(home) ? "host bridge " : "PCI switch ";
    const std::string reason = accelerators == 0 ? format("below %s%s", place.c_str(), lastPart(home).c_str())
                                                 : format("%zu cards for each accelerator below %s%s", many,
                                                          place.c_str(), lastPart(home).c_str());
    for (size_t i = 0; i < cards.size(); i += many) {
      std::vector<int> rails;
      for (size_t j = i; j < i + many; j++)
        rails.insert(rails.end(), cards[j]->ports.begin(), cards[j]->ports.end());
      if (rails.size() <= kMostRails) add(std::move(rails), reason);
    }
  }

  std::string reasonAlone(const Card& card) const {
    if (reach_ == Reach::card) return "alone: its card has no other port like it";
    if (card.home.empty()) return "alone: it shares no PCI bridge with a card like it or with an accelerator";
    const auto here = [&](const Card& other) { return other.home == card.home && other.alike == card.alike; };
    const auto cards = static_cast<size_t>(std::count_if(cards_.begin(), cards_.end(), here));
    if (acceleratorsBelow(card.home) == 0)
      return format("alone: with cards like it it shares only %s", lastPart(card.home).c_str());
    return format("alone: cards like it below %s: %zu, accelerators: %zu", lastPart(card.home).c_str(), cards,
                  acceleratorsBelow(card.home));
  }

  std::span<const DeviceInfo> devices_;
  std::span<const std::string> accelerators_;
  Reach reach_;
  std::vector<bool> taken_;
  std::vector<Card> cards_;
  std::vector<RailGroup> groups_;
};

Error badNames(const std::string& rule, const std::string& why, std::span<const DeviceInfo> devices) {
  std::string names;
  for (const DeviceInfo& info : devices) names += (names.empty() ? "" : ", ") + info.name;
  return Error(
      Code::config, "grouping network cards",
      format("WEFT_MERGE_NICS is \"%s\": %s; allowed: auto, port, off, or names as in \"a,b;c,d\" of %s",
             rule.c_str(), why.c_str(), names.c_str()));
}

Result<std::vector<RailGroup>> groupNamed(std::span<const DeviceInfo> devices, const Rule& named,
                                          const std::string& rule) {
  std::vector<RailGroup> groups;
  std::vector<bool> taken(devices.size());
  for (const std::vector<std::string>& names : named.named) {
    RailGroup group{{}, "WEFT_MERGE_NICS names them"};
    for (const std::string& name : names) {
      const auto found = std::find_if(devices.begin(), devices.end(),
                                      [&](const DeviceInfo& info) { return info.name == name; });
      if (found == devices.end()) return badNames(rule, "there is no " + name, devices);
      const auto index = found - devices.begin();
      if (taken[static_cast<size_t>(index)]) return badNames(rule, name + " is named twice", devices);
      taken[static_cast<size_t>(index)] = true;
      group.rails.push_back(static_cast<int>(index));
    }
    if (group.rails.size() > kMostRails)
      return badNames(rule, format("at most %zu fit into one device", kMostRails), devices);
    if (!group.rails.empty()) groups.push_back(std::move(group));
  }
  for (size_t i = 0; i < devices.size(); i++)
    if (!taken[i]) groups.push_back({{static_cast<int>(i)}, "alone: WEFT_MERGE_NICS does not name it"});
  std::sort(groups.begin(), groups.end(),
            [](const RailGroup& a, const RailGroup& b) { return a.rails.front() < b.rails.front(); });
  return groups;
}

}  // namespace

Result<std::vector<RailGroup>> groupRails(std::span<const DeviceInfo> devices,
                                          std::span<const std::string> accelerators,
                                          const std::string& rule) {
  const Rule wanted = ruleFrom(rule);
  if (!wanted.named.empty()) return groupNamed(devices, wanted, rule);
  return Grouping(devices, accelerators, wanted.reach).run();
}

}  // namespace weft::topo
