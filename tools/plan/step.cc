// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/step.h"

#include <algorithm>

namespace weft::plan {

namespace {

// The network works on one operation at a time, in the order in which they are handed to it.
class Wire {
 public:
  Wire(const Job& job, const Cluster& cluster, double gpus) : job_(job), cluster_(cluster), gpus_(gpus) {}

  // When an operation ends that is ready then.
  double pass(Collective collective, double bytes, double readyUs) {
    const Cost cost = costOf(cluster_, {collective, job_.algorithm, gpus_, bytes});
    sum_.latencyUs += cost.latencyUs;
    sum_.transferUs += cost.transferUs;
    freeUs_ = std::max(freeUs_, readyUs) + cost.us();
    return freeUs_;
  }
  const Cost& sum() const { return sum_; }
  double freeUs() const { return freeUs_; }

 private:
  const Job& job_;
  const Cluster& cluster_;
  double gpus_;
  double freeUs_ = 0;
  Cost sum_;
};

// The exposed part of the buckets' reduction, which begins at `beginUs` and goes on beside a pass of
// `passUs`.
double exposedOf(const Job& job, Wire* wire, double beginUs, double passUs) {
  const double endUs = beginUs + passUs;
  for (const Bucket& bucket : job.buckets) {
    const bool early = job.overlap == Overlap::buckets;
    wire->pass(job.collective, bucket.bytes, early ? beginUs + passUs * bucket.ready : endUs);
  }
  if (job.overlap == Overlap::window) return std::max(0.0, wire->sum().us() - job.windowUs);
  return std::max(0.0, wire->freeUs() - endUs);
}

// A layer's parameters are gathered before its forward and again before its backward pass, its gradients are
// scattered after that. Gathers run ahead of the computing by `prefetch` layers.
class Layers {
 public:
  Layers(const Sharding& sharding, Wire* wire)
      : wire_(wire),
        count_(static_cast<size_t>(sharding.layers)),
        ahead_(static_cast<size_t>(sharding.prefetch)),
        bytes_(sharding.parameters * sharding.bytesPerElement / sharding.layers) {}

  // The end of a pass that begins at `beginUs`, of which each layer takes `layerUs`.
  double pass(double beginUs, double layerUs, bool scatters) {
    double now = beginUs;
    std::vector<double> gathered;
    for (size_t layer = 0; layer < count_; ++layer) {
      while (gathered.size() < std::min(count_, layer + 1 + ahead_))
        gathered.push_back(wire_->pass(Collective::allGather, bytes_, now));
      now = std::max(now, gathered[layer]) + layerUs;
      if (scatters) wire_->pass(Collective::reduceScatter, bytes_, now);
    }
    return now;
  }
  double layers() const { return static_cast<double>(count_); }

 private:
  Wire* wire_;
  size_t count_;
  size_t ahead_;
  double bytes_;
};

Step shardedStep(const Job& job, double forwardUs, double backwardUs, double optimizerUs, Wire* wire) {
  Layers layers(*job.sharded, wire);
  double now = layers.pass(0, forwardUs / layers.layers(), false);
  now = layers.pass(now, backwardUs / layers.layers(), true);
  Step step;
  step.exposedUs = std::max(now, wire->freeUs()) - forwardUs - backwardUs;
  if (job.overlap == Overlap::none) step.exposedUs = wire->sum().us();
  step.totalUs = forwardUs + backwardUs + step.exposedUs + optimizerUs;
  return step;
}

}  // namespace

Step stepOf(const Job& job, const Cluster& cluster, double gpus, double slowest) {
  const double forwardUs = job.forwardUs * slowest;
  const double quiet = job.backwardUs * slowest;
  const double backwardUs = gpus > 1 ? quiet * (1 + cluster.kappa) : quiet;
  const double optimizerUs = job.optimizerUs * slowest;
  Wire wire(job, cluster, gpus);
  Step step;
  if (gpus > 1 && job.sharded) {
    step = shardedStep(job, forwardUs, backwardUs, optimizerUs, &wire);
  } else {
    step.exposedUs = gpus > 1 ? exposedOf(job, &wire, forwardUs, backwardUs) : 0;
    step.totalUs = forwardUs + backwardUs + step.exposedUs + optimizerUs;
  }
  step.computeUs = job.computeUs() * slowest;
  step.contendedUs = backwardUs - quiet;
  step.communication = wire.sum();
  return step;
}

}  // namespace weft::plan
