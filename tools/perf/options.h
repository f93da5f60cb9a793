// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "tools/netdriver/bootstrap.h"

// The task that `weft perf` was given: nccl-tests' options where they exist, plain values otherwise. Sizes in
// bytes. Filled once by the command line, read only afterwards.
namespace weft::perf {

struct Options {
  std::string operation;  // one of operation.cc
  std::string algorithm;  // empty: its default one

  std::vector<std::string> replay;  // traces to drive the plugin by, instead of an operation

  uint64_t minBytes = 8;
  uint64_t maxBytes = uint64_t{64} << 20;
  double factor = 2;
  uint64_t stepBytes = 0;  // not 0: grow by this much instead of by the factor
  int iterations = 20;
  double duration = 0;  // seconds at each size, instead of a number of iterations; 0: not asked for
  int warmup = 5;
  int check = 1;
  std::string type = "float";
  std::string redop = "sum";
  int root = 0;

  bool checkCluster = false;
  double slowLimit = 2;  // times what is typical
  std::string fit;       // where to write what it measured, for the tuner; it implies checkCluster
  uint64_t clusterBytes = uint64_t{4} << 20;

  bool checksCluster() const { return checkCluster || !fit.empty(); }

  int processes = 0;  // 0: not asked for
  std::string plugin;
  int abi = 0;  // 0: the newest table
  int device = 0;
  bool merge = false;  // all cards as one device instead
  int channels = 1;
  uint64_t bufferBytes = uint64_t{4} << 20;  // of one direction of one connection, 8 steps
  uint64_t p2pChunkBytes = uint64_t{128} << 10;
  int group = 1;          // senders behind each rank of sendrecv
  int communicators = 1;  // at a time
  int threads = 0;        // that drive them; 0: one for each, as NCCL
  int threadsInUse() const { return threads > 0 ? threads : communicators; }

  // How many documents go to the standard output, instead of the table; more than one would be none.
  int documentsShown() const;

  bool latency = false;
  bool histogram = false;
  std::string json;
  std::string csv;
  std::string plot;
  std::string compare;                          // another plugin
  bool baseline = false;                        // that other plugin is the benches' own
  std::vector<std::string> compareEnvironment;  // NAME=VALUE, while it is initialised
  int rounds = 10;                              // that both do
  bool verbose = false;
  int timeoutSeconds = 1800;
  int stallSeconds = 120;

  // Two processes that find each other without a launcher: one serves, the other, a client, is rank 0 and
  // says what is measured.
  bool server = false;
  std::string client;  // the server's host
  int port = 0;        // 0: the usual one
  std::string token;   // of the run, or @FILE; empty: by the environment
  bool withoutLauncher() const { return server || !client.empty(); }

  // Given by the launcher to the processes it starts.
  int rank = -1;
  int size = 0;
  std::string rendezvous;
  int listenFd = -1;
  int progressFd = -1;  // the launcher's terminal
};

// Contradictions that single options cannot show.
Status validate(const Options& options);

// The message sizes to run, smallest first.
std::vector<uint64_t> messageSizes(const Options& options);

}  // namespace weft::perf
