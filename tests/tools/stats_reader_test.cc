// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/stats/comm_stats.h"
#include "src/stats/stats_file.h"
#include "tests/support/catch.h"
#include "tools/stats/reader.h"

// What weft stats and weft autopsy read while a comm goes on: it does between any two words that they copy.
using namespace weft;

namespace {

enum class Order { ascending, descending };

Order order = Order::ascending;
std::function<void(size_t)> betweenWords;  // told the place in the file; empty: nothing happens there

ssize_t readWord(int file, char* to, size_t bytes, off_t offset) {
  return ::syscall(SYS_pread64, file, to, bytes, offset);
}

// The kernel copies in an order of its own, and the words of a record are those of several moments.
ssize_t readSlowly(int file, char* to, size_t bytes, off_t offset) {
  constexpr size_t kWord = sizeof(uint64_t);
  const size_t words = (bytes + kWord - 1) / kWord;
  for (size_t i = 0; i < words; i++) {
    const size_t at = (order == Order::ascending ? i : words - 1 - i) * kWord;
    const size_t some = std::min(kWord, bytes - at);
    if (readWord(file, to + at, some, offset + static_cast<off_t>(at)) != static_cast<ssize_t>(some))
      return -1;
    betweenWords(static_cast<size_t>(offset) + at);
  }
  return static_cast<ssize_t>(bytes);
}

}  // namespace

// In the place of the C library's.
extern "C" ssize_t pread(int file, void* to, size_t bytes, off_t offset) {
  char* text = static_cast<char*>(to);
  return betweenWords ? readSlowly(file, text, bytes, offset) : readWord(file, text, bytes, offset);
}

namespace {

constexpr uint64_t kRoom = 1 << 20;

uint64_t bytesOf(uint64_t number) {
  return number % 1000;
}

struct Findings {
  size_t requests = 0;
  size_t mixed = 0;  // of one number, with words of another
  size_t early = 0;  // done, and with the room for a size
};

void look(const counted::Comm& comm, Findings* findings) {
  for (const counted::Request& request : comm.requests) {
    const auto number = static_cast<uint32_t>(request.number);
    findings->requests++;
    if (request.tag != number - 1 || request.k != ~(number - 1))
      findings->mixed++;
    else if (request.done != 0 && request.bytes != bytesOf(request.number))
      findings->early++;
  }
}

class Folder {
 public:
  Folder() { REQUIRE(::mkdtemp(path_.data()) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / "weft-reader-XXXXXX").string();
};

std::vector<counted::Process> readIn(const Folder& folder, Order taken, bool requests,
                                     const std::function<void(size_t)>& meanwhile) {
  order = taken;
  betweenWords = meanwhile;
  auto found = counted::read({.folder = folder.path(), .pids = {}, .requests = requests});
  betweenWords = nullptr;
  REQUIRE(found.size() == 1);
  return found;
}

}  // namespace

namespace {

// Receives that come just where the copy is.
class Traffic {
 public:
  explicit Traffic(stats::CommLine* line) : pen_(line) {}

  void receive() {
    const uint32_t number = pen_.posted(k_, ~k_, kRoom, stats::Way::none);
    pen_.done(number, bytesOf(number), stats::Way::eager);
    k_++;
  }

  // In one pass of the reader over the records, and into few of them.
  void beginIn(int pass) {
    pass_ = pass;
    left_ = 20;
    here_ = -1;
  }
  void copied(size_t place) {
    constexpr size_t kBegin = sizeof(stats::Header) + offsetof(stats::CommLine, records);
    if (place < kBegin || place >= kBegin + sizeof(stats::CommLine::records)) {
      inside_ = false;
      return;
    }
    if (!inside_) here_++;
    inside_ = true;
    if (here_ != pass_ || left_ == 0 || (place - kBegin) / sizeof(stats::Record) != k_ % stats::kRecords)
      return;
    left_--;
    receive();
  }

 private:
  stats::CommStats pen_;
  uint32_t k_ = 0;
  int pass_ = 0, here_ = -1;
  int left_ = 0;
  bool inside_ = false;
};

}  // namespace

TEST_CASE("a request is read whole or not at all, whatever its comm does meanwhile") {
  const Folder folder;
  auto file = stats::StatsFile::create(folder.path());
  REQUIRE(file);
  stats::CommLine* line = (*file)->take(7, false, "a device", "a peer");
  Traffic traffic(line);
  for (uint32_t i = 0; i < stats::kRecords + 300; i++) traffic.receive();
  for (const Order taken : {Order::ascending, Order::descending}) {
    for (int pass = 0; pass < 4; pass++) {
      traffic.beginIn(pass);
      const auto found = readIn(folder, taken, true, [&](size_t place) { traffic.copied(place); });
      REQUIRE(found[0].comms.size() == 1);
      Findings findings;
      look(found[0].comms[0], &findings);
      INFO((taken == Order::ascending ? "ascending" : "descending") << ", in pass " << pass);
      CHECK(findings.requests > stats::kRecords / 2);
      CHECK(findings.mixed == 0);
      CHECK(findings.early == 0);
    }
  }
  (*file)->give(line, false);
}

TEST_CASE("a comm that fails meanwhile has its whole reason or none") {
  const std::string reason(150, 'x');
  for (const Order taken : {Order::ascending, Order::descending}) {
    for (uint32_t when = 0; when < 700; when += 5) {
      const Folder folder;
      auto file = stats::StatsFile::create(folder.path());
      REQUIRE(file);
      stats::CommStats pen((*file)->take(7, false, "a device", "a peer"));
      uint32_t calls = 0;
      const auto found = readIn(folder, taken, false, [&](size_t) {
        if (calls++ == when) pen.failed(reason);
      });
      const counted::Comm& comm = found[0].comms.at(0);
      if (comm.failedAt != 0) CHECK(comm.reason == reason);
    }
  }
}
