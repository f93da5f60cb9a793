// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/trace_job.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "tools/plan/fields.h"
#include "tools/trace/reader.h"

namespace weft::plan {

namespace {

constexpr double kNanosecondsOfUs = 1e3;
constexpr double kPauseUs = 200;  // that parts two bursts

using Request = std::pair<uint64_t, uint64_t>;  // comm and number

double sizeOf(const trace::Event& event) {
  double bytes = 0;
  for (const trace::Part& part : event.parts) bytes += static_cast<double>(part.size);
  return bytes;
}

struct Send {
  double beginUs;
  double endUs;
  double bytes;
};

// Bursts of sends in the order in which they began.
std::vector<Burst> burstsOf(const std::vector<Send>& sends) {
  std::vector<Burst> bursts;
  for (const Send& send : sends) {
    const double beginUs = send.beginUs - sends.front().beginUs;
    const double endUs = send.endUs - sends.front().beginUs;
    if (bursts.empty() || beginUs > bursts.back().endUs + kPauseUs) bursts.push_back({beginUs, endUs, 0, 0});
    Burst& burst = bursts.back();
    burst.endUs = std::max(burst.endUs, endUs);
    burst.messages += 1;
    burst.bytes += send.bytes;
  }
  return bursts;
}

RankTraffic trafficOf(const trace::Trace& trace) {
  RankTraffic traffic;
  std::map<Request, size_t> open;
  std::vector<Send> sends;
  for (const trace::Event& event : trace.events) {
    const double us = static_cast<double>(event.time) / kNanosecondsOfUs;
    const Request request{event[trace::at::kComm], event[trace::at::kRequest]};
    if (event.kind == trace::Kind::isend && event.result == 0) {
      open[request] = sends.size();
      sends.push_back({us, us, sizeOf(event)});
      traffic.sentMessages += 1;
      traffic.sentBytes += sizeOf(event);
    }
    if (event.kind != trace::Kind::test || event.result != 0) continue;
    if (const auto sent = open.find(request); sent != open.end()) {
      sends[sent->second].endUs = us;
      open.erase(sent);
    } else {
      traffic.receivedMessages += static_cast<double>(event.parts.size());
      traffic.receivedBytes += sizeOf(event);
    }
  }
  traffic.bursts = burstsOf(sends);
  return traffic;
}

double usOfMessages(const Network& network, double messages, double bytes) {
  return messages * network.gapUs / network.rails + bytes / (network.nodeGBps() * 1e3);
}

}  // namespace

Result<std::vector<RankTraffic>> readTraffic(const std::string& path) {
  TRY(const std::vector<std::string> files, trace::findTraces({path}));
  if (files.empty()) return Error(Code::config, "reading traces", path + ": has no traces (*.trace)");
  std::vector<RankTraffic> ranks;
  for (const std::string& file : files) {
    TRY(const trace::Trace trace, trace::readTrace(file));
    ranks.push_back(trafficOf(trace));
  }
  return ranks;
}

Cost costOf(const Network& network, const std::vector<RankTraffic>& ranks) {
  Cost most;
  for (const RankTraffic& rank : ranks) {
    const double out = usOfMessages(network, rank.sentMessages, rank.sentBytes);
    const double in = usOfMessages(network, rank.receivedMessages, rank.receivedBytes);
    most.transferUs = std::max({most.transferUs, out, in});
  }
  most.latencyUs = network.alphaUs;
  return most;
}

Result<Job> jobOf(const std::string& path, const std::vector<RankTraffic>& ranks) {
  const std::vector<Burst>& bursts = ranks.front().bursts;
  if (bursts.empty())
    return Error(Code::config, "reading traces", path + ": buckets: the first rank's trace has no sends");
  Job job;
  job.name = std::filesystem::path(path).filename().string();
  job.source = "recorded: " + std::to_string(ranks.size()) + " ranks, " + std::to_string(bursts.size()) +
               " bursts of sends";
  job.unit = "recordings";
  const auto count = static_cast<double>(std::max<size_t>(2, ranks.size()));
  const double carried = 2 * (count - 1) / count;
  double communicatingUs = 0;
  std::vector<double> begins;
  for (const Burst& burst : bursts) {
    begins.push_back(burst.beginUs - communicatingUs);
    communicatingUs += burst.endUs - burst.beginUs;
    job.buckets.push_back({std::max(1.0, burst.bytes / carried), 0});
  }
  job.backwardUs = std::max(1.0, begins.back());
  for (size_t i = 0; i < begins.size(); ++i)
    job.buckets[i].ready = std::clamp(begins[i] / job.backwardUs, 0.0, 1.0);
  return job;
}

bool isRecording(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) || path.ends_with(".trace");
}

}  // namespace weft::plan
