// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/metrics.h"

namespace weft::counted {

namespace {

constexpr double kOfOneSecond = 1e-9;

constexpr Metric kMetrics[] = {
    {"weft_bytes_total", "counter", "Bytes of finished messages.",
     [](const Comm& comm) { return static_cast<double>(comm.bytes); }},
    {"weft_requests_posted_total", "counter", "Sends and receives that began.",
     [](const Comm& comm) { return static_cast<double>(comm.posted); }},
    {"weft_requests_in_flight", "gauge", "Sends and receives that began and are not over.",
     [](const Comm& comm) { return static_cast<double>(comm.inFlight()); }},
    {"weft_busy_seconds_total", "counter",
     "Time with at least one request in flight, of each comm, added up.",
     [](const Comm& comm) { return static_cast<double>(comm.busy) * kOfOneSecond; }},
    {"weft_send_wait_seconds_total", "counter",
     "Time in which a send wanted to leave and the receiver had no room for it, of each comm, added up.",
     [](const Comm& comm) { return static_cast<double>(comm.waited) * kOfOneSecond; }},
    {"weft_send_waits_total", "counter", "Sends that had to wait for their receiver.",
     [](const Comm& comm) { return static_cast<double>(comm.waits); }},
    {"weft_registrations_total", "counter", "Buffers that were registered.",
     [](const Comm& comm) { return static_cast<double>(comm.registrations); }},
    {"weft_checked_messages_total", "counter",
     "Received messages whose bytes were compared with their sender's sum.",
     [](const Comm& comm) { return static_cast<double>(comm.checked); }},
    {"weft_corrupt_messages_total", "counter", "Of these, messages that were not what was sent.",
     [](const Comm& comm) { return static_cast<double>(comm.corrupt); }},
    {"weft_puts_total", "counter", "Puts into windows, without signals alone.",
     [](const Comm& comm) { return static_cast<double>(comm.oneSided.puts); }, true},
    {"weft_put_bytes_total", "counter", "Bytes of these puts.",
     [](const Comm& comm) { return static_cast<double>(comm.oneSided.putBytes); }, true},
    {"weft_gets_total", "counter", "Gets from windows, in the direction in which their bytes go.",
     [](const Comm& comm) { return static_cast<double>(comm.oneSided.gets); }, true},
    {"weft_get_bytes_total", "counter", "Bytes of these gets.",
     [](const Comm& comm) { return static_cast<double>(comm.oneSided.getBytes); }, true},
    {"weft_signals_total", "counter", "Signals, with a put or alone.",
     [](const Comm& comm) { return static_cast<double>(comm.oneSided.signals); }, true},
    {"weft_lanes", "gauge", "Lanes to the peer, one for each pair of rails.",
     [](const Comm& comm) { return static_cast<double>(comm.lanes); }},
    {"weft_lanes_up", "gauge", "Lanes to the peer that work.",
     [](const Comm& comm) { return static_cast<double>(comm.lanesUp); }},
};

}  // namespace

std::span<const Metric> commMetrics() {
  return kMetrics;
}

}  // namespace weft::counted
