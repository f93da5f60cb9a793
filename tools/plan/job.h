// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/plan/algorithm.h"
#include "weft/result.h"

// The job of a plan: one step of training as each GPU sees it. Times in microseconds. Plain values; any
// thread.
namespace weft::plan {

// Gradients that are reduced in one collective operation.
struct Bucket {
  double bytes = 0;
  double ready = 0;  // the share of the backward pass that is done when the last of them is there
};

// The way in which communication hides behind the backward pass.
enum class Overlap {
  buckets,  // each bucket leaves when it is ready: DistributedDataParallel
  window,   // at most so much time is hidden, whatever the buckets: early Horovod
  none
};

// Parameters that are spread over all GPUs and gathered layer by layer (ZeRO-3, FSDP).
struct Sharding {
  double parameters = 0;
  double layers = 0;
  double bytesPerElement = 2;
  double prefetch = 1;  // layers that are gathered ahead
};

// A published or measured result. The reference of its number is Job::measuredSource.
struct Measured {
  double gpus = 0;
  double bytes = 0;  // of a collective operation; 0: of a step
  double value = 0;  // samples a second, or the bus bandwidth in GB/s of a collective operation
};

struct Job {
  std::string name;
  std::string source;
  std::string unit = "samples";
  double samplesPerGpu = 1;  // in a step
  double forwardUs = 0;
  double backwardUs = 0;
  double optimizerUs = 0;
  std::vector<Bucket> buckets;
  Overlap overlap = Overlap::buckets;
  double windowUs = 0;
  std::optional<Sharding> sharded;
  double flopPerGpu = 0;  // in a step; 0: not known
  double kappa = -1;      // instead of the cluster's; below 0: as there
  double sigma = -1;
  Algorithm algorithm = Algorithm::best;
  Collective collective = Collective::allReduce;
  // A job of nothing but one collective operation has this and no times; its results are bus bandwidths.
  std::vector<double> operationBytes;

  std::string measuredSource;
  std::vector<Measured> measured;
  std::vector<std::string> freeNumbers;  // that a fit to those may change

  bool isOperation() const { return !operationBytes.empty(); }
  double computeUs() const { return forwardUs + backwardUs + optimizerUs; }
  double bytes() const;  // of all buckets
};

// Errors name the file and the field in one line.
Result<Job> parseJob(const std::string& file, const std::string& text);
Result<Job> readJob(const std::string& path);

}  // namespace weft::plan
