// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/place.h"

#include <cstdlib>
#include <initializer_list>

namespace weft::perf {

namespace {

constexpr uint16_t kDefaultPort = 29571;

const char* firstSet(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = environmentValue(name)) return value;
  return nullptr;
}

int environmentNumber(std::initializer_list<const char*> names, int otherwise) {
  const char* value = firstSet(names);
  return value != nullptr ? std::atoi(value) : otherwise;
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
  return place;
}

// Rank 0 is on the first node of a Slurm step. Open MPI says how many ranks share a machine: if all do, no
// address is needed.
std::string hostOfRankZero(int size) {
  if (const char* host = environmentValue("MASTER_ADDR")) return host;
  if (size == 1 || environmentNumber({"OMPI_COMM_WORLD_LOCAL_SIZE"}, 0) == size) return "127.0.0.1";
  const char* nodes = firstSet({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"});
  const bool slurms = firstSet({"OMPI_COMM_WORLD_RANK", "RANK"}) == nullptr;
  return slurms && nodes != nullptr ? firstHost(nodes) : std::string();
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
  // What follows the bracket belongs to the name, and may have another one.
  rest = rest.substr(close + 1);
  if (rest.empty() || rest[0] == ',') return host;
  const std::string tail = firstHost(rest);
  return tail.empty() ? std::string() : host + tail;
}

Result<netdriver::Place> findPlace(const Options& options) {
  if (!options.rendezvous.empty()) return parseRendezvous(options);
  netdriver::Place place;
  place.rank =
      environmentNumber({"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}, -1);
  place.size = environmentNumber({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}, 0);
  if (place.rank < 0 || place.size < 1 || place.rank >= place.size) {
    place.size = 0;
    return place;
  }
  place.host = hostOfRankZero(place.size);
  if (place.host.empty())
    return Error(Code::config, "rendezvous",
                 "started as rank " + std::to_string(place.rank) + " of " + std::to_string(place.size) +
                     ": set MASTER_ADDR to the host of rank 0 (and MASTER_PORT if 29571 is taken)");
  place.port = static_cast<uint16_t>(environmentNumber({"MASTER_PORT"}, kDefaultPort));
  // torchrun's agent listens on MASTER_PORT itself then.
  const char* agent = environmentValue("TORCHELASTIC_USE_AGENT_STORE");
  if (agent != nullptr && std::string(agent) == "True") ++place.port;
  return place;
}

}  // namespace weft::perf
