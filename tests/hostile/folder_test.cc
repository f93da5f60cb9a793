// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/shared_folder.h"
#include "src/stats/layout.h"
#include "tests/support/catch.h"
#include "tools/stats/otlp.h"
#include "tools/stats/pickle.h"
#include "tools/stats/reader.h"
#include "tools/stats/stats.h"
#include "tools/stats/torch_dump.h"

// What another user of the host puts into a folder that an operator reads as root: WEFT_STATE_DIR of a job,
// and the folder of an exporter.
using namespace weft;
namespace fs = std::filesystem;

namespace {

// A folder that others may write to, with a file outside that they would have root write to.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "weft-hostile-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    top_ = pattern;
    fs::create_directory(path());
    REQUIRE(::chmod(path().c_str(), 0777) == 0);
    put(victim(), "precious");
  }
  ~Folder() { fs::remove_all(top_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path() const { return (top_ / "shared").string(); }
  std::string operator/(const std::string& name) const { return path() + "/" + name; }
  std::string victim() const { return (top_ / "victim").string(); }
  static void put(const std::string& at, const std::string& text) { std::ofstream(at) << text; }
  static std::string textOf(const std::string& at) {
    std::ifstream file(at);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  fs::path top_;
};

bool isQuick(std::chrono::steady_clock::time_point since) {
  return std::chrono::steady_clock::now() - since < std::chrono::seconds(20);
}

template <size_t N>
void write(stats::Text<N>* to, const std::string& text) {
  to->fill(0);
  std::memcpy(to->data(), text.data(), std::min(text.size(), N - 1));
}

// A file of counters as anybody can write one: one comm, and whatever it claims to be.
struct Forged {
  Forged() {
    header->magic = stats::kMagic;
    header->version = stats::kVersion;
    header->headerBytes = sizeof(stats::Header);
    header->lineBytes = sizeof(stats::CommLine);
    header->comms = 1;
    header->pid = ::getpid();
    write(&header->world, "elsewhere");
    write(&header->host, "node1");
    write(&header->place, "rank 0 on node1");
    line->sequence.set(2);
    line->state.set(1);
    line->number.set(1);
    write(&line->device, "eth0");
    write(&line->peer, "rank 1");
  }
  void put(const std::string& path) const {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(header.get()), sizeof *header);
    for (uint32_t i = 0; i < header->comms; i++)
      file.write(reinterpret_cast<const char*>(line.get()), sizeof *line);
  }
  std::unique_ptr<stats::Header> header = std::make_unique<stats::Header>();
  std::unique_ptr<stats::CommLine> line = std::make_unique<stats::CommLine>();
};

size_t countOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) count++;
  return count;
}

}  // namespace

TEST_CASE("a link in the place of a file is not followed: nothing is made, touched or shown behind it") {
  const Folder folder;
  const SharedFolder shared(folder.path());
  const std::string made = folder.victim() + ".made";
  fs::create_symlink(made, folder / "ask");
  CHECK(shared.touch("ask") == ELOOP);
  CHECK_FALSE(fs::exists(made));
  fs::create_symlink(folder.victim(), folder / "node1.1.state");
  CHECK(shared.read("node1.1.state").error == ELOOP);
  CHECK_FALSE(shared.text("node1.1.state", 100));
  CHECK(shared.writtenAt("node1.1.state") == 0);
  CHECK(shared.touchExisting("node1.1.state") == ELOOP);
  fs::create_symlink(folder.victim(), folder / "node1.2.state.new");
  fs::create_symlink(folder.victim(), folder / "node1.2.state");
  CHECK(shared.replace("node1.2.state", "mine") == 0);
  CHECK(Folder::textOf(folder.victim()) == "precious");
  CHECK(Folder::textOf(folder / "node1.2.state") == "mine");
}

TEST_CASE("a pipe stops nobody, and a device is none") {
  const Folder folder;
  const SharedFolder shared(folder.path());
  for (const char* name : {"ask", "node1.1.stats", "node1.1.state", "node1.1.state.new"})
    REQUIRE(::mkfifo((folder / name).c_str(), 0666) == 0);
  const auto began = std::chrono::steady_clock::now();
  CHECK(shared.read("node1.1.stats").error == EINVAL);
  CHECK(shared.touch("ask") == EINVAL);
  CHECK(shared.replace("node1.1.state", "mine") == 0);
  CHECK(Folder::textOf(folder / "node1.1.state") == "mine");
  std::vector<std::string> unread;
  CHECK(counted::read({folder.path(), {}, false}, &unread).empty());
  REQUIRE(unread.size() == 1);
  CHECK(unread[0].find("no regular file") != std::string::npos);
  CHECK(isQuick(began));
  fs::create_directory(folder / "node1.2.state");
  CHECK(shared.read("node1.2.state").error == EINVAL);
}

TEST_CASE("a pipe among the open files of a process stops nobody") {
  const Folder folder;
  const std::string pipe = folder / "x.stats";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const int open = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(open >= 0);
  const auto began = std::chrono::steady_clock::now();
  CHECK(counted::read({"", {::getpid()}, false}).empty());
  CHECK(isQuick(began));
  ::close(open);
}

TEST_CASE("somebody's file under a second name is refused where others write, and names stay in the folder") {
  const Folder folder;
  const SharedFolder shared(folder.path());
  fs::create_hard_link(folder.victim(), folder / "node1.1.state");
  CHECK(shared.read("node1.1.state").error == EMLINK);
  CHECK(shared.touch("node1.1.state") == EMLINK);
  CHECK(shared.read("../victim").error == EINVAL);
  CHECK(shared.replace("../victim", "mine") == EINVAL);
  CHECK(shared.touch("..") == EINVAL);
  REQUIRE(::chmod(folder.path().c_str(), 0700) == 0);
  CHECK(shared.read("node1.1.state").error == 0);  // nobody but this user could have linked it
}

