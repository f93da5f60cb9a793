// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/agg/daemon.h"
#include "src/base/log.h"

// A daemon's account of itself, for people, programs and Prometheus (its text format).
namespace weft::agg {

namespace {

using Counter = unsigned long long;

// A JSON string: control characters become blanks.
std::string jsonText(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  return out + '"';
}

// The member for which all others waited most often; null: none.
const GroupReport::Member* slowest(const GroupReport& group) {
  const GroupReport::Member* found = nullptr;
  for (const auto& member : group.members)
    if (member.late > 0 && (!found || member.late > found->late)) found = &member;
  return found;
}

std::string groupText(const GroupReport& group) {
  const GroupStatistics& s = group.statistics;
  const auto* slow = slowest(group);
  return format("  group %016llx: %u ranks, %s, %llu operations, %llu bytes in, %llu out%s%s\n",
                static_cast<Counter>(group.id), group.ranks, group.ended.empty() ? "lives" : "ended",
                static_cast<Counter>(s.operations), static_cast<Counter>(s.bytesIn),
                static_cast<Counter>(s.bytesOut), slow ? ", mostly waits for " : "",
                slow ? slow->name.c_str() : "");
}

std::string groupJson(const GroupReport& group) {
  const GroupStatistics& s = group.statistics;
  std::string children;
  for (const auto& member : group.members)
    children += format("%s{\"name\":%s,\"late\":%llu}", children.empty() ? "" : ",",
                       jsonText(member.name).c_str(), static_cast<Counter>(member.late));
  return format(
      "{\"id\":\"%016llx\",\"ranks\":%u,\"ended\":%s,\"operations\":%llu,\"chunks\":%llu,\"bytes_"
      "in\":%llu,"
      "\"bytes_out\":%llu,\"children\":[%s]}",
      static_cast<Counter>(group.id), group.ranks, group.ended.empty() ? "null" : jsonText(group.ended).c_str(),
      static_cast<Counter>(s.operations), static_cast<Counter>(s.chunks), static_cast<Counter>(s.bytesIn),
      static_cast<Counter>(s.bytesOut), children.c_str());
}

std::string metric(const char* name, const char* type, const char* help, Counter value) {
  return format("# HELP weft_aggd_%s %s\n# TYPE weft_aggd_%s %s\nweft_aggd_%s %llu\n", name, help, name, type,
                name, value);
}

}  // namespace

std::vector<GroupReport> Daemon::reports() {
  constexpr Milliseconds kLook{1};
  const uint64_t mine = ++asked_;
  std::unique_lock lock(mutex_);
  while (answered_ < mine && !stopping_) {
    lock.unlock();
    clock().sleep(kLook);
    lock.lock();
  }
  return reports_;
}

// The groups belong to the data thread, so it is the one that describes them.
void Daemon::answerReports() {
  const uint64_t asked = asked_;
  if (answered_ == asked) return;  // only this thread writes it
  const std::lock_guard lock(mutex_);
  reports_.clear();
  for (const auto& group : groups_) reports_.push_back(group->report());
  for (const Ending& ending : endings_) reports_.push_back(ending.report);
  answered_ = asked;
}

std::string Daemon::status(Format format_) {
  const std::vector<GroupReport> groups = reports();
  GroupStatistics all;
  std::string text, json;
  for (const GroupReport& group : groups) {
    text += groupText(group);
    json += (json.empty() ? "" : ",") + groupJson(group);
    all.operations += group.statistics.operations;
    all.bytesIn += group.statistics.bytesIn;
    all.bytesOut += group.statistics.bytesOut;
  }
  const Counter counts[] = {groups.size(), formed_, refused_, ended_, groupBytes_};
  switch (format_) {
    case Format::text:
      return format("%s: %llu groups, %llu formed, %llu refused, %llu ended, %llu of %zu bytes in use%s\n",
                    options_.name.c_str(), counts[0], counts[1], counts[2], counts[3], counts[4],
                    options_.limits.bytes, draining_ ? ", draining" : "") +
             text;
    case Format::json:
      return format(
                 "{\"name\":%s,\"draining\":%s,\"groups_formed\":%llu,\"groups_refused\":%llu,"
                 "\"groups_ended\":%llu,\"bytes_in_use\":%llu,\"groups\":[",
                 jsonText(options_.name).c_str(), draining_ ? "true" : "false", counts[1], counts[2], counts[3],
                 counts[4]) +
             json + "]}\n";
    case Format::prometheus:
      return metric("groups", "gauge", "Groups that are formed now.", counts[0]) +
             metric("groups_formed_total", "counter", "Groups formed.", counts[1]) +
             metric("groups_refused_total", "counter", "Requests and groups refused.", counts[2]) +
             metric("groups_ended_total", "counter", "Groups whose ranks all left.", counts[3]) +
             metric("memory_bytes", "gauge", "Memory of the groups.", counts[4]) +
             metric("operations", "gauge", "Operations of the groups that are formed now.", all.operations) +
             metric("received_bytes", "gauge", "Received from the children of those.", all.bytesIn) +
             metric("sent_bytes", "gauge", "Sent to the children of those.", all.bytesOut);
  }
  return {};
}

}  // namespace weft::agg
