// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/config.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/nearest.h"
#include "src/base/number.h"

// The table of settings, and its parsing. Order of precedence: environment, file, NCCL's variable, default.
namespace weft {

namespace {

constexpr int kHourMs = 3600 * 1000;

// Each row's text is the documentation that `weft info --config` and weft.conf(5) show.
constexpr ConfigField kFields[] = {
    {"WEFT_PROVIDER", &Config::provider,
     "Fabric to use: tcp, verbs, ofi, ofi:NAME (efa, verbs, tcp, net, shm, ...) or local. Empty: the best "
     "one found. A named provider that fails means no device. weft's own tests also have loop, and a "
     "prefix fault(SPEC): that wraps any of them in the fault injector; what is installed has neither.",
     nullptr},
    {"WEFT_FALLBACK", &Config::fallback,
     "1: when the best fabric fails and none was named, take the next one and say so once. 0: use none.",
     nullptr},
    {"WEFT_LOCAL", &Config::local,
     "Peers on this host through shared memory in place of the device: auto (where WEFT_PROVIDER names none "
     "and the machine has 8 processors or more), on or off. Each pair of processes tries it; where they "
     "share "
     "none, or the device takes GPU memory (but see WEFT_LOCAL_GPU), the device carries all.",
     nullptr},
    {"WEFT_LOCAL_GPU", &Config::localGpu,
     "1: two processes of this host copy from GPU to GPU, by CUDA's handles of shared GPU memory, if a copy "
     "works in both directions. It has an effect with WEFT_PROVIDER=local, and where WEFT_LOCAL is in effect "
     "and the network card takes GPU memory. It has been run on a software GPU only. 0: the card carries GPU "
     "memory.",
     nullptr},
    {"WEFT_LIBFABRIC", &Config::libfabric,
     "Path of the libfabric.so.1 to open. Empty: the loader's path, then /opt/amazon/efa/lib64 and lib.",
     nullptr},
    {"WEFT_SOCKET_IFNAME", &Config::socketIfname,
     "Interfaces for control links, and for messages over TCP: comma list of name "
     "prefixes; a leading ^ excludes, a leading = wants exact names.",
     "NCCL_SOCKET_IFNAME"},
    {"WEFT_PORT_RANGE", &Config::portRange,
     "FIRST-LAST: the ports that weft listens on, for control links and for messages over tcp, so that a "
     "firewall can let exactly these in. A rank takes one, and one more for each card over tcp. Empty: "
     "whatever the kernel gives.",
     nullptr},
    {"WEFT_SECRET", &Config::jobSecret,
     "@FILE: the secret of the job, 16 bytes or more that each of its processes reads there. It is mixed "
     "into every proof between them, so that a stranger who sees NCCL's handles gets nowhere. All ranks must "
     "have the same. Empty: the handles alone prove who belongs to the job.",
     nullptr, 0, 1 << 30, 1, Shown::secret},
    {"WEFT_ENCRYPT", &Config::encrypt,
     "Bytes on the network that nobody else can read or change: off (none), control (control links) or all "
     "(those, and messages over tcp; other fabrics refuse it). All ranks must agree.",
     nullptr},
    {"WEFT_HCA", &Config::hca,
     "Fabric devices to use, in the form of WEFT_SOCKET_IFNAME, with :port where a device has several. Over "
     "tcp and net it counts only where it names an interface, in place of WEFT_SOCKET_IFNAME.",
     "NCCL_IB_HCA"},
    {"WEFT_MERGE_NICS", &Config::mergeNics,
     "Cards that form one device by themselves: auto (ports of one card; cards below one PCI switch, as many "
     "as fall to each GPU there), port (only the former), off, or names as in a,b;c,d. NCCL's words LOC "
     "(off), PORT, PIX and above (auto) are understood; off where NCCL_NET_FORCE_MERGE is set, which names "
     "cards.",
     "NCCL_NET_MERGE_LEVEL"},
    {"WEFT_LIBIBVERBS", &Config::libibverbs,
     "Path of the libibverbs.so.1 to open. Empty: where the loader finds it.", nullptr},
    {"WEFT_IB_GID_INDEX", &Config::ibGidIndex,
     "verbs: GID table index of every RoCE port; -1 chooses RoCE v2 with IPv4, then IPv6. InfiniBand has its "
     "own.",
     "NCCL_IB_GID_INDEX", -1, 255},
    {"WEFT_IB_TC", &Config::ibTrafficClass,
     "verbs: traffic class (RoCE: DSCP times 4) of all traffic; -1: the communicator's, else 0.",
     "NCCL_IB_TC", -1, 255},
    {"WEFT_IB_SL", &Config::ibServiceLevel, "verbs: service level (RoCE: priority).", "NCCL_IB_SL", -1, 15},
    {"WEFT_IB_TIMEOUT", &Config::ibTimeout,
     "verbs: a packet not acknowledged in 4.096 us times 2 to this power is sent again; 0: never, 31 at "
     "most.",
     "NCCL_IB_TIMEOUT", 0, 255},
    {"WEFT_IB_RETRY_CNT", &Config::ibRetryCount,
     "verbs: how often it is sent again before the lane fails; more than 7 counts as 7.", "NCCL_IB_RETRY_CNT",
     0, 255},
    {"WEFT_IB_PKEY", &Config::ibPkeyIndex, "verbs: partition key table index.", "NCCL_IB_PKEY", 0, 65535},
    {"WEFT_IB_ECE", &Config::ibEce,
     "verbs: 0: do not let two cards that offer the same extensions of a connection (ECE) agree on them.",
     "NCCL_IB_ECE_ENABLE"},
    {"WEFT_IB_PCI_RELAXED_ORDERING", &Config::ibRelaxedOrdering,
     "verbs: 0: the card's writes to NCCL's buffers keep their order on PCIe, for hosts that are slow or "
     "wrong "
     "with relaxed ordering. 1 and 2: they need not, where the card and the library know of it.",
     "NCCL_IB_PCI_RELAXED_ORDERING", 0, 2},
    {"WEFT_IB_ADAPTIVE_ROUTING", &Config::ibAdaptiveRouting,
     "verbs: 1: a large write and its notification go apart, since switches that route adaptively may take "
     "any path for the write alone; both ends must have it. Below 0: on for InfiniBand, off for RoCE.",
     "NCCL_IB_ADAPTIVE_ROUTING", -2, 1},
    {"WEFT_IB_AR_THRESHOLD", &Config::ibAdaptiveMinBytes,
     "verbs: writes above so many bytes are large in that sense.", "NCCL_IB_AR_THRESHOLD", 0, 1 << 30},
    {"WEFT_QPS_PER_CONNECTION", &Config::qpsPerConnection,
     "verbs: queue pairs of each rail of a connection, which carry its messages above 4 KiB in turn, so that "
     "a network that picks paths by flow (ECMP) spreads them; of two ends the smaller number counts, more "
     "than 16 counts as 16.",
     "NCCL_IB_QPS_PER_CONNECTION", 1, 128},
    {"WEFT_TCP_STREAMS", &Config::tcpStreams,
     "TCP: connections between two processes on each rail. The first one carries everything small, the "
     "others pieces of 32 KiB and more in turn (over libfabric the first as well; over tcp within one host "
     "messages below 512 KiB of one connection of NCCL keep to one of them); of two ends the smaller "
     "number counts, more than 16 counts as 16 (libfabric: 6). 0 means 4 connections. Where the network "
     "limits "
     "the speed of each connection, tcp takes more: as many as fill the card.",
     nullptr, 0, 64},
    {"WEFT_TCP_SPEED", &Config::tcpSpeedMbps,
     "tcp: speed of each card in Mb/s. NCCL is told it, and the number of connections follows from it. 0: "
     "what the kernel says; in virtual machines it often says nothing, and then NCCL is told 10000.",
     nullptr, 0, 10'000'000},
    {"WEFT_DEBUG", &Config::logLevel,
     "Log level where NCCL's logger is not there (tools): NONE, ERROR, WARN, INFO or TRACE.", nullptr},
    {"WEFT_EAGER_MAX", &Config::eagerMaxBytes,
     "Largest message in bytes that leaves before the receiver asked for it; 0 turns eager off, -1 takes "
     "what suits the network: 4096 over tcp, 8192 elsewhere. Over tcp it counts for what WEFT_WINDOW_KIB "
     "does not "
     "hold.",
     nullptr, -1, 65536},
    {"WEFT_EAGER_SLOTS", &Config::eagerSlots, "Eager buffers a receiving engine keeps for each peer engine.",
     nullptr, 0, 64},
    {"WEFT_EAGER_POOL_MIB", &Config::eagerPoolMib,
     "Most memory in MiB that the eager buffers of one engine take for all its peers; those that come later "
     "have fewer or none, and their messages wait until the receiver asks for them.",
     nullptr, 0, 1 << 20},
    {"WEFT_WINDOW_KIB", &Config::windowKib,
     "tcp: so many KiB of messages may be on their way to one connection before their receives are known; "
     "what is above waits until the receiver asks for it. 0: all large messages wait.",
     nullptr, 0, 1 << 20},
    {"WEFT_WINDOW_POOL_MIB", &Config::windowPoolMib,
     "tcp: most memory in MiB that such messages may take in one process, over all connections; those made "
     "when much of it is promised get smaller windows.",
     nullptr, 0, 1 << 20},
    {"WEFT_STRIPE_MIN", &Config::stripeMinBytes,
     "Smallest piece in bytes worth a rail of its own; messages below twice this stay whole.", nullptr, 128,
     1 << 28},
    {"WEFT_MAX_RAILS", &Config::maxRails, "Most rails one connection uses.", nullptr, 1, 16},
    {"WEFT_LOOP_RAILS", &Config::loopRails, "Devices the in-process loop provider shows (tests).", nullptr, 1,
     32},
    {"WEFT_SEQUENCE_BITS", &Config::sequenceBits,
     "Width of message numbers; lower it only to test their wrap. Both ends must agree.", nullptr, 10, 32},
    {"WEFT_FLUSH", &Config::alwaysFlush, "1: flush host memory too (an expert's check of the flush path).",
     nullptr},
    {"WEFT_FORCE_FLUSH", &Config::forceFlush,
     "1: a flush of GPU memory that NCCL asks for is done also where the platform is said to order a card's "
     "writes. NCCL's own variable makes NCCL ask on every GPU.",
     "NCCL_NET_FORCE_FLUSH"},
    {"WEFT_GDR", &Config::gdr,
     "GPU memory over the network without a copy through the host (GPUDirect RDMA): auto (where a trial "
     "registration works), require (no device where none works; the log says why) or off.",
     nullptr},
    {"WEFT_DATA_DIRECT", &Config::dataDirect,
     "0: leave alone the second PCIe function that some cards (ConnectX-8) have for GPU memory.", nullptr},
    {"WEFT_LIBCUDA", &Config::libcuda,
     "Path of the libcuda.so.1 to open. Empty: the one that this process has loaded already.", nullptr},
    {"WEFT_MR_CACHE", &Config::mrCacheCount,
     "Registrations of GPU memory that are kept for the next user when their last one is gone, the least "
     "recently used going first; 0 keeps none.",
     nullptr, 0, 1 << 20},
    {"WEFT_MR_CACHE_MIB", &Config::mrCacheMib,
     "Most GPU memory in MiB that such registrations hold; an allocation that fits is registered as a whole, "
     "so that its parts are found again.",
     nullptr, 0, 1 << 24},
    {"WEFT_TUNER", &Config::tuner,
     "0: leave NCCL's table of costs alone, also where LL128 is unsafe. All ranks must agree.", nullptr},
    {"WEFT_TUNER_TABLE", &Config::tunerTable,
     "File that weft perf --fit wrote: its numbers of this fabric instead of published ones. All ranks must "
     "have the same.",
     nullptr},
    {"WEFT_COLLNET", &Config::collnet,
     "Collective offload for NCCL_COLLNET_ENABLE=1: off, peers (the ranks share the reduction), tree "
     "(the daemon named by WEFT_AGGD does it) or sharp (InfiniBand switches do it). All ranks must agree.",
     nullptr},
    {"WEFT_AGGD", &Config::aggd,
     "WEFT_COLLNET=tree: HOST:PORT of the daemon, spelt alike by all ranks; of a comma list, one for each "
     "device in turn.",
     nullptr},
    {"WEFT_AGGD_SECRET", &Config::aggdSecret,
     "What proves to weft-aggd that a rank may use it: a secret of 16 bytes or more, or @FILE whose first "
     "line it is.",
     nullptr, 0, 1 << 30, 1, Shown::secret},
    {"WEFT_LIBSHARP", &Config::libsharp,
     "Path of the libsharp_coll.so to open for WEFT_COLLNET=sharp. Empty: the loader's path, then "
     "/opt/mellanox/sharp/lib.",
     nullptr},
    {"WEFT_COLLNET_CHUNK", &Config::collnetChunkBytes,
     "Bytes of a vector that are reduced at a time, a multiple of 128; several are on their way. All ranks "
     "must agree.",
     nullptr, 4096, 1 << 24, 128},
    {"WEFT_COLLNET_ONE_STEP", &Config::collnetOneStepBytes,
     "WEFT_COLLNET=peers: vectors up to so many bytes are reduced by every rank, in one step instead of two. "
     "All "
     "ranks must agree.",
     nullptr, 0, 1 << 20},
    {"WEFT_COLLNET_TIMEOUT", &Config::collnetTimeout,
     "How long forming a collective group may take before all its ranks give it up, and NCCL goes on "
     "without.",
     nullptr, 10, kHourMs},
    {"WEFT_CONNECT_TIMEOUT", &Config::connectTimeout,
     "How long reaching a peer may take before the connection fails, and again its lanes once it accepted.",
     nullptr, 10, kHourMs},
    {"WEFT_ACCEPT_TIMEOUT", &Config::acceptTimeout,
     "How long a peer that has been reached may take to accept the connection, as it may be waiting for a "
     "third process first. WEFT_CONNECT_TIMEOUT counts instead if it is longer.",
     nullptr, 10, 24 * kHourMs},
    {"WEFT_CLOSE_TIMEOUT", &Config::closeTimeout,
     "How long closing waits for a peer's agreement before it cuts the lane.", nullptr, 1, kHourMs},
    {"WEFT_IDLE_PEERS", &Config::idlePeers,
     "Peer engines whose lanes stay up after their last connection has closed, for the next one; those that "
     "have been idle longest go first.",
     nullptr, 0, 65536},
    {"WEFT_IDLE_TIME", &Config::idleTime,
     "How long the lanes of an idle peer engine stay up (WEFT_IDLE_PEERS says of how many).", nullptr, 0,
     24 * kHourMs},
    {"WEFT_LANE_TIMEOUT", &Config::laneTimeout,
     "How long posted data may stay without effect, while the peer answers, before its rail is called dead; "
     "over verbs at least as long as the card sends again by itself (WEFT_IB_TIMEOUT, WEFT_IB_RETRY_CNT).",
     nullptr, 10, kHourMs},
    {"WEFT_RAIL_TIMEOUT", &Config::railTimeout,
     "How long posted data may stay without effect before its rail is called dead, while another rail to "
     "that "
     "peer works. It is never more than half of WEFT_LANE_TIMEOUT. Over verbs it is at least five times the "
     "time of WEFT_IB_TIMEOUT: a slow card sends three times in that.",
     nullptr, 10, kHourMs},
    {"WEFT_RAIL_RETRY", &Config::railRetry,
     "Pause before a dead rail is tried again; doubled, up to 30 s, each time it lives less than ten times "
     "this.",
     nullptr, 1, kHourMs},
    {"WEFT_PEER_WARN", &Config::peerSilentWarn,
     "A peer process that has not answered for this long is reported once (it may only be stopped).", nullptr,
     10, kHourMs},
    {"WEFT_PEER_TIMEOUT", &Config::peerTimeout,
     "A peer process that has not answered for this long, while its kernel does, is given up.", nullptr, 10,
     kHourMs},
    {"WEFT_KERNEL_TIMEOUT", &Config::kernelTimeout,
     "A peer whose host acknowledges nothing on the control network for this long, while nothing comes or "
     "arrives over the fabric either, is given up. A warning names it earlier, after 3 s or half of this.",
     nullptr, 10, kHourMs},
    {"WEFT_WAIT_WARN", &Config::waitWarn,
     "When NCCL has waited this long for a message, or to get rid of one, while the peer is well, one "
     "warning says which, with tag, size and peer, what it waits for, who is late and what to do. Nothing "
     "ends for that. 0: never. -1: 4 times as long as the longest of the connection's last waits for "
     "messages of that size, at least 3 s and at most 60 s; 10 s for its first message.",
     nullptr, -1, 24 * kHourMs},
    {"WEFT_STATE_DIR", &Config::stateDir,
     "Folder into which each process writes the state of its comms, as HOST.PID.state, whenever the file "
     "\"ask\" there is touched, and with the warning of WEFT_WAIT_WARN. While it has connections it keeps "
     "the note HOST.PID.here there. weft state FOLDER asks, and shows who answered and who did not. "
     "Empty: none.",
     nullptr},
    {"WEFT_STATS", &Config::stats,
     "1: each process counts its messages in memory that weft stats and weft top read, and notes each comm's "
     "last 1,024 requests for weft autopsy: in HOST.PID.stats in WEFT_STATE_DIR, 68 KiB a comm that go when "
     "the "
     "process ends well, else in memory that dies with it. 0: nothing is counted there.",
     nullptr},
    {"WEFT_PROFILE", &Config::profile,
     "Folder into which each process writes HOST.PID.profile.json at its end: its messages by peer, device "
     "and "
     "size with their times, registrations, and the processor time of weft's threads. It counts for that "
     "with "
     "WEFT_STATS=0, too. weft report FOLDER makes a page of it. Empty: none.",
     nullptr},
    {"WEFT_CHECKSUM", &Config::checksum,
     "Sums of messages' bytes (CRC-32C), which the receiver compares with its own: off, sample (the first "
     "message of each tag, and about one in 1,024) or all. Of two processes that differ the one that checks "
     "less has its way. A message that is not what was sent ends its connection, with peer, rail, message "
     "and "
     "place. Messages from or to GPU memory are not checked.",
     nullptr},
};

// The error for a bad value. `place` is empty for the environment.
Error badValue(const ConfigField& field, const std::string& value, const std::string& place,
               const std::string& allowed) {
  return Error(Code::config, "reading settings",
               format("%s%s%s is \"%s\"; allowed: %s", place.c_str(), place.empty() ? "" : ": ", field.env,
                      shownValue(field, value).c_str(), allowed.c_str()));
}

// Our own variables: the environment's value, else the file's. Variables of other programs are never in the
// file.
Lookup withFile(const Lookup& lookup, const ConfigFile& file) {
  return [lookup, &file](const char* name) -> const char* {
    if (const char* value = lookup(name)) return value;
    const ConfigFile::Entry* entry = file.find(name);
    return entry ? entry->value.c_str() : nullptr;
  };
}

// FILE:LINE of a value that the file gives; empty where the environment gives it.
std::string placeOf(const ConfigField& field, const Lookup& environment, const ConfigFile& file) {
  const ConfigFile::Entry* entry = environment(field.env) ? nullptr : file.find(field.env);
  return entry ? file.place(entry->line) : "";
}

// Decimal or hexadecimal, as traffic classes are written in hexadecimal.
bool parseNumber(const std::string& text, const ConfigField& field, int* out) {
  const bool hex = text.starts_with("0x");
  const auto value = weft::parseNumber<int>(hex ? text.substr(2) : text, hex ? 16 : 10);
  if (!value || *value < field.min || *value > field.max || *value % field.multipleOf != 0) return false;
  *out = *value;
  return true;
}

bool parseFlag(const std::string& text, bool* out) {
  if (text != "0" && text != "1") return false;
  *out = text == "1";
  return true;
}

// Sets a member from text. False: the text does not fit.
bool assign(Config* config, const ConfigField& field, const std::string& text) {
  if (auto* member = std::get_if<std::string Config::*>(&field.member)) {
    config->*(*member) = text;
    return true;
  }
  if (auto* member = std::get_if<bool Config::*>(&field.member))
    return parseFlag(text, &(config->*(*member)));
  int number = 0;
  if (!parseNumber(text, field, &number)) return false;
  if (auto* member = std::get_if<int Config::*>(&field.member)) config->*(*member) = number;
  if (auto* member = std::get_if<Milliseconds Config::*>(&field.member))
    config->*(*member) = Milliseconds(number);
  return true;
}

// A number as NCCL reads it (strtoll with base 0): blanks in front, octal and hexadecimal, and any text
// behind it. Nothing where NCCL would take its default, or a zero that nobody wrote.
std::optional<int64_t> numberAsNccl(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\n"), text.size()));
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  } else if (text.starts_with('0')) {
    base = 8;
  }
  const size_t digits = std::min(text.find_first_not_of("0123456789abcdefABCDEF"), text.size());
  int64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + digits, value, base);
  if (read.ec != std::errc()) return std::nullopt;
  return negative ? -value : value;
}

