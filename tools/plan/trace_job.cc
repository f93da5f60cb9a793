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

using Request = std::pair<uint64_t, uint64_t>;  // comm and number

double sizeOf(const trace::Event& event) {
  double bytes = 0;
  for (const trace::Part& part : event.parts) bytes += static_cast<double>(part.size);
  return bytes;
}

// Bursts of sends in the order in which they began.
std::vector<Burst> burstsOf(const std::vector<Message>& messages) {
  std::vector<Burst> bursts;
  for (const Message& message : messages) {
    if (!message.sent) continue;
    if (bursts.empty() || message.postUs > bursts.back().endUs + kPauseUs)
      bursts.push_back({message.postUs, message.doneUs, 0, 0});
    Burst& burst = bursts.back();
    burst.endUs = std::max(burst.endUs, message.doneUs);
    burst.messages += 1;
    burst.bytes += message.bytes;
  }
  return bursts;
}

// The handle that a comm was made by names its connection at both ends.
std::map<uint64_t, uint64_t> connectionsOf(const trace::Trace& trace) {
  std::map<uint64_t, uint64_t> handles;
  for (const trace::Event& event : trace.events) {
    if (event.kind == trace::Kind::listen)
      handles[event[trace::at::kListenComm]] = event[trace::at::kListenHandle];
    if (event.kind == trace::Kind::connect)
      handles[event[trace::at::kConnectComm]] = event[trace::at::kConnectHandle];
    if (event.kind == trace::Kind::accept)
      handles[event[trace::at::kAcceptComm]] = handles[event[trace::at::kAcceptListen]];
  }
  return handles;
}

bool isPost(const trace::Event& event) {
  return (event.kind == trace::Kind::isend || event.kind == trace::Kind::irecv) && event.result == 0;
}

// Requests that were posted and done. The size of a received message is what `test` told; the receives of a
// group are one.
std::vector<Message> messagesOf(const trace::Trace& trace) {
  const std::map<uint64_t, uint64_t> connections = connectionsOf(trace);
  std::map<Request, size_t> open;
  std::vector<Message> posted;
  for (const trace::Event& event : trace.events) {
    const double us = static_cast<double>(event.time) / kNanosecondsOfUs;
    const Request request{event[trace::at::kComm], event[trace::at::kRequest]};
    if (isPost(event)) {
      const auto connection = connections.find(request.first);
      open[request] = posted.size();
      posted.push_back({event.kind == trace::Kind::isend,
                        connection == connections.end() ? 0 : connection->second, us, -1, sizeOf(event)});
    }
    if (event.kind != trace::Kind::test || event.result != 0) continue;
    const auto found = open.find(request);
    if (found == open.end()) continue;
    Message& message = posted[found->second];
    message.doneUs = us;
    if (!message.sent) message.bytes = sizeOf(event);
    open.erase(found);
  }
  std::erase_if(posted, [](const Message& message) { return message.doneUs < 0; });
  const double first = posted.empty() ? 0 : posted.front().postUs;
  for (Message& message : posted) {
    message.postUs -= first;
    message.doneUs -= first;
  }
  return posted;
}

RankTraffic trafficOf(const trace::Trace& trace) {
  RankTraffic traffic;
  traffic.messages = messagesOf(trace);
  for (const Message& message : traffic.messages) {
    (message.sent ? traffic.sentMessages : traffic.receivedMessages) += 1;
    (message.sent ? traffic.sentBytes : traffic.receivedBytes) += message.bytes;
  }
  traffic.bursts = burstsOf(traffic.messages);
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
