// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/doctor/mend.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string_view>

#include "src/base/number.h"
#include "src/base/printable.h"

namespace weft::doctor {

namespace {

// The type of an argument. A text stands in comments alone.
enum class Kind : uint8_t { none, interface, address, number, slot, word, text };

// Some commands have names in capitals to fill in, or are for another host than the one that shows them.
enum class Runs : uint8_t { here, filledIn, elsewhere };

constexpr size_t kPlaces = 2;

// Arguments stand in the texts as {0} and {1}.
struct Row {
  Cure cure;
  const char* name;
  std::array<Kind, kPlaces> kinds;
  const char* command;
  const char* comment;
  Runs runs = Runs::here;
};

constexpr Row kRows[] = {
    {Cure::openFiles,
     "open-files",
     {},
     R"(printf '* - nofile 1048576\n' > /etc/security/limits.d/90-weft.conf)",
     "systemd units: LimitNOFILE=1048576; docker: --ulimit nofile=1048576"},
    {Cure::lockedMemory,
     "locked-memory",
     {},
     R"(printf '* - memlock unlimited\n' > /etc/security/limits.d/91-weft-memlock.conf)",
     "systemd units: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1"},
    {Cure::threads,
     "threads",
     {},
     R"(printf '* - nproc 65536\n' > /etc/security/limits.d/92-weft-nproc.conf)",
     ""},
    {Cure::mountShm, "mount-shm", {}, "mount -t tmpfs -o size=16G tmpfs /dev/shm", ""},
    {Cure::enlargeShm,
     "enlarge-shm",
     {},
     "mount -o remount,size=16G /dev/shm",
     "docker: --shm-size=16g; Kubernetes: an emptyDir of medium Memory"},
    {Cure::bringUp, "bring-up", {Kind::interface}, "ip link set dev {0} up", ""},
    {Cure::deleteAddress,
     "delete-address",
     {Kind::address, Kind::interface},
     "ip address del {0} dev {1}",
     ""},
    {Cure::answerApart,
     "answer-apart",
     {},
     "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 "
     "net.ipv4.conf.all.rp_filter=2",
     ""},
    {Cure::longPackets,
     "long-packets",
     {Kind::interface},
     "ip link set dev {0} mtu 9000",
     "if the switches and all hosts carry it: weft doctor --hosts"},
    {Cure::oneLength, "one-length", {Kind::interface, Kind::number}, "ip link set dev {0} mtu {1}", ""},
    {Cure::fullDuplex, "full-duplex", {Kind::interface}, "ethtool -s {0} duplex full autoneg on", ""},
    {Cure::bridgeControl, "bridge-control", {Kind::slot}, "setpci -s {0} ECAP_ACS+6.w=0000", ""},
    {Cure::passThrough,
     "pass-through",
     {},
     R"(sed -i 's/^GRUB_CMDLINE_LINUX="/&iommu=pt /' /etc/default/grub && update-grub)",
     "then boot anew"},
    {Cure::morePorts, "more-ports", {}, "sysctl -w net.ipv4.ip_local_port_range='16384 65535'", ""},
    {Cure::socketBuffer, "socket-buffer", {Kind::word}, "sysctl -w net.ipv4.{0}='4096 131072 16777216'", ""},
    {Cure::subnetManager,
     "subnet-manager",
     {},
     "systemctl start opensm",
     "on one host of this fabric, or on its switch"},
    {Cure::portAddress,
     "port-address",
     {Kind::text},
     "ip address add ADDRESS/24 dev INTERFACE",
     "the interface of {0}, in this namespace; rdma link shows it",
     Runs::filledIn},
    {Cure::deviceAccess,
     "device-access",
     {Kind::word},
     "chmod a+rw /dev/infiniband/{0}",
     "for good: a udev rule, or the device rules of the container"},
    {Cure::letPortIn,
     "let-port-in",
     {Kind::number, Kind::text},
     "iptables -I INPUT -p tcp --dport {0} -j ACCEPT",
     "on {1}; WEFT_PORT_RANGE pins the ports",
     Runs::elsewhere},
    {Cure::lengthOfHosts,
     "length-of-hosts",
     {Kind::number},
     "ip link set dev INTERFACE mtu 1500",
     "on all hosts, or let the switches carry {0}",
     Runs::filledIn},
    {Cure::lengthOfPath,
     "length-of-path",
     {Kind::number, Kind::number},
     "ip link set dev INTERFACE mtu {0}",
     "or let the path carry {1}",
     Runs::filledIn},
};

const Row& rowOf(Cure cure) {
  return *std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& row) { return row.cure == cure; });
}