TEST_CASE("what a process writes is its user's alone") {
  const Folder folder;
  REQUIRE(SharedFolder(folder.path()).replace("node1.1.state", "mine") == 0);
  struct stat facts {};
  REQUIRE(::stat((folder / "node1.1.state").c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0600);
}

TEST_CASE("a file that names another user's process is not believed", "[root]") {
  if (::geteuid() != 0) return;  // only root can make one that is another user's
  const Folder folder;
  Forged forged;
  const Presence self = Presence::ofThisProcess();
  forged.header->pid = self.pid;
  forged.header->started = self.started;
  write(&forged.header->world, self.world);
  forged.put(folder / "node1.1.stats");
  CHECK(counted::read({folder.path(), {}, false}).size() == 1);
  REQUIRE(::chown((folder / "node1.1.stats").c_str(), 54321, 54321) == 0);
  std::vector<std::string> unread;
  CHECK(counted::read({folder.path(), {}, false}, &unread).empty());
  REQUIRE(unread.size() == 1);
  CHECK(unread[0].find("not believed") != std::string::npos);
}

TEST_CASE("the labels are the owner of the file, and this host where the file is of it") {
  const Folder folder;
  Forged forged;
  write(&forged.header->world, processWorld());
  forged.header->pid = std::numeric_limits<int32_t>::max();  // it has gone
  write(&forged.header->host, "the-login-node");
  forged.put(folder / "node1.1.stats");
  const auto found = counted::read({folder.path(), {}, false});
  REQUIRE(found.size() == 1);
  CHECK(found[0].host != "the-login-node");
  CHECK(found[0].user == ::geteuid());
  CHECK(counted::prometheusText(found, false).find("uid=\"" + std::to_string(::geteuid()) + "\"") !=
        std::string::npos);
}

TEST_CASE("no forged number or name spoils a document of metrics") {
  const Folder folder;
  Forged forged;
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  forged.header->begun.ticks.set(1);
  forged.header->begun.realtime.set(1);
  forged.header->beat.ticks.set(2);
  forged.header->beat.realtime.set(kMost);
  for (auto* cell :
       {&forged.line->busy, &forged.line->waited, &forged.line->busySince, &forged.line->failedAt})
    cell->set(kMost);
  forged.line->state.set(77);
  forged.line->peerState.set(77);
  write(&forged.line->peer, "rank\xff\xfe 1\n\"} 1\x1b[2J");
  write(&forged.header->place, "\xed\xa0\x80");
  forged.put(folder / "node1.1.stats");
  const auto found = counted::read({folder.path(), {}, true});
  REQUIRE(found.size() == 1);
  const std::string text = counted::prometheusText(found, true);
  for (const char* bad : {"nan", "inf ", "inf\n", "-nan"}) CHECK(text.find(bad) == std::string::npos);
  for (const char c : text) CHECK((c == '\n' || (c >= 0x20 && c < 0x7f)));
  CHECK(countOf(text, "weft_bytes_total{") == 1);
  CHECK_FALSE(counted::otlpText(found, true).empty());
  CHECK_FALSE(counted::jsonText(found).empty());
}

TEST_CASE("the same labels twice would have the collector refuse all: they are there once") {
  const Folder folder;
  Forged forged;
  forged.header->comms = 3;  // the same line three times
  forged.put(folder / "node1.1.stats");
  forged.put(folder / "node1.1-1.stats");
  const auto found = counted::read({folder.path(), {}, false});
  CHECK(found.size() == 2);
  const std::string text = counted::prometheusText(found, true);
  CHECK(countOf(text, "weft_process_up{") == 1);
  CHECK(countOf(text, "weft_bytes_total{") == 1);
}

TEST_CASE("a dump that names itself, or holds millions of values, ends") {
  const Folder folder;
  // {'entries': [{'collective_seq_id': 1, 'input_sizes': L}]} where L = [L, L, L, ...]
  std::string list = "]q\x01(";
  for (int i = 0; i < 50; i++) list += "h\x01";
  list += "e";
  const auto text = [](const std::string& word) {
    return std::string("X") + static_cast<char>(word.size()) + std::string(3, '\0') + word;
  };
  const std::string bytes = "\x80\x02}" + text("entries") + "]}(" + text("collective_seq_id") + "K\x01" +
                            text("input_sizes") + list + text("profiling_name") + text("a\x1b[2J\nb") +
                            "uas.";
  Folder::put(folder / "nccl_trace_rank_0", bytes);
  REQUIRE(counted::readPickle(bytes));
  const auto began = std::chrono::steady_clock::now();
  const auto ranks = counted::readTorchDumps(folder.path());
  REQUIRE(ranks.size() == 1);
  CHECK(ranks[0].call.size() < 100000);
  CHECK(ranks[0].call.find('\x1b') == std::string::npos);
  CHECK(isQuick(began));
  REQUIRE(::mkfifo((folder / "pipe_rank_1").c_str(), 0666) == 0);
  CHECK(counted::readTorchDumps(folder.path()).size() == 1);
  CHECK(isQuick(began));
  CHECK_FALSE(counted::readPickle("\x80\x02(" + std::string(size_t{5} << 20, 'N') + "t."));
}
