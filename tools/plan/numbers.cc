// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/numbers.h"

namespace weft::plan {

namespace {

constexpr double kMsUs = 1e3;
constexpr double kMB = 1e6;

void setBytes(Scenario* scenario, double megabytes) {
  const double factor = megabytes * kMB / scenario->job.bytes();
  for (Bucket& bucket : scenario->job.buckets) bucket.bytes *= factor;
}

void setWindow(Scenario* scenario, double milliseconds) {
  scenario->job.windowUs = milliseconds * kMsUs;
}

}  // namespace

Scenario scenarioOf(Job job, Cluster cluster) {
  if (job.kappa >= 0) cluster.kappa = job.kappa;
  if (job.sigma >= 0) cluster.sigma = job.sigma;
  return {std::move(job), std::move(cluster)};
}

const std::vector<Number>& numbers() {
  using S = Scenario;
  static const std::vector<Number> kNumbers = {
      {"forward_ms", "ms", [](const S& s) { return s.job.forwardUs / kMsUs; },
       [](S* s, double v) { s->job.forwardUs = v * kMsUs; }, 0.1, 1e6, true},
      {"backward_ms", "ms", [](const S& s) { return s.job.backwardUs / kMsUs; },
       [](S* s, double v) { s->job.backwardUs = v * kMsUs; }, 0.1, 1e6, true},
      {"optimizer_ms", "ms", [](const S& s) { return s.job.optimizerUs / kMsUs; },
       [](S* s, double v) { s->job.optimizerUs = v * kMsUs; }, 0, 1e4, false},
      {"gradients_MB", "MB", [](const S& s) { return s.job.bytes() / kMB; }, &setBytes, 1, 1e6, true},
      {"parameters", "", [](const S& s) { return s.job.sharded ? s.job.sharded->parameters : 0; },
       [](S* s, double v) { s->job.sharded->parameters = v; }, 1e6, 1e13, true},
      {"window_ms", "ms", [](const S& s) { return s.job.windowUs / kMsUs; }, &setWindow, 0, 500, false},
      {"alpha_us", "us", [](const S& s) { return s.cluster.network.alphaUs; },
       [](S* s, double v) { s->cluster.network.alphaUs = v; }, 0.5, 1000, true},
      {"low_alpha_us", "us", [](const S& s) { return s.cluster.network.low.alphaUs; },
       [](S* s, double v) { s->cluster.network.low.alphaUs = v; }, 0.5, 1000, true},
      {"gap_us", "us", [](const S& s) { return s.cluster.network.gapUs; },
       [](S* s, double v) { s->cluster.network.gapUs = v; }, 0.05, 100, true},
      {"clear_us", "us", [](const S& s) { return s.cluster.network.clearUs; },
       [](S* s, double v) { s->cluster.network.clearUs = v; }, 0.05, 100, true},
      {"rail_GBps", "GB/s", [](const S& s) { return s.cluster.network.railGBps; },
       [](S* s, double v) { s->cluster.network.railGBps = v; }, 0.05, 500, true},
      {"intra_alpha_us", "us", [](const S& s) { return s.cluster.inside.alphaUs; },
       [](S* s, double v) { s->cluster.inside.alphaUs = v; }, 0.1, 100, true},
      {"intra_GBps", "GB/s", [](const S& s) { return s.cluster.inside.GBps; },
       [](S* s, double v) { s->cluster.inside.GBps = v; }, 0.5, 5000, true},
      {"fan_in", "", [](const S& s) { return s.cluster.collnet.fanIn; },
       [](S* s, double v) { s->cluster.collnet.fanIn = v; }, 2, 1000, true},
      {"hop_us", "us", [](const S& s) { return s.cluster.collnet.hopUs; },
       [](S* s, double v) { s->cluster.collnet.hopUs = v; }, 0.1, 100, true},
      {"kappa", "", [](const S& s) { return s.cluster.kappa; }, [](S* s, double v) { s->cluster.kappa = v; },
       0, 0.5, false},
      {"sigma", "", [](const S& s) { return s.cluster.sigma; }, [](S* s, double v) { s->cluster.sigma = v; },
       0, 0.3, false},
  };
  return kNumbers;
}

const Number* numberNamed(const std::string& name) {
  for (const Number& number : numbers())
    if (name == number.name) return &number;
  return nullptr;
}

}  // namespace weft::plan
