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
#include "tools/stats/top_table.h"

namespace weft::counted {

namespace {

constexpr double kPausedLook = 3600;  // seconds; a key ends it

using Key = std::tuple<int64_t, uint32_t, bool, std::string>;

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

// A folder has files of the dead, too.
std::vector<Process> running(const Where& where, std::vector<std::string>* unread) {
  std::vector<Process> processes = read(where, unread);
  std::erase_if(processes, [](const Process& one) { return one.state == ProcessState::gone; });
  return processes;
}

std::vector<TopRow> rowsOf(const std::vector<Process>& before, const std::vector<Process>& after,
                           double seconds) {
  std::map<Key, const Comm*> earlier;
  for (const Process& process : before)
    for (const Comm& comm : process.comms) earlier[keyOf(process, comm)] = &comm;
  std::vector<TopRow> rows;
  for (const Process& process : after) {
    for (const Comm& comm : process.comms) {
      const bool ended = comm.state == stats::LineState::failed;
      if (comm.state != stats::LineState::live && !ended) continue;
      const auto found = earlier.find(keyOf(process, comm));
      const Comm none;
      const Comm& old = found == earlier.end() ? none : *found->second;
      const auto rate = [&](uint64_t now, uint64_t then) {
        return now > then ? static_cast<double>(now - then) / seconds : 0;
      };
      rows.push_back({process.presence.place, (ended ? "ended by an error: " : "") + comm.peer, comm.device,
                      comm.sends, rate(comm.bytes, old.bytes), rate(comm.messages, old.messages),
                      std::min(1.0, rate(comm.busy, old.busy) * 1e-9), ended ? 0 : oldestWait(process, comm),
                      comm.inFlight(), comm.quantile(0.99), comm.checked, comm.corrupt});
    }
  }
  return rows;
}

// The orders that one may ask for, the first unless one does. A row with more comes first, but for names.
struct Order {
  const char* name;
  const char* words;
  bool (*first)(const TopRow& a, const TopRow& b);
};
constexpr std::array<Order, 5> kOrders{{
    {"wait", "those that wait longest first",
     [](const TopRow& a, const TopRow& b) {
       return std::tuple(-a.waits, a.bytes) < std::tuple(-b.waits, b.bytes);
     }},
    {"rate", "those that carry most first",
     [](const TopRow& a, const TopRow& b) { return a.bytes > b.bytes; }},
    {"busy", "the busiest first", [](const TopRow& a, const TopRow& b) { return a.busy > b.busy; }},
    {"latency", "the slowest first", [](const TopRow& a, const TopRow& b) { return a.p99 > b.p99; }},
    {"name", "by process and peer",
     [](const TopRow& a, const TopRow& b) { return std::tie(a.place, a.peer) < std::tie(b.place, b.peer); }},
}};

bool isWanted(const TopRow& row, const std::string& filter) {
  return (row.place + "\n" + row.peer + "\n" + row.device).find(filter) != std::string::npos;
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
  std::vector<TopRow> rows_;  // as they were found
  std::vector<std::string> unread_;
};

void Top::look() {
  const auto now = std::chrono::steady_clock::now();
  std::vector<Process> after = running(where_, &unread_);
  rows_ = rowsOf(before_, after, std::chrono::duration<double>(now - looked_).count());
  std::erase_if(rows_, [&](const TopRow& row) { return !isWanted(row, options_.filter); });
  before_ = std::move(after);
  looked_ = now;
}

Status Top::draw() const {
  winsize size{};
  const bool terminal = !options_.once && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 4;
  const size_t most = options_.rows > 0 ? static_cast<size_t>(options_.rows)
                      : terminal        ? size.ws_row - 3u
                                        : SIZE_MAX;
  std::vector<TopRow> sorted = rows_;
  std::stable_sort(sorted.begin(), sorted.end(), kOrders[order_].first);
  std::string head = fmt::format("weft top: {} processes, every {:g} s, {}", before_.size(),
                                 options_.interval, kOrders[order_].words);
  if (!options_.filter.empty()) head += fmt::format(", with \"{}\"", options_.filter);
  if (paused_) head += "; PAUSED";
  if (!options_.once) head += "; keys: s sort, p pause, q quit";
  if (terminal && head.size() > size.ws_col) head.resize(size.ws_col);
  return show((options_.once ? "" : "\x1b[H\x1b[2J") + head + "\n" +
              topTable(sorted, most, terminal ? size.ws_col : 0));
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
  before_ = running(where_, &unread_);
  while (waitForLook()) {
    look();
    if (before_.empty() && options_.once) {
      sayUnread("weft top", unread_);
      return failTop("no process was found that counts; does a job run here, as the same user?");
    }
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
  if (!where) {
    (void)failTop(where.error().message());
    return exitCodeOf(where.error());
  }
  where->requests = true;
  return Top(options, *where).run();
}

}  // namespace weft::counted
