// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/job.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "src/base/nearest.h"
#include "tools/plan/fields.h"

namespace weft::plan {

namespace {

constexpr double kMillisecondUs = 1e3;
constexpr double kMegabyte = 1e6;
constexpr size_t kMostBuckets = 100000;

// The readiness of a bucket is a share of the backward pass, or the milliseconds of it that are over.
Result<Bucket> readBucket(const JsonNode& node, double backwardUs, double before) {
  TRY(node.allow({"name", "MB", "ready", "ready_ms"}));
  Bucket bucket;
  bucket.ready = -1;
  TRY(node.member("MB"));
  TRY(takeScaled(node, "MB", kPositive, kMegabyte, &bucket.bytes));
  TRY(take(node, "ready", kShare, &bucket.ready));
  if (node.has("ready_ms")) {
    TRY(const JsonNode field, node.member("ready_ms"));
    TRY(const double ms, numberOf(field, {0, backwardUs / kMillisecondUs}));
    bucket.ready = backwardUs > 0 ? ms * kMillisecondUs / backwardUs : 1;
  }
  if (bucket.ready >= 0 && bucket.ready < before)
    return node.complaint(
        "is ready before the bucket above it; buckets stand in the order in which they are ready");
  return bucket;
}

// Buckets without a readiness are ready as their bytes come, each in proportion.
void fillReadiness(std::vector<Bucket>* buckets) {
  double all = 0;
  for (const Bucket& bucket : *buckets) all += bucket.bytes;
  double sum = 0;
  for (Bucket& bucket : *buckets) {
    sum += bucket.bytes;
    bucket.ready = std::min(1.0, sum / all);
  }
}

Status readBuckets(const JsonNode& top, Job* job) {
  if (!top.has("buckets")) return {};
  TRY(const JsonNode list, top.member("buckets"));
  if (list.size() == 0 || list.size() > kMostBuckets)
    return list.complaint(fmt::format("must be a list of 1 to {} buckets", kMostBuckets));
  size_t known = 0;
  double before = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    TRY(const Bucket bucket, readBucket(list.element(i), job->backwardUs, before));
    if (bucket.ready >= 0) ++known;
    before = std::max(before, bucket.ready);
    job->buckets.push_back(bucket);
  }
  if (known == 0) fillReadiness(&job->buckets);
  if (known != 0 && known != job->buckets.size())
    return list.complaint("some have a readiness and some have none; give it for all or for none");
  return {};
}

// Gradients of one size that fill buckets of another, as DistributedDataParallel fuses them.
Status readGradients(const JsonNode& top, Job* job) {
  if (!top.has("gradients")) return {};
  TRY(const JsonNode node, top.member("gradients"));
  TRY(node.allow({"MB", "bucket_MB"}));
  double all = 0;
  double each = 25 * 1.048576;  // PyTorch's bucket_cap_mb
  TRY(need(node, "MB", kPositive, &all));
  TRY(take(node, "bucket_MB", kPositive, &each));
  if (all / each > static_cast<double>(kMostBuckets)) return node.complaint("makes too many buckets");
  for (double left = all; left > all * 1e-9; left -= each)
    job->buckets.push_back({std::min(each, left) * kMegabyte, 0});
  fillReadiness(&job->buckets);
  return {};
}

Status readSharding(const JsonNode& top, Job* job) {
  if (!top.has("zero3")) return {};
  TRY(const JsonNode node, top.member("zero3"));
  TRY(node.allow({"parameters", "layers", "bytes_per_element", "prefetch"}));
  Sharding sharding;
  TRY(need(node, "parameters", kPositive, &sharding.parameters));
  TRY(need(node, "layers", {1, 100000}, &sharding.layers));
  TRY(take(node, "bytes_per_element", kPositive, &sharding.bytesPerElement));
  TRY(take(node, "prefetch", {0, 1000}, &sharding.prefetch));
  job->sharded = sharding;
  return {};
}

Status readOverlap(const JsonNode& top, Job* job) {
  if (!top.has("overlap")) return {};
  TRY(const JsonNode node, top.member("overlap"));
  if (node.isObject()) {
    TRY(node.allow({"window_ms"}));
    job->overlap = Overlap::window;
    TRY(node.member("window_ms"));
    return takeScaled(node, "window_ms", {}, kMillisecondUs, &job->windowUs);
  }
  const std::string word = node.isText() ? node.text().take() : "";
  if (word != "buckets" && word != "none")
    return node.complaint("must be \"buckets\", \"none\" or {\"window_ms\": N}");
  job->overlap = word == "none" ? Overlap::none : Overlap::buckets;
  return {};
}

Status readNames(const JsonNode& top, Job* job) {
  if (top.has("algorithm")) {
    TRY(const JsonNode node, top.member("algorithm"));
    TRY(const std::string name, node.text());
    const auto algorithm = algorithmNamed(name);
    std::vector<std::string> known;
    for (const AlgorithmFacts& facts : algorithms()) known.emplace_back(facts.name);
    if (!algorithm) return node.complaint("'" + name + "' is no algorithm" + nearestHint(name, known));
    job->algorithm = *algorithm;
  }
  if (!top.has("operation")) return {};
  TRY(const JsonNode node, top.member("operation"));
  TRY(node.allow({"name", "MiB"}));
  TRY(const JsonNode named, node.member("name"));
  TRY(const std::string name, named.text());
  const auto collective = collectiveNamed(name);
  if (!collective) return named.complaint("must be all_reduce, all_gather, reduce_scatter or alltoall");
  job->collective = *collective;
  TRY(const JsonNode sizes, node.member("MiB"));
  if (sizes.size() == 0) return sizes.complaint("must be a list of sizes");
  for (size_t i = 0; i < sizes.size(); ++i) {
    TRY(const double size, numberOf(sizes.element(i), kPositive));
    job->operationBytes.push_back(size * 1048576);
  }
  return {};
}

Status readFree(const JsonNode& node, Job* job) {
  if (!node.has("free")) return {};
  TRY(const JsonNode list, node.member("free"));
  for (size_t i = 0; i < list.size(); ++i) {
    TRY(const std::string name, list.element(i).text());
    job->freeNumbers.push_back(name);
  }
  return {};
}

Status readMeasured(const JsonNode& top, Job* job) {
  if (!top.has("measured")) return {};
  TRY(const JsonNode node, top.member("measured"));
  TRY(node.allow({"source", "free", "points"}));
  TRY(takeText(node, "source", &job->measuredSource));
  TRY(readFree(node, job));
  TRY(const JsonNode points, node.member("points"));
  if (points.size() == 0) return points.complaint("must be a list of points");
  for (size_t i = 0; i < points.size(); ++i) {
    const JsonNode point = points.element(i);
    TRY(point.allow({"gpus", "MiB", "throughput", "busbw_GBps"}));
    Measured one;
    TRY(need(point, "gpus", kCount, &one.gpus));
    TRY(takeScaled(point, "MiB", kPositive, 1048576, &one.bytes));
    TRY(need(point, job->isOperation() ? "busbw_GBps" : "throughput", kPositive, &one.value));
    job->measured.push_back(one);
  }
  return {};
}

Status readTimes(const JsonNode& top, Job* job) {
  if (job->isOperation()) return {};
  TRY(top.member("forward_ms"));
  TRY(top.member("backward_ms"));
  TRY(takeScaled(top, "forward_ms", {}, kMillisecondUs, &job->forwardUs));
  TRY(takeScaled(top, "backward_ms", kPositive, kMillisecondUs, &job->backwardUs));
  TRY(takeScaled(top, "optimizer_ms", {}, kMillisecondUs, &job->optimizerUs));
  TRY(take(top, "kappa", {0, 10}, &job->kappa));
  TRY(take(top, "sigma", kShare, &job->sigma));
  TRY(take(top, "samples_per_gpu", kPositive, &job->samplesPerGpu));
  return take(top, "flop_per_gpu", kPositive, &job->flopPerGpu);
}

}  // namespace

