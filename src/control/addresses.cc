// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/addresses.h"

#include <algorithm>
#include <functional>

#include "src/base/name_filter.h"

// The rules of the choice among interfaces.
namespace weft::control {

namespace {

using Predicate = std::function<bool(const Interface&)>;

std::vector<Interface> pick(const std::vector<Interface>& from, const Predicate& wanted) {
  std::vector<Interface> out;
  std::copy_if(from.begin(), from.end(), std::back_inserter(out), wanted);
  return out;
}

// The result of the first rule that leaves something.
std::vector<Interface> firstMatch(const std::vector<Interface>& from, const std::vector<Predicate>& rules) {
  for (const Predicate& rule : rules) {
    auto found = pick(from, rule);
    if (!found.empty()) return found;
  }
  return {};
}

// A name that the user gave counts even for loopback; an exclusion keeps the order of the default rules.
std::vector<Interface> byName(const std::vector<Interface>& all, const std::string& text) {
  const NameFilter filter(text, NameFilter::Colon::plain);
  const auto routable = [](const Interface& i) { return !i.loopback && !i.address.isLinkLocal(); };
  const auto notLoopback = [](const Interface& i) { return !i.loopback; };
  if (filter.empty()) {
    return firstMatch(all,
                      {[&](const Interface& i) { return routable(i) && !isContainerBridge(i.name); },
                       [&](const Interface& i) { return notLoopback(i) && !isContainerBridge(i.name); },
                       [](const Interface& i) { return i.loopback; }, [](const Interface&) { return true; }});
  }
  const auto named = pick(all, [&](const Interface& i) { return filter.accepts(i.name); });
  if (filter.excludes())
    return firstMatch(named, {routable, notLoopback, [](const Interface&) { return true; }});
  return firstMatch(named, {[](const Interface& i) { return !i.address.isLinkLocal(); },
                            [](const Interface&) { return true; }});
}

Error nothingMatches(const std::vector<Interface>& all, const std::string& filter) {
  std::string names;
  for (const Interface& interface : all) {
    const std::string name = " " + interface.name;
    if ((names + " ").find(name + " ") == std::string::npos) names += name;
  }
  return Error(Code::config, "choosing interfaces for control links",
               filter.empty() ? "no interface is up, not even loopback"
                              : "WEFT_SOCKET_IFNAME or NCCL_SOCKET_IFNAME is \"" + filter +
                                    "\", which fits none of:" + names);
}

// An address of each family comes first: where a family does not work, the second try has the other one. The
// rest follows in the kernel's order, which is the same each time.
std::vector<SocketAddress> ordered(const std::vector<Interface>& chosen) {
  std::vector<SocketAddress> v4, v6;
  for (const Interface& i : chosen) (i.address.family() == AF_INET ? v4 : v6).push_back(i.address);
  std::vector<SocketAddress> out;
  const auto append = [&out](const std::vector<SocketAddress>& from, size_t first, size_t last) {
    for (size_t i = first; i < std::min(last, from.size()); i++) out.push_back(from[i]);
  };
  append(v4, 0, 1);
  append(v6, 0, 1);
  append(v4, 1, v4.size());
  append(v6, 1, v6.size());
  return out;
}

}  // namespace

Result<std::vector<SocketAddress>> chooseAddresses(const std::vector<Interface>& interfaces,
                                                   const std::string& filter) {
  const auto chosen = byName(interfaces, filter);
  if (chosen.empty()) return nothingMatches(interfaces, filter);
  return ordered(chosen);
}

std::vector<SocketAddress> joinAddresses(std::vector<SocketAddress> first,
                                         const std::vector<SocketAddress>& second) {
  for (const SocketAddress& address : second) {
    const bool known = std::any_of(first.begin(), first.end(), [&](const SocketAddress& other) {
      return other.text() == address.text();
    });
    if (!known) first.push_back(address);
  }
  return first;
}

bool isAmong(SocketAddress address, const std::vector<SocketAddress>& those) {
  return std::any_of(those.begin(), those.end(), [&](const SocketAddress& other) {
    address.setPort(other.port());
    return other.text() == address.text();
  });
}

std::string missingHere(const std::vector<SocketAddress>& published,
                        const std::vector<Interface>& interfaces) {
  std::string missing;
  for (const SocketAddress& address : published) {
    const bool there = std::any_of(interfaces.begin(), interfaces.end(), [&](const Interface& one) {
      return one.address.ipText() == address.ipText();
    });
    if (!there) missing += (missing.empty() ? "" : ", ") + address.ipText();
  }
  if (missing.empty()) return {};
  return "; this host is cut off itself: no interface that is up has " + missing +
         " any more (ip -br address)";
}

void fillScopes(std::vector<SocketAddress>& addresses, const std::vector<SocketAddress>& own) {
  uint32_t scope = 0;
  for (const SocketAddress& address : own) {
    if (address.isLinkLocal() && scope == 0) scope = address.scope();
  }
  for (SocketAddress& address : addresses) {
    if (address.isLinkLocal() && address.scope() == 0) address.setScope(scope);
  }
}

}  // namespace weft::control
