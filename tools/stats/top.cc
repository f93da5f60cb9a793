// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/top.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <sys/ioctl.h>
#include <thread>
#include <tuple>
#include <unistd.h>

#include <fmt/format.h>

#include "tools/output/output.h"
#include "tools/stats/stats.h"

namespace weft::counted {

namespace {

using Key = std::tuple<int64_t, uint32_t, bool, std::string>;

struct Row {
  std::string place, peer, device;
  bool sends = false;
  double bytes = 0, messages = 0, busy = 0;  // a second; busy: a share
  double waits = 0;                          // seconds that the oldest request, or send, stands
  uint64_t inFlight = 0;
  uint64_t p99 = 0;
};

Key keyOf(const Process& process, const Comm& comm) {
  return {process.presence.pid, comm.number, comm.sends, comm.device};
}

double oldestWait(const Process& process, const Comm& comm) {
  uint64_t since = comm.waitsSince;
  for (const Request& request : comm.requests)
    if (request.done == 0 && request.posted != 0 && (since == 0 || request.posted < since))
      since = request.posted;
  return since != 0 && process.now > since ? static_cast<double>(process.now - since) * 1e-9 : 0;
}

std::vector<Row> rowsOf(const std::vector<Process>& before, const std::vector<Process>& after,
                        double seconds) {
  std::map<Key, const Comm*> earlier;
  for (const Process& process : before)
    for (const Comm& comm : process.comms) earlier[keyOf(process, comm)] = &comm;
  std::vector<Row> rows;
  for (const Process& process : after) {
    for (const Comm& comm : process.comms) {
      if (comm.state != stats::LineState::live) continue;
      const auto found = earlier.find(keyOf(process, comm));
      const Comm none;
      const Comm& old = found == earlier.end() ? none : *found->second;
      const auto rate = [&](uint64_t now, uint64_t then) {
        return now > then ? static_cast<double>(now - then) / seconds : 0;
      };
      rows.push_back({process.presence.place, comm.peer, comm.device, comm.sends, rate(comm.bytes, old.bytes),
                      rate(comm.messages, old.messages), std::min(1.0, rate(comm.busy, old.busy) * 1e-9),
                      oldestWait(process, comm), comm.inFlight(), comm.quantile(0.99)});
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::tuple(-a.waits, a.bytes) < std::tuple(-b.waits, b.bytes);
  });
  return rows;
}

std::string tableOf(const std::vector<Row>& rows, size_t most, size_t width) {
  std::string text;
  const auto add = [&](std::string line) {
    if (width > 0 && line.size() > width) line.resize(width);
    text += line + "\n";
  };
  add(fmt::format("{:<20} {:<4} {:>10} {:>10} {:>6} {:>8} {:>6} {:>10}  {:<12} {}", "PROCESS", "DIR", "MB/s",
                  "MSG/s", "BUSY%", "WAITS s", "FLIGHT", "P99 us", "DEVICE", "PEER"));
  for (size_t i = 0; i < std::min(most, rows.size()); i++) {
    const Row& row = rows[i];
    add(fmt::format("{:<20.20} {:<4} {:>10.1f} {:>10.0f} {:>6.1f} {:>8.1f} {:>6} {:>10.1f}  {:<12.12} {}",
                    row.place, row.sends ? "send" : "recv", row.bytes * 1e-6, row.messages, row.busy * 100,
                    row.waits, row.inFlight, static_cast<double>(row.p99) * 1e-3, row.device, row.peer));
  }
  if (rows.size() > most) add(fmt::format("and {} more", rows.size() - most));
  return text;
}

int failTop(const std::string& why) {
  fmt::print(stderr, "weft top: {}\n", why);
  return 1;
}

}  // namespace

int runTop(const TopOptions& options) {
  auto where = placesOf(options.where);
  if (!where) return failTop(where.error().message());
  where->requests = true;
  std::vector<Process> before = read(*where);
  for (;;) {
    const auto begun = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval));
    std::vector<Process> after = read(*where);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    if (after.empty() && options.once)
      return failTop("no process was found that counts; does a job run here, as the same user?");
    winsize size{};
    const bool terminal = !options.once && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 4;
    const size_t most = options.rows > 0 ? static_cast<size_t>(options.rows)
                        : terminal       ? size.ws_row - 3u
                                         : SIZE_MAX;
    std::string text = options.once ? "" : "\x1b[H\x1b[2J";
    text += fmt::format("weft top: {} processes, every {:g} s, those that wait longest first\n", after.size(),
                        options.interval);
    text += tableOf(rowsOf(before, after, seconds), most, terminal ? size.ws_col : 0);
    if (const Status shown = show(text); !shown) return failTop(shown.error().message());
    if (options.once) return 0;
    before = std::move(after);
  }
}

}  // namespace weft::counted