// Takes the value of a variable of NCCL's, which is meant for NCCL's own network first. A value that does not
// fit here leaves our default in place, and ends no job. False then.
bool assignAlias(Config* config, const ConfigField& field, const char* text) {
  if (std::holds_alternative<std::string Config::*>(field.member)) {
    if (field.member == ConfigMember(&Config::mergeNics) && !isMergeLevel(text)) return false;
    return assign(config, field, text);
  }
  const auto number = numberAsNccl(text);
  if (!number) return false;
  const bool flag = std::holds_alternative<bool Config::*>(field.member);
  return assign(config, field, flag ? (*number != 0 ? "1" : "0") : std::to_string(*number));
}

// An empty variable of NCCL's counts as unset.
const char* aliasValue(const Lookup& lookup, const ConfigField& field) {
  const char* value = field.alias && !lookup(field.env) ? lookup(field.alias) : nullptr;
  return value && *value ? value : nullptr;
}

// Null: no row has that name.
const ConfigField* findField(std::string_view name) {
  const auto* field = std::find_if(std::begin(kFields), std::end(kFields),
                                   [&](const ConfigField& one) { return name == one.env; });
  return field == std::end(kFields) ? nullptr : field;
}

const char* nearestName(const std::string& name) {
  const auto nearer = [&](const ConfigField& a, const ConfigField& b) {
    return editDistance(name, a.env) < editDistance(name, b.env);
  };
  return std::min_element(std::begin(kFields), std::end(kFields), nearer)->env;
}