bool hasOnly(std::string_view text, std::string_view letters) {
  return text.find_first_not_of(letters) == std::string_view::npos;
}

constexpr std::string_view kHexadecimal = "0123456789abcdefABCDEF:.";
constexpr std::string_view kWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

// A name that begins with a dash would be an option of the command.
bool fits(Kind kind, std::string_view argument) {
  constexpr size_t kMostOfInterface = 15, kMostOfWord = 64, kMostOfText = 300;
  switch (kind) {
    case Kind::none:
      return false;
    case Kind::interface:
      return !argument.empty() && argument.size() <= kMostOfInterface && argument.front() != '-' &&
             argument.find_first_of("/ \t\n") == std::string_view::npos;
    case Kind::address:
    case Kind::slot:
      return !argument.empty() && argument.size() <= kMostOfWord && hasOnly(argument, kHexadecimal);
    case Kind::number:
      return parseNumber<uint32_t>(std::string(argument)).has_value();
    case Kind::word:
      return !argument.empty() && argument.size() <= kMostOfWord && hasOnly(argument, kWord);
    case Kind::text:
      return argument.size() <= kMostOfText;
  }
  return false;
}

size_t argumentsOf(const Row& row) {
  return static_cast<size_t>(
      std::count_if(row.kinds.begin(), row.kinds.end(), [](Kind kind) { return kind != Kind::none; }));
}

bool fitsRow(const Row& row, std::span<const std::string> arguments) {
  if (arguments.size() != argumentsOf(row)) return false;
  for (size_t i = 0; i < arguments.size(); i++)
    if (!fits(row.kinds[i], arguments[i])) return false;
  return true;
}

bool setsSomething(std::string_view text) {
  const size_t equals = text.find('=');
  return equals != std::string_view::npos && equals > 0 && hasOnly(text.substr(0, equals), kWord);
}

// Puts the arguments in their places; `written` says how one is written there.
template <class Written>
std::string filled(std::string_view text, std::span<const std::string> arguments, Written written) {
  std::string all;
  while (!text.empty()) {
    const bool place = text.size() >= 3 && text[0] == '{' && text[2] == '}';
    if (place)
      all += written(arguments[static_cast<size_t>(text[1] - '0')]);
    else
      all += text.front();
    text.remove_prefix(place ? 3 : 1);
  }
  return all;
}

std::string commandText(const Row& row, const Mend& mend) {
  std::string line = filled(row.command, mend.arguments,
                            [](const std::string& argument) { return shellQuoted(printable(argument)); });
  if (*row.comment != '\0')
    line += "  # " + filled(row.comment, mend.arguments,
                            [](const std::string& argument) { return printable(argument); });
  return line;
}

}  // namespace

const char* nameOf(Cure cure) {
  return rowOf(cure).name;
}

std::optional<Cure> cureOf(const std::string& name) {
  for (const Row& row : kRows)
    if (name == row.name) return row.cure;
  return std::nullopt;
}

bool isWhole(const Mend& mend) {
  switch (mend.by) {
    case Mend::By::nobody:
      return mend.arguments.empty();
    case Mend::By::root:
      return fitsRow(rowOf(mend.cure), mend.arguments);
    case Mend::By::setting:
      return mend.arguments.size() == 1 && setsSomething(mend.arguments.front());
    case Mend::By::hand:
      return mend.arguments.size() == 1;
  }
  return false;
}

// The value stands behind the name as a shell would take it.
std::string mendText(const Mend& mend) {
  if (mend.by == Mend::By::nobody) return {};
  if (!isWhole(mend)) return "a name here is none that a command line could have; see to it by hand";
  if (mend.by == Mend::By::root) return commandText(rowOf(mend.cure), mend);
  const std::string text = printable(mend.arguments.front());
  if (mend.by == Mend::By::hand) return text;
  const size_t behind = text.find('=') + 1;
  return text.substr(0, behind) + (behind < text.size() ? shellQuoted(text.substr(behind)) : "");
}

std::optional<std::string> commandOf(const Mend& mend) {
  if (mend.by != Mend::By::root || !isWhole(mend)) return std::nullopt;
  const Row& row = rowOf(mend.cure);
  if (row.runs != Runs::here) return std::nullopt;
  return commandText(row, mend);
}

}  // namespace weft::doctor
