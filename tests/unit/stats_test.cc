// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "src/base/process.h"
#include "src/stats/comm_stats.h"
#include "src/stats/stats_file.h"
#include "tests/support/catch.h"

using namespace weft;
using namespace weft::stats;

TEST_CASE("each bucket of a histogram begins where the one before ends, and is a quarter wide at most") {
  for (uint32_t bucket = 0; bucket + 1 < kBuckets; bucket++) {
    const uint64_t begin = bucketBegin(bucket), end = bucketBegin(bucket + 1);
    REQUIRE(begin < end);
    CHECK(bucketOf(begin) == bucket);
    CHECK(bucketOf(end - 1) == bucket);
    if (begin >= 4) CHECK((end - begin) * 4 <= begin);
  }
  CHECK(bucketOf(UINT64_MAX) == kBuckets - 1);
}

TEST_CASE("a size class ends with a power of two") {
  CHECK(sizeClassOf(0) == 0);
  CHECK(sizeClassOf(1) == 0);
  CHECK(sizeClassOf(2) == 1);
  CHECK(sizeClassOf(65535) == 16);
  CHECK(sizeClassOf(65536) == 16);
  CHECK(sizeClassOf(65537) == 17);
  CHECK(sizeClassOf(UINT64_MAX) == kSizeClasses - 1);
}

TEST_CASE("a receive with room for much is timed as what came before it was") {
  const auto line = std::make_unique<CommLine>();
  CommStats pen(line.get());
  const auto receive = [&](uint32_t k, uint64_t bytes) {
    pen.done(pen.posted(1, k, 512 << 10, Way::none), bytes, Way::eager);
  };
  const SizeClass& small = line->sizes[sizeClassOf(8)];
  const SizeClass& large = line->sizes[sizeClassOf(64 << 10)];
  uint32_t k = 0;
  while (k < 32) receive(k++, 8);
  const uint64_t begun = small.timed.get();
  while (k < 32 + 160) receive(k++, 8);
  CHECK(small.timed.get() == begun + 10);  // one in 16
  receive(k++, 64 << 10);
  receive(k++, 8);
  receive(k++, 64 << 10);
  CHECK(small.timed.get() == begun + 11);
  CHECK(large.timed.get() >= 1);
  CHECK(small.messages.get() + large.messages.get() == k);
}

TEST_CASE("busy time is the union of what is in flight, and not its sum") {
  const auto line = std::make_unique<CommLine>();
  CommStats pen(line.get());
  constexpr uint64_t kLarge = 1 << 20;
  const uint64_t before = ticks();
  const uint32_t first = pen.posted(1, 0, kLarge, Way::direct);
  const uint32_t second = pen.posted(1, 1, kLarge, Way::direct);
  CHECK(line->busySince.get() == line->records[0].posted.get());
  pen.done(first, kLarge, Way::none);
  CHECK(line->busySince.get() != 0);
  pen.done(second, kLarge, Way::none);
  const uint64_t after = ticks();
  CHECK(line->busySince.get() == 0);
  CHECK(line->busy.get() == line->records[1].done.get() - line->records[0].posted.get());
  CHECK(line->busy.get() <= after - before);
  const uint32_t third = pen.posted(1, 2, kLarge, Way::direct);
  const uint64_t busy = line->busy.get();
  pen.done(third, kLarge, Way::none);
  CHECK(line->busy.get() == busy + line->records[2].done.get() - line->records[2].posted.get());
  CHECK(line->ways[static_cast<size_t>(Way::direct)].get() == 3);
  const SizeClass& size = line->sizes[sizeClassOf(kLarge)];
  CHECK(size.bytes.get() == 3 * kLarge);
  CHECK(size.timed.get() == 3);
  uint64_t sum = 0;
  for (int i = 0; i < 3; i++) sum += line->records[i].done.get() - line->records[i].posted.get();
  CHECK(size.ticks.get() == sum);
}