double Job::bytes() const {
  double sum = 0;
  for (const Bucket& bucket : buckets) sum += bucket.bytes;
  return sum;
}

Result<Job> parseJob(const std::string& file, const std::string& text) {
  TRY(const JsonNode top, JsonNode::parse(file, text));
  TRY(top.allow({"name", "source", "unit", "samples_per_gpu", "forward_ms", "backward_ms", "optimizer_ms",
                 "buckets", "gradients", "zero3", "overlap", "algorithm", "operation", "flop_per_gpu",
                 "kappa", "sigma", "measured"}));
  Job job;
  job.name = std::filesystem::path(file).stem().string();
  TRY(takeText(top, "name", &job.name));
  TRY(takeText(top, "source", &job.source));
  TRY(takeText(top, "unit", &job.unit));
  TRY(readNames(top, &job));
  TRY(readTimes(top, &job));
  TRY(readBuckets(top, &job));
  TRY(readGradients(top, &job));
  TRY(readSharding(top, &job));
  TRY(readOverlap(top, &job));
  TRY(readMeasured(top, &job));
  if (job.buckets.empty() && !job.sharded && !job.isOperation())
    return JsonNode(top).member("buckets").takeError();
  return job;
}

Result<Job> readJob(const std::string& path) {
  TRY(const std::string text, fileText(path));
  return parseJob(path, text);
}

}  // namespace weft::plan
