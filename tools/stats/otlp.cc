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

namespace weft::counted {

namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr const char* kSending = "sending metrics";
constexpr int kCumulative = 2;  // AGGREGATION_TEMPORALITY_CUMULATIVE

Json attribute(const char* name, const std::string& value) {
  return Json{{"key", name}, {"value", Json{{"stringValue", value}}}};
}

Json pointOf(const Process& process, const Comm& comm, double value) {
  Json attributes = Json::array();
  attributes.append(attribute("device", comm.device));
  attributes.append(attribute("peer", comm.peer));
  attributes.append(attribute("comm", std::to_string(comm.number)));
  attributes.append(attribute("direction", comm.sends ? "send" : "receive"));
  return Json{{"attributes", attributes},
              {"startTimeUnixNano", std::to_string(process.begun)},
              {"timeUnixNano", std::to_string(process.now)},
              {"asDouble", value}};
}

Json metricOf(const Process& process, const Metric& metric) {
  Json points = Json::array();
  for (const Comm& comm : process.comms) points.append(pointOf(process, comm, metric.value(comm)));
  Json shown{{"name", metric.name}, {"description", metric.help}};
  if (std::strcmp(metric.type, "counter") == 0) {
    shown.set("sum",
              Json{{"aggregationTemporality", kCumulative}, {"isMonotonic", true}, {"dataPoints", points}});
  } else {
    shown.set("gauge", Json{{"dataPoints", points}});
  }
  return shown;
}

Json resourceOf(const Process& process) {
  Json attributes = Json::array();
  attributes.append(attribute("service.name", "weft"));
  attributes.append(attribute("host.name", process.host));
  attributes.append(attribute("process.user.id", std::to_string(process.user)));
  attributes.append(attribute("process.pid", std::to_string(process.presence.pid)));
  attributes.append(attribute("weft.place", process.presence.place));
  Json metrics = Json::array();
  for (const Metric& metric : commMetrics()) metrics.append(metricOf(process, metric));
  Json scopes = Json::array();
  scopes.append(Json{{"scope", Json{{"name", "weft"}}}, {"metrics", metrics}});
  return Json{{"resource", Json{{"attributes", attributes}}}, {"scopeMetrics", scopes}};
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

std::string otlpText(const std::vector<Process>& processes) {
  Json resources = Json::array();
  for (const Process& process : withoutDoubles(processes)) resources.append(resourceOf(process));
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