TEST_CASE("of small messages some are timed, and all are counted") {
  const auto line = std::make_unique<CommLine>();
  CommStats pen(line.get());
  for (uint32_t k = 0; k < 64; k++) pen.done(pen.posted(1, k, 8, Way::eager), 8, Way::none);
  const SizeClass& size = line->sizes[sizeClassOf(8)];
  CHECK(size.messages.get() == 64);
  CHECK(size.timed.get() == 4);
}

TEST_CASE("a comm's records are its last ones, and an older one's completion is counted all the same") {
  const auto line = std::make_unique<CommLine>();
  CommStats pen(line.get());
  const uint32_t oldest = pen.posted(7, 0, 8, Way::none);
  for (uint32_t k = 1; k <= kRecords; k++) pen.whole(7, k, 8);
  CHECK(line->records[0].k.get() == kRecords);
  pen.done(oldest, 8, Way::eager);
  CHECK(line->records[0].k.get() == kRecords);
  CHECK(line->done.get() == kRecords + 1);
  CHECK(line->posted.get() == kRecords + 1);
}

TEST_CASE("a wait begins with the first refusal and ends with the next send") {
  const auto line = std::make_unique<CommLine>();
  CommStats pen(line.get());
  pen.refused(5, 3, 100);
  const uint64_t since = line->waitsSince.get();
  CHECK(since != 0);
  pen.refused(5, 3, 100);
  CHECK(line->waitsSince.get() == since);
  CHECK(line->waits.get() == 1);
  pen.whole(5, 3, 100);
  CHECK(line->waitsSince.get() == 0);
  CHECK(line->waited.get() > 0);
}

TEST_CASE("a record tells when a send was asked for first, and when a message that comes in parts began") {
  const auto line = std::make_unique<CommLine>();
  CommStats pen(line.get());
  pen.refused(5, 0, 1 << 20);
  const uint64_t asked = line->waitsSince.get();
  const uint32_t send = pen.posted(5, 0, 1 << 20, Way::rendezvous);
  CHECK(line->records[0].told.get() == asked);
  CHECK(line->records[0].posted.get() >= asked);
  pen.done(send, 1 << 20, Way::none);
  CHECK((line->records[0].way.get() & kCameInParts) == 0);
  const uint32_t receive = pen.posted(5, 1, 1 << 20, Way::none);
  CHECK(line->records[1].told.get() == 0);
  pen.begun(receive);
  const uint64_t first = line->records[1].first.get();
  CHECK(first >= line->records[1].posted.get());
  pen.begun(receive);
  CHECK(line->records[1].first.get() == first);
  pen.done(receive, 1 << 20, Way::rendezvous);
  CHECK(line->records[1].done.get() >= first);
  CHECK(line->records[1].way.get() == (static_cast<uint32_t>(Way::rendezvous) | kTimed | kCameInParts));
}

TEST_CASE("the first reason of a failure is kept, cut where it is long") {
  const auto line = std::make_unique<CommLine>();
  CommStats pen(line.get());
  pen.failed(std::string(500, 'x'));
  const uint64_t at = line->failedAt.get();
  CHECK(at != 0);
  pen.failed("another one");
  CHECK(line->failedAt.get() == at);
  CHECK(std::string(line->reason.data()) == std::string(191, 'x'));
  CHECK(line->state.get() == static_cast<uint32_t>(LineState::failed));
}

TEST_CASE("without a line nothing happens") {
  CommStats pen;
  pen.done(pen.posted(1, 2, 3, Way::eager), 3, Way::none);
  pen.whole(1, 2, 3);
  pen.refused(1, 2, 3);
  CHECK(pen.line() == nullptr);
}

