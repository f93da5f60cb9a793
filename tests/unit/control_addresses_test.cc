// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <arpa/inet.h>
#include <netinet/in.h>

#include "src/control/addresses.h"
#include "tests/support/catch.h"

using namespace weft;
using namespace weft::control;

namespace {

Interface interface(const char* name, const char* text, bool loopback = false) {
  Interface out;
  out.name = name;
  out.loopback = loopback;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.address.storage);
  const bool is4 = inet_pton(AF_INET, text, &v4->sin_addr) == 1;
  if (!is4) REQUIRE(inet_pton(AF_INET6, text, &v6->sin6_addr) == 1);
  out.address.storage.ss_family = is4 ? AF_INET : AF_INET6;
  out.address.length = is4 ? sizeof *v4 : sizeof *v6;
  if (!is4 && out.address.isLinkLocal()) out.address.setScope(3);
  return out;
}

const std::vector<Interface>& host() {
  static const std::vector<Interface> all = {
      interface("lo", "127.0.0.1", true), interface("lo", "::1", true),
      interface("eth0", "192.0.2.1"),     interface("eth0", "2001:db8::1"),
      interface("eth0", "fe80::1"),       interface("eth1", "192.0.2.2"),
      interface("docker0", "172.17.0.1"), interface("virbr0", "192.168.122.1"),
      interface("ib0", "198.51.100.1"),
  };
  return all;
}

// The chosen addresses as one line, without ports.
std::string chosen(const std::string& filter, const std::vector<Interface>& all = host()) {
  const auto addresses = chooseAddresses(all, filter);
  if (!addresses) return addresses.error().message();
  std::string out;
  for (const auto& address : *addresses) {
    const std::string text = address.text();
    if (!out.empty()) out.push_back(' ');
    out.append(text, 0, text.rfind(':'));
  }
  return out;
}

}  // namespace

TEST_CASE("unset, loopback, bridges and link-local addresses are left out") {
  CHECK(chosen("") == "192.0.2.1 [2001:db8::1] 192.0.2.2 198.51.100.1");
}

TEST_CASE("names are prefixes, exact with =, excluded with ^") {
  CHECK(chosen("eth") == "192.0.2.1 [2001:db8::1] 192.0.2.2");
  CHECK(chosen("ib,eth1") == "192.0.2.2 198.51.100.1");
  CHECK(chosen("=eth1") == "192.0.2.2");
  CHECK(chosen("lo") == "127.0.0.1 [::1]");
  CHECK(chosen("docker") == "172.17.0.1");
  CHECK(chosen("^docker,virbr") == "192.0.2.1 [2001:db8::1] 192.0.2.2 198.51.100.1");
  CHECK(chosen("^=eth0,docker0,virbr0") == "192.0.2.2 198.51.100.1");
  CHECK(chosen("=eth") == chosen("=nothing").replace(chosen("=nothing").find("=nothing"), 8, "=eth"));
}

TEST_CASE("a filter that fits nothing names itself and what there is") {
  const std::string message = chosen("wlan");
  CHECK(message.find("\"wlan\"") != std::string::npos);
  CHECK(message.find("eth0 eth1") != std::string::npos);
  const Interface other = interface("eth10", "192.0.2.10");
  CHECK(chosen("wlan", {other, host()[2], host()[3], host()[5]}).ends_with("none of: eth10 eth0 eth1"));
}

TEST_CASE("loopback is used where nothing else is up") {
  const auto& all = host();
  CHECK(chosen("", {all[0], all[1]}) == "127.0.0.1 [::1]");
  CHECK(chosen("", {all[0], all[6]}) == "127.0.0.1");
  CHECK(chosen("^eth", {all[0], all[2]}) == "127.0.0.1");
  CHECK(chosen("", {all[6]}) == "172.17.0.1");
}

TEST_CASE("link-local addresses are used where there are no others") {
  const auto& all = host();
  CHECK(chosen("", {all[0], all[4]}).find("fe80::1") != std::string::npos);
}

// A board controller's own network has one and the same address on every host.
TEST_CASE("link-local addresses of IPv4 are used where there are no others") {
  const auto& all = host();
  const Interface board = interface("bmc0", "169.254.0.18");
  CHECK(chosen("", {board, all[2]}) == "192.0.2.1");
  CHECK(chosen("^lo", {board, all[2]}) == "192.0.2.1");
  CHECK(chosen("bmc,eth", {board, all[2]}) == "192.0.2.1");
  CHECK(chosen("", {all[0], board}) == "169.254.0.18");
  CHECK(chosen("bmc", {board, all[2]}) == "169.254.0.18");
}

TEST_CASE("this host has an interface") {
  const auto all = localInterfaces();
  REQUIRE(all);
  CHECK_FALSE(all->empty());
}

TEST_CASE("a host that has lost an address says so, and which") {
  const std::vector<SocketAddress> published = {host()[2].address.withPort(4711),
                                                host()[5].address.withPort(4711)};
  CHECK(missingHere(published, host()).empty());
  const std::string words =
      missingHere(published, {interface("lo", "127.0.0.1", true), interface("eth0", "192.0.2.1")});
  CHECK(words.find("no interface that is up has 192.0.2.2 any more") != std::string::npos);
}
