// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/top.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <sys/ioctl.h>
#include <tuple>
#include <unistd.h>

#include <fmt/format.h>

#include "tools/output/output.h"
#include "tools/stats/keyboard.h"
#include "tools/stats/stats.h"

namespace weft::counted {

namespace {

constexpr double kPausedLook = 3600;  // seconds; a key ends it

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
  return rows;
}

// The orders that one may ask for, the first unless one does. A row with more comes first, but for names.
struct Order {
  const char* name;
  const char* words;
  bool (*first)(const Row& a, const Row& b);
};
constexpr std::array<Order, 5> kOrders{{
    {"wait", "those that wait longest first",
     [](const Row& a, const Row& b) {
       return std::tuple(-a.waits, a.bytes) < std::tuple(-b.waits, b.bytes);
     }},
    {"rate", "those that carry most first", [](const Row& a, const Row& b) { return a.bytes > b.bytes; }},
    {"busy", "the busiest first", [](const Row& a, const Row& b) { return a.busy > b.busy; }},
    {"latency", "the slowest first", [](const Row& a, const Row& b) { return a.p99 > b.p99; }},
    {"name", "by process and peer",
     [](const Row& a, const Row& b) { return std::tie(a.place, a.peer) < std::tie(b.place, b.peer); }},
}};

bool isWanted(const Row& row, const std::string& filter) {
  return (row.place + "\n" + row.peer + "\n" + row.device).find(filter) != std::string::npos;
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

// The table again and again, until a key ends it.
class Top {
 public:
  Top(const TopOptions& options, Where where) : options_(options), where_(std::move(where)) {
    for (size_t i = 0; i < kOrders.size(); i++)
      if (options_.sort == kOrders[i].name) order_ = i;
  }
  int run();

 private:
  void look();
  Status draw() const;
  bool obey(char key);  // false: it is to end
  bool waitForLook();   // likewise

  const TopOptions& options_;
  Where where_;
  Keyboard keyboard_;
  size_t order_ = 0;
  bool paused_ = false;
  std::vector<Process> before_;
  std::chrono::steady_clock::time_point looked_;
  std::vector<Row> rows_;  // as they were found
};

void Top::look() {
  const auto now = std::chrono::steady_clock::now();
  std::vector<Process> after = read(where_);
  rows_ = rowsOf(before_, after, std::chrono::duration<double>(now - looked_).count());
  std::erase_if(rows_, [&](const Row& row) { return !isWanted(row, options_.filter); });
  before_ = std::move(after);
  looked_ = now;
}

Status Top::draw() const {
  winsize size{};
  const bool terminal = !options_.once && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 4;
  const size_t most = options_.rows > 0 ? static_cast<size_t>(options_.rows)
                      : terminal        ? size.ws_row - 3u
                                        : SIZE_MAX;
  std::vector<Row> sorted = rows_;
  std::stable_sort(sorted.begin(), sorted.end(), kOrders[order_].first);
  std::string head = fmt::format("weft top: {} processes, every {:g} s, {}", before_.size(),
                                 options_.interval, kOrders[order_].words);
  if (!options_.filter.empty()) head += fmt::format(", with \"{}\"", options_.filter);
  if (paused_) head += "; PAUSED";
  if (!options_.once) head += "; keys: s sort, p pause, q quit";
  if (terminal && head.size() > size.ws_col) head.resize(size.ws_col);
  return show((options_.once ? "" : "\x1b[H\x1b[2J") + head + "\n" +
              tableOf(sorted, most, terminal ? size.ws_col : 0));
}

bool Top::obey(char key) {
  if (key == 's') order_ = (order_ + 1) % kOrders.size();
  if (key == 'p' || key == ' ') paused_ = !paused_;
  return key != 'q' && key != Keyboard::kEnd;
}

// A key is answered at once and does not put the next look off.
bool Top::waitForLook() {
  const auto next = looked_ + std::chrono::duration<double>(options_.interval);
  for (;;) {
    const double left = std::chrono::duration<double>(next - std::chrono::steady_clock::now()).count();
    if (left <= 0 && !paused_) return true;
    const char key = keyboard_.next(paused_ ? kPausedLook : left);
    if (!obey(key)) return false;
    if (key != Keyboard::kNone && !rows_.empty() && !draw()) return false;
  }
}

int Top::run() {
  looked_ = std::chrono::steady_clock::now();
  before_ = read(where_);
  while (waitForLook()) {
    look();
    if (before_.empty() && options_.once)
      return failTop("no process was found that counts; does a job run here, as the same user?");
    if (const Status shown = draw(); !shown) return failTop(shown.error().message());
    if (options_.once) return 0;
  }
  return 0;
}

}  // namespace

std::vector<std::string> topOrders() {
  std::vector<std::string> names;
  for (const Order& order : kOrders) names.emplace_back(order.name);
  return names;
}

int runTop(const TopOptions& options) {
  auto where = placesOf(options.where);
  if (!where) return failTop(where.error().message());
  where->requests = true;
  return Top(options, *where).run();
}

}  // namespace weft::counted