TEST_CASE("a file in a folder is the user's alone and goes with its object, but not after an error") {
  char folder[] = "/tmp/weft-stats-XXXXXX";
  REQUIRE(::mkdtemp(folder));
  {
    auto first = StatsFile::create(folder);
    auto second = StatsFile::create(folder);
    REQUIRE(first);
    REQUIRE(second);
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      struct stat facts {};
      REQUIRE(::stat(entry.path().c_str(), &facts) == 0);
      CHECK((facts.st_mode & 0777) == 0600);
      CHECK(static_cast<size_t>(facts.st_size) == kFileBytes);
      files++;
    }
    CHECK(files == 2);
  }
  CHECK(std::filesystem::is_empty(folder));
  {
    auto failing = StatsFile::create(folder);
    REQUIRE(failing);
    (*failing)->give((*failing)->take(1, true, "device", "peer"), true);
  }
  CHECK_FALSE(std::filesystem::is_empty(folder));  // what led to the error can be read
  std::filesystem::remove_all(folder);
  CHECK_FALSE(StatsFile::create("/nonexistent"));
}

// A store to what was cut off would end the process.
TEST_CASE("memory that is shared without a folder cannot be cut off") {
  auto file = StatsFile::create("");
  REQUIRE(file);
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.find(kMemfdName) == std::string::npos) continue;
    found++;
    CHECK(::truncate(entry.path().c_str(), 0) != 0);
  }
  CHECK(found > 0);
  CHECK((*file)->take(1, true, "device", "peer"));
}

TEST_CASE("a line that is over serves another comm, and one too many is counted") {
  auto file = StatsFile::create("");
  REQUIRE(file);
  CommLine* first = (*file)->take(1, true, "device", "peer");
  REQUIRE(first);
  for (uint32_t i = 1; i < kMostComms; i++) REQUIRE((*file)->take(i + 1, false, "device", "peer"));
  CHECK((*file)->take(1000, true, "device", "peer") == nullptr);
  CommStats(first).whole(1, 2, 3);
  (*file)->give(first, false);
  CHECK(first->state.get() == static_cast<uint32_t>(LineState::over));
  CHECK(first->done.get() == 1);
  const uint32_t sequence = first->sequence.get();
  CHECK((*file)->take(1001, false, "other", "peer") == first);
  CHECK(first->sequence.get() == sequence + 2);
  CHECK(first->done.get() == 0);
  CHECK(std::string(first->device.data()) == "other");
}

namespace {

// The disk, or memory, that files of a folder take.
uint64_t takenBy(const char* folder) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    struct stat facts {};
    REQUIRE(::stat(entry.path().c_str(), &facts) == 0);
    bytes += static_cast<uint64_t>(facts.st_blocks) * 512;
  }
  return bytes;
}

}  // namespace

