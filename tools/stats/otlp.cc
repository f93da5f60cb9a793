// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/otlp.h"

#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "src/base/net/address.h"
#include "src/base/net/sockets.h"
#include "tools/json/json.h"
#include "tools/stats/metrics.h"
#include "tools/stats/totals.h"

namespace weft::counted {

namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr const char* kSending = "sending metrics";
constexpr int kCumulative = 2;  // AGGREGATION_TEMPORALITY_CUMULATIVE

Json attribute(const char* name, const std::string& value) {
  return Json{{"key", name}, {"value", Json{{"stringValue", value}}}};
}

// Counts to be sent, with what tells them from others of the resource.
struct Point {
  Json attributes;
  const Comm* comm = nullptr;
};

struct Resource {
  Json attributes;
  uint64_t begun = 0, now = 0;
  std::vector<Point> points;
};

Json pointOf(const Resource& resource, const Point& point, double value) {
  return Json{{"attributes", point.attributes},
              {"startTimeUnixNano", std::to_string(resource.begun)},
              {"timeUnixNano", std::to_string(resource.now)},
              {"asDouble", value}};
}

Json metricOf(const Resource& resource, const Metric& metric) {
  Json points = Json::array();
  for (const Point& point : resource.points)
    points.append(pointOf(resource, point, metric.value(*point.comm)));
  Json shown{{"name", metric.name}, {"description", metric.help}};
  if (std::strcmp(metric.type, "counter") == 0) {
    shown.set("sum",
              Json{{"aggregationTemporality", kCumulative}, {"isMonotonic", true}, {"dataPoints", points}});
  } else {
    shown.set("gauge", Json{{"dataPoints", points}});
  }
  return shown;
}

Json jsonOf(const Resource& resource) {
  Json metrics = Json::array();
  for (const Metric& metric : commMetrics()) metrics.append(metricOf(resource, metric));
  Json scopes = Json::array();
  scopes.append(Json{{"scope", Json{{"name", "weft"}}}, {"metrics", metrics}});
  return Json{{"resource", Json{{"attributes", resource.attributes}}}, {"scopeMetrics", scopes}};
}

Json attributesOf(const std::string& job, const std::string& rank, uint32_t user) {
  Json attributes = Json::array();
  attributes.append(attribute("service.name", "weft"));
  attributes.append(attribute("weft.job", job));
  attributes.append(attribute("weft.rank", rank));
  attributes.append(attribute("process.user.id", std::to_string(user)));
  return attributes;
}

Json flowAttributes(const std::string& device, bool sends) {
  Json attributes = Json::array();
  attributes.append(attribute("device", device));
  attributes.append(attribute("direction", sends ? "send" : "receive"));
  return attributes;
}

Resource resourceOf(const Process& process) {
  Resource resource{attributesOf(process.job, rankOf(process), process.user), process.begun, process.now, {}};
  resource.attributes.append(attribute("host.name", process.host));
  resource.attributes.append(attribute("process.pid", std::to_string(process.presence.pid)));
  resource.attributes.append(attribute("weft.place", process.presence.place));
  for (const Comm& comm : process.comms) {
    Json attributes = flowAttributes(comm.device, comm.sends);
    attributes.append(attribute("peer", comm.peer));
    attributes.append(attribute("comm", std::to_string(comm.number)));
    resource.points.push_back({std::move(attributes), &comm});
  }
  return resource;
}

Resource resourceOf(const RankTotals& rank) {
  Resource resource{attributesOf(rank.job, rank.rank, rank.user), rank.begun, rank.now, {}};
  for (const Flow& flow : rank.flows)
    resource.points.push_back({flowAttributes(flow.device, flow.sends), &flow.sum});
  return resource;
}

struct Url {
  std::string authority;  // as it is in the URL
  std::string endpoint;   // HOST:PORT
  std::string path;
};

Result<Url> parseUrl(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  if (!text.starts_with(kScheme) || text.size() == kScheme.size())
    return Error(
        Code::invalidArgument, "reading arguments",
        "\"" + text +
            "\" is not http://HOST[:PORT][/PATH]; without TLS here, give the address of a collector on "
            "this host or in its network");
  const std::string rest = text.substr(kScheme.size());
  const size_t slash = rest.find('/');
  Url url;
  url.authority = rest.substr(0, slash);
  url.path = slash == std::string::npos ? "/v1/metrics" : rest.substr(slash);
  const size_t colon = url.authority.rfind(':');
  const bool port = colon != std::string::npos && url.authority.find(']', colon) == std::string::npos;
  url.endpoint = port ? url.authority : url.authority + ":4318";
  return url;
}

}  // namespace

std::string otlpText(const std::vector<Process>& all, bool perComm) {
  const std::vector<Process> processes = withoutDoubles(all);
  Json resources = Json::array();
  if (perComm)
    for (const Process& process : processes) resources.append(jsonOf(resourceOf(process)));
  else
    for (const RankTotals& rank : totalsOf(processes)) resources.append(jsonOf(resourceOf(rank)));
  return Json{{"resourceMetrics", resources}}.text();
}

Status sendOtlp(const std::string& text, const std::string& body) {
  TRY(const Url url, parseUrl(text));
  TRY(const auto addresses, resolve(url.endpoint, Resolving::toDial));
  const Deadline deadline{Clock::system(), Clock::system().now() + kPatience};
  TRY(const Fd connection, connectToOne(addresses, deadline));
  const std::string request = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      url.path, url.authority, body.size(), body);
  TRY(sendAll(connection.get(), std::as_bytes(std::span(request)), deadline));
  constexpr std::string_view kLine = "HTTP/1.1 200";
  ExactReader reader;
  reader.expect(kLine.size());
  TRY(receiveAll(connection.get(), reader, deadline));
  std::string answer(kLine.size(), ' ');
  std::memcpy(answer.data(), reader.bytes().data(), answer.size());
  if (answer.starts_with("HTTP/1.") && answer[9] == '2') return {};
  return Error(Code::remote, kSending,
               url.endpoint + " answered \"" + answer + "\"; is it a collector for OTLP/HTTP?");
}

}  // namespace weft::counted