// A file may have provider or weft_provider for WEFT_PROVIDER; hints name the variable.
std::string asVariable(std::string name) {
  for (char& c : name)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return name.starts_with("WEFT_") ? name : "WEFT_" + name;
}

std::string unknownName(const std::string& name) {
  if (name.starts_with("NCCL_"))
    return name + " is not a setting of weft; NCCL's own belong into /etc/nccl.conf or the environment";
  if (name == kConfigFileVariable) return name + " counts in the environment only";
  return name + " is not a setting of weft; the nearest is " + nearestName(asVariable(name));
}

// NCCL then merges cards by itself, by name.
bool forcedMerge(const Lookup& lookup) {
  const char* forced = lookup("NCCL_NET_FORCE_MERGE");
  return forced && *forced;
}

bool isOpenToAll(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && (facts.st_mode & S_IROTH) != 0;
}

}  // namespace

bool isMergeLevel(const std::string& word) {
  constexpr const char* kLevels[] = {"LOC", "PORT", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"};
  return std::any_of(std::begin(kLevels), std::end(kLevels),
                     [&](const char* level) { return ::strcasecmp(word.c_str(), level) == 0; });
}

std::span<const ConfigField> configFields() {
  return kFields;
}

// Environment first, then the file, then NCCL's variable; a member that none of them sets keeps its default.
Result<Config> readConfig(const Lookup& environment, const ConfigFile& file) {
  const Lookup lookup = withFile(environment, file);
  Config config;
  for (const ConfigField& field : kFields) {
    if (const char* value = lookup(field.env)) {
      if (!assign(&config, field, value))
        return badValue(field, value, placeOf(field, environment, file), allowedText(field));
    } else if (const char* alias = aliasValue(lookup, field)) {
      (void)assignAlias(&config, field, alias);
    }
  }
  // NCCL looks for those names among our devices, and fails where it does not find one.
  if (!lookup("WEFT_MERGE_NICS") && forcedMerge(lookup)) config.mergeNics = "off";
  LogLevel level;
  if (!parseLogLevel(config.logLevel.c_str(), &level)) {
    const ConfigField& field = *findField("WEFT_DEBUG");
    return badValue(field, config.logLevel, placeOf(field, environment, file),
                    "NONE, ERROR, WARN, INFO or TRACE");
  }
  return config;
}

Result<Config> readConfigFromEnvironment() {
  TRY(const ConfigFile file, loadConfigFile(environmentValue));
  return readConfig(environmentValue, file);
}

// The order is that of readConfig().
Origin originOf(const ConfigField& field, const Lookup& environment, const ConfigFile& file) {
  if (environment(field.env)) return {Origin::Kind::environment, field.env};
  if (const ConfigFile::Entry* entry = file.find(field.env))
    return {Origin::Kind::file, file.place(entry->line)};
  if (field.member == ConfigMember(&Config::mergeNics) && forcedMerge(environment))
    return {Origin::Kind::nccl, "NCCL_NET_FORCE_MERGE"};
  const char* alias = aliasValue(environment, field);
  Config scratch;
  if (alias && assignAlias(&scratch, field, alias)) return {Origin::Kind::nccl, field.alias};
  return {};
}

// The variable that chooses NCCL for the tests and scripts/nccl-check.
constexpr const char* kNcclFileVariable = "WEFT_NCCL";

// The token that lets a process into a run of the tools, which read it (tools/netdriver/token.h).
constexpr const char* kTokenVariable = "WEFT_TOKEN";

std::vector<std::string> unknownVariables(std::span<const char* const> environment) {
  std::vector<std::string> lines;
  for (const char* entry : environment) {
    if (std::strncmp(entry, "WEFT_", 5) != 0) continue;
    if (std::strncmp(entry, "WEFT_TEST_", 10) == 0) continue;    // belongs to the test programs
    if (std::strncmp(entry, "WEFT_RECORD_", 12) == 0) continue;  // the recorder's, see docs/trace.md
    const std::string name(entry, std::strcspn(entry, "="));
    if (findField(name) || name == kConfigFileVariable) continue;
    if (name == kNcclFileVariable || name == kTokenVariable) continue;
    lines.push_back(unknownName(name));
  }
  return lines;
}

std::vector<std::string> fileWarnings(const ConfigFile& file) {
  std::vector<std::string> lines = file.repeated;
  for (const auto& [name, entry] : file.entries) {
    const ConfigField* field = findField(name);
    if (!field) lines.push_back(file.place(entry.line) + ": " + unknownName(name));
    if (field && field->shown == Shown::secret && !entry.value.starts_with('@') && isOpenToAll(file.path))
      lines.push_back(file.place(entry.line) + ": " + name +
                      " is a secret, and every user of the host can read this file; name one that they "
                      "cannot, as @FILE");
  }
  return lines;
}

std::vector<std::string> unusedAliases(const Lookup& lookup) {
  std::vector<std::string> lines;
  Config scratch;
  for (const ConfigField& field : kFields) {
    const char* value = aliasValue(lookup, field);
    if (!value || assignAlias(&scratch, field, value)) continue;
    lines.push_back(format("%s is \"%s\", which weft has no use for; %s stays at \"%s\"", field.alias, value,
                           field.env, valueText(Config(), field).c_str()));
  }
  return lines;
}

std::vector<std::string> environmentWarnings() {
  size_t count = 0;
  while (environ && environ[count]) count++;
  std::vector<std::string> lines = unknownVariables(std::span<const char* const>(environ, count));
  const auto file = loadConfigFile(environmentValue);
  if (!file) return lines;  // the reader of the settings reports that error
  for (std::string& line : fileWarnings(*file)) lines.push_back(std::move(line));
  for (std::string& line : unusedAliases(withFile(environmentValue, *file))) lines.push_back(std::move(line));
  return lines;
}

std::string shownValue(const ConfigField& field, const std::string& value) {
  if (field.shown == Shown::value || value.empty() || value.starts_with('@')) return value;
  return "(a secret)";
}

std::string shownValue(const std::string& variable, const std::string& value) {
  constexpr ConfigField kUnknownSecret{"", &Config::aggdSecret, "", nullptr, 0, 0, 1, Shown::secret};
  if (const ConfigField* field = findField(variable)) return shownValue(*field, value);
  const bool secret =
      variable.find("SECRET") != std::string::npos || variable.find("TOKEN") != std::string::npos;
  return secret ? shownValue(kUnknownSecret, value) : value;
}

std::string valueText(const Config& config, const ConfigField& field) {
  if (auto* member = std::get_if<std::string Config::*>(&field.member))
    return shownValue(field, config.*(*member));
  if (auto* member = std::get_if<bool Config::*>(&field.member)) return config.*(*member) ? "1" : "0";
  if (auto* member = std::get_if<int Config::*>(&field.member)) return std::to_string(config.*(*member));
  return std::to_string((config.*std::get<Milliseconds Config::*>(field.member)).count());
}

std::string allowedText(const ConfigField& field) {
  if (std::holds_alternative<std::string Config::*>(field.member)) return "text";
  if (std::holds_alternative<bool Config::*>(field.member)) return "0 or 1";
  const bool time = std::holds_alternative<Milliseconds Config::*>(field.member);
  const std::string kind = field.multipleOf > 1 ? format("a multiple of %d", field.multipleOf)
                           : time               ? "milliseconds"
                                                : "a number";
  return format("%s, %d to %d", kind.c_str(), field.min, field.max);
}

const char* environmentValue(const char* name) {
  return std::getenv(name);
}

}  // namespace weft