TEST_CASE("a file takes what its comms take, and connections that come and go take no more") {
  constexpr uint64_t kSmall = 1 << 20;
  char folder[] = "/tmp/weft-stats-XXXXXX";
  REQUIRE(::mkdtemp(folder));
  {
    auto file = StatsFile::create(folder);
    REQUIRE(file);
    CHECK(takenBy(folder) <= kSmall / 8);
    for (uint32_t i = 0; i < 4; i++) REQUIRE((*file)->take(i + 1, i % 2 == 0, "device", "peer"));
    for (uint32_t i = 0; i < 200; i++) {
      CommLine* line = (*file)->take(i + 10, i % 2 == 0, "device", "peer");
      REQUIRE(line);
      CommStats pen(line);
      for (uint32_t k = 0; k < 3; k++) pen.whole(0, k, 64);
      (*file)->give(line, false);
    }
    CHECK(takenBy(folder) <= kSmall);
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("what comms counted whose lines serve others is kept, by device and direction") {
  auto file = StatsFile::create("");
  REQUIRE(file);
  std::vector<const CommLine*> lines;
  for (uint32_t i = 0; i < 100; i++) {
    CommLine* line = (*file)->take(i + 1, i % 2 == 0, "device", "peer");
    REQUIRE(line);
    CHECK(line->records[0].number.get() == 0);
    CHECK(line->posted.get() == 0);
    lines.push_back(line);
    CommStats(line).whole(1, 2, 3);
    (*file)->give(line, false);
  }
  std::sort(lines.begin(), lines.end());
  const CommLine* const first = lines.front();
  uint64_t sent = 0, received = 0, earlier = 0;
  for (const CommLine* line = first; line < first + kMostComms; line++) {
    if (line->sequence.get() == 0) break;
    const bool isSum = line->state.get() == static_cast<uint32_t>(LineState::earlier);
    earlier += isSum ? 1 : 0;
    CHECK(line->posted.get() == line->done.get());
    (line->sends.get() != 0 ? sent : received) += line->sizes[sizeClassOf(3)].messages.get();
  }
  CHECK(earlier == 2);
  CHECK(sent == 50);
  CHECK(received == 50);
}

namespace {

class Counted final : public ProfileSource {
 public:
  Counted() : file_(std::move(*StatsFile::create(""))) { file_->keepAll(); }
  StatsFile& file() { return *file_; }
  void addTo(ProfileSums* sums) override { file_->addTo(sums); }

 private:
  std::unique_ptr<StatsFile> file_;
};

// One message of 8 bytes.
void countOne(CommLine* line) {
  REQUIRE(line);
  CommStats(line).whole(1, 0, 8);
}

uint64_t messagesTo(const ProfileSums& sums, const std::string& peer) {
  const auto found = sums.flows.find({true, "device", peer});
  return found == sums.flows.end() ? 0 : found->second.sizes[sizeClassOf(8)].messages;
}

std::string contentOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

TEST_CASE("a profile has comms that live, that are over, and whose lines others took") {
  Counted counted;
  constexpr uint64_t kOver = 3 * kMostComms;
  for (uint32_t i = 0; i < kOver; i++) {
    CommLine* line = counted.file().take(i + 1, true, "device", "gone");
    countOne(line);
    counted.file().give(line, false);
  }
  countOne(counted.file().take(kOver + 1, true, "device", "living"));
  ProfileSums sums;
  counted.addTo(&sums);
  CHECK(messagesTo(sums, "gone") == kOver);
  CHECK(messagesTo(sums, "living") == 1);
  CHECK(sums.leftOut == 0);
}

TEST_CASE("a profile is written whole, under a name that nobody had, and keeps what went before") {
  char folder[] = "/tmp/weft-profile-XXXXXX";
  REQUIRE(::mkdtemp(folder));
  auto profile = Profile::create(folder, "loop");
  REQUIRE(profile);
  CHECK((*profile)->write());
  CHECK(std::filesystem::is_empty(folder));  // nothing was connected
  Counted living;
  countOne(living.file().take(1, true, "device", "a \"peer\"\n"));
  (*profile)->begin(&living);
  {
    Counted gone;
    (*profile)->begin(&gone);
    countOne(gone.file().take(1, true, "device", "gone"));
    (*profile)->end(&gone);
  }
  const std::string stem = std::string(folder) + "/" + hostName() + "." + std::to_string(::getpid());
  std::ofstream(stem + ".profile.json") << "of another";
  CHECK((*profile)->write());
  CHECK(contentOf(stem + ".profile.json") == "of another");
  const std::string text = contentOf(stem + "-1.profile.json");
  CHECK(text.starts_with("{\"weft_profile\": 1,"));
  CHECK(text.ends_with("]}\n"));
  CHECK(text.find("\"peer\": \"gone\"") != std::string::npos);
  CHECK(text.find("\"peer\": \"a \\\"peer\\\"?\"") != std::string::npos);
  std::filesystem::remove_all(folder);
  const auto none = Profile::create(folder, "loop");
  REQUIRE_FALSE(none);
  CHECK(none.error().message().find(folder) != std::string::npos);
}

TEST_CASE("threads of ours are known by name with their processor time, also when they are over") {
  for (int i = 0; i < 3; i++) {
    auto thread = startThread("weft-test", [] {
      const uint64_t until = nanosecondsOf(CLOCK_THREAD_CPUTIME_ID) + 2'000'000;
      while (nanosecondsOf(CLOCK_THREAD_CPUTIME_ID) < until) {
      }
    });
    REQUIRE(thread);
    thread->join();
  }
  uint64_t spent = 0;
  for (const ThreadTime& time : threadTimes())
    if (time.name == "weft-test") spent = time.nanoseconds;
  CHECK(spent >= 6'000'000);
}
