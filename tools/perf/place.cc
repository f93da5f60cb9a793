// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/place.h"

#include <cstdlib>
#include <initializer_list>

#include <fmt/format.h>

#include "src/base/number.h"
#include "tools/netdriver/token.h"

namespace weft::perf {

namespace {

constexpr uint16_t kDefaultPort = 29571;
constexpr int kMostRanks = 1 << 20;

// A variable of the environment that is set.
struct Setting {
  const char* name = nullptr;  // null: none of those asked for is
  const char* value = nullptr;
};

constexpr std::initializer_list<const char*> kRanks = {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
                                                       "PMI_RANK", "SLURM_PROCID"};
constexpr std::initializer_list<const char*> kSizes = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                                       "SLURM_NTASKS"};

Setting firstSet(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = environmentValue(name)) return {name, value};
  return {};
}

Error wrong(std::string detail) {
  return {Code::invalidArgument, "rendezvous", std::move(detail)};
}

Result<int> numberOf(const Setting& setting, int low, int high) {
  const auto number = parseNumber<int>(setting.value);
  if (number && *number >= low && *number <= high) return *number;
  return wrong(
      fmt::format("{} is \"{}\", not a number from {} to {}", setting.name, setting.value, low, high));
}

Result<netdriver::Place> parseRendezvous(const Options& options) {
  const size_t colon = options.rendezvous.rfind(':');
  if (colon == std::string::npos || options.rank < 0 || options.size < 1)
    return Error(Code::invalidArgument, "command line",
                 "--rank, --size and --rendezvous HOST:PORT belong together");
  netdriver::Place place;
  place.rank = options.rank;
  place.size = options.size;
  place.host = options.rendezvous.substr(0, colon);
  place.port = static_cast<uint16_t>(std::atoi(options.rendezvous.c_str() + colon + 1));
  place.listenFd = options.listenFd;
  TRY(place.token, netdriver::givenToken(options.token));
  return place;
}

// Rank 0 is on the first node of a Slurm step. Open MPI says how many ranks share a machine: if all do, no
// address is needed.
std::string hostOfRankZero(int size) {
  if (const char* host = environmentValue("MASTER_ADDR")) return host;
  if (size == 1) return "127.0.0.1";
  const char* local = environmentValue("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (local != nullptr && parseNumber<int>(local) == size) return "127.0.0.1";
  const char* nodes = firstSet({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}).value;
  const bool slurms = firstSet({"OMPI_COMM_WORLD_RANK", "RANK"}).name == nullptr;
  return slurms && nodes != nullptr ? firstHost(nodes) : std::string();
}

// Both or none of them are set.
Status readRank(netdriver::Place* place) {
  const Setting rank = firstSet(kRanks);
  const Setting size = firstSet(kSizes);
  place->size = 0;
  if (rank.name == nullptr && size.name == nullptr) return {};
  if (rank.name == nullptr || size.name == nullptr)
    return wrong(fmt::format("{} is set but none of {}: use -n N to start N processes here, or a launcher",
                             rank.name != nullptr ? rank.name : size.name,
                             fmt::join(rank.name != nullptr ? kSizes : kRanks, ", ")));
  TRY(place->size, numberOf(size, 1, kMostRanks));
  TRY(place->rank, numberOf(rank, 0, kMostRanks));
  if (place->rank < place->size) return {};
  return wrong(fmt::format("{} is {}, but by {} there are ranks 0 to {}", rank.name, place->rank, size.name,
                           place->size - 1));
}

Result<uint16_t> readPort() {
  int port = kDefaultPort;
  if (const Setting set = firstSet({"MASTER_PORT"}); set.name != nullptr) {
    TRY(port, numberOf(set, 1, 65535));
  }
  // torchrun's agent listens on MASTER_PORT itself then.
  const char* agent = environmentValue("TORCHELASTIC_USE_AGENT_STORE");
  if (agent != nullptr && std::string(agent) == "True") ++port;
  if (port > 65535) return wrong("MASTER_PORT leaves no port above torchrun's agent");
  return static_cast<uint16_t>(port);
}

}  // namespace

std::string firstHost(std::string_view nodeList) {
  const size_t end = nodeList.find_first_of("[,");
  std::string host(nodeList.substr(0, end));
  if (end == std::string_view::npos || nodeList[end] == ',') return host;
  std::string_view rest = nodeList.substr(end + 1);
  const size_t close = rest.find(']');
  if (close == std::string_view::npos) return {};
  host += rest.substr(0, rest.find_first_of("-,]"));
  // The text behind the bracket belongs to the name, and may have another one.
  rest = rest.substr(close + 1);
  if (rest.empty() || rest[0] == ',') return host;
  const std::string tail = firstHost(rest);
  return tail.empty() ? std::string() : host + tail;
}

namespace {

bool isLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Two processes: the server has a token or makes one, and its client has to have the same.
Result<netdriver::Place> placeOfTwo(const Options& options) {
  netdriver::Place place;
  place.rank = options.server ? 1 : 0;
  place.size = 2;
  place.host = options.client;
  place.port = options.port != 0 ? static_cast<uint16_t>(options.port) : kDefaultPort;
  place.rootDials = true;
  TRY(place.token, netdriver::givenToken(options.token));
  if (!place.token.empty()) return place;
  if (!options.server)
    return wrong(
        fmt::format("the server lets in who has its token: it printed the line to type here, which "
                    "begins with {}=",
                    netdriver::kTokenVariable));
  place.token = netdriver::freshToken();
  return place;
}

// A stranger who gets to the port of a run on several hosts could take a rank, end it, or have it measure.
Status checkToken(const netdriver::Place& place) {
  if (place.size == 1 || !place.token.empty() || isLoopback(place.host)) return {};
  return Error(
      Code::config, "rendezvous",
      fmt::format("started as rank {} of {} with rank 0 at {}: give all ranks one token that "
                  "strangers do not know: export {}=$(openssl rand -hex 16) before srun or torchrun, "
                  "mpirun -x {} passes it on; or --token @FILE",
                  place.rank, place.size, place.host, netdriver::kTokenVariable, netdriver::kTokenVariable));
}

}  // namespace

Result<netdriver::Place> findPlace(const Options& options) {
  if (!options.rendezvous.empty()) return parseRendezvous(options);
  if (options.withoutLauncher()) return placeOfTwo(options);
  netdriver::Place place;
  TRY(readRank(&place));
  if (place.size == 0) return place;
  place.host = hostOfRankZero(place.size);
  if (place.host.empty())
    return Error(
        Code::config, "rendezvous",
        fmt::format("started as rank {} of {}: set MASTER_ADDR to the host of rank 0 (and MASTER_PORT if "
                    "{} is taken)",
                    place.rank, place.size, kDefaultPort));
  TRY(place.port, readPort());
  TRY(place.token, netdriver::givenToken(options.token));
  TRY(checkToken(place));
  return place;
}

std::string ignoredLauncher() {
  const Setting rank = firstSet(kRanks);
  const Setting size = firstSet(kSizes);
  if (rank.name == nullptr || parseNumber<int>(rank.value) != 0) return {};
  if (size.name == nullptr || parseNumber<int>(size.value) == 1) return {};
  return fmt::format("{}={} and {}={}", rank.name, rank.value, size.name, size.value);
}

}  // namespace weft::perf
