// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <fstream>
#include <future>
#include <sys/mman.h>
#include <sys/wait.h>

#include "providers/local/device.h"
#include "providers/local/share_socket.h"
#include "src/base/random.h"
#include "tests/system/local/gpu_end.h"

// A peer that names GPU memory which is not what it says: nothing of it is mapped, the peer is told so, and a
// frame that names it all the same ends the lane with words. CUDA refuses handles of the process itself, so
// good ones come from a second process, which is forked before this one has called CUDA.
using namespace weft;
using namespace weft::test;
using namespace weft::local;
using enum CompletionKind;

namespace {

constexpr size_t kOwned = 4 * kMiB;

// Owns an allocation of cudaMalloc, and does as told: h, sends its handle; f, frees it.
[[noreturn]] void ownerProcess(const Fd& link) {
  const GpuInUse context;
  const auto driver = need(mem::gpu::Driver::open({}, false));
  auto piece = need(driver->allocate(0, kOwned));
  for (char word = 0; ::recv(link.get(), &word, 1, MSG_WAITALL) == 1;) {
    mem::gpu::IpcHandle handle;
    if (word == 'h') handle = need(driver->handleOf(0, piece->data()));
    if (word == 'f') piece.reset();
    if (::send(link.get(), &handle, sizeof handle, MSG_NOSIGNAL) != sizeof handle) break;
  }
  ::_exit(0);
}

class Owner {
 public:
  Owner() {
    int both[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) != 0) fail("no sockets");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(both[0]);
      ownerProcess(Fd(both[1]));
    }
    ::close(both[1]);
    link_ = Fd(both[0]);
  }
  ~Owner() { end(); }
  mem::gpu::IpcHandle handle() const { return ask('h'); }
  void freeIt() const { (void)ask('f'); }
  void end() {
    link_.reset();
    if (pid_ > 0) ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  mem::gpu::IpcHandle ask(char word) const {
    mem::gpu::IpcHandle handle;
    if (::send(link_.get(), &word, 1, MSG_NOSIGNAL) != 1 ||
        ::recv(link_.get(), &handle, sizeof handle, MSG_WAITALL) != sizeof handle)
      fail("the owner is gone");
    return handle;
  }
  pid_t pid_;
  Fd link_;
};

// In the place of the other end, with an inbox, a socket and a piece for the proof.
struct RawGpuPeer {
  explicit RawGpuPeer(GpuEnd& tested) : end(tested), socket(need(ShareSocket::open())) {
    fillRandom(nonce);
    mine = need(SharedInbox::create(nonce));
    const Whereabouts here{::getpid(), mine.fd(), nonce, processNonce(), socket.name()};
    need(end.lane->connect(encodeAddress(here)));
    const auto where = need(decodeAddress(end.lane->address()));
    theirs = need(SharedInbox::find(where));
    need(socket.connect(where.gpuSocket));
    trial = need(end.driver->allocateShareable(0, 2 * kMiB));
    need(end.driver->toGpu(0, trial->data(), nonce.data(), sizeof nonce));
    announce(kTrialByDescriptor, 2 * kMiB, kByDescriptor, need(end.driver->exportShared(trial->data())));
    mine->owner.peer = theirs->label.nonce;
    mine->owner.reached.store(kByDescriptor | kByHandle);
    mine->owner.word.store(Word::tried);
    if (!end.pollUntil(connected, 1) || !end.seen.front().ok) fail("the lane does not stand");
  }
  void announce(uint64_t share, uint64_t length, uint64_t way, const Fd& descriptor,
                const mem::gpu::IpcHandle& handle = {}) const {
    if (!need(socket.send({nonce, share, length, way, handle}, descriptor))) fail("the socket is full");
  }
  Frame& put(FrameKind kind, uint64_t key) {
    Frame& frame = theirs->frames[put_++];
    frame.kind = kind;
    frame.key = key;
    return frame;
  }
  void publish() { theirs->frames[put_ - 1].number.store(put_, std::memory_order_release); }
  // Offers a share. True: the other end answers that it has it mapped.
  bool offer(uint64_t share) {
    put(FrameKind::offer, share);
    publish();
    const Frame& answer = mine->frames[answers_++];
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10) * patience();
    while (answer.number.load(std::memory_order_acquire) != answers_) {
      if (std::chrono::steady_clock::now() > until) fail("no answer");
      end.poll();
    }
    if (answer.kind != FrameKind::answer || answer.key != share) fail("another answer");
    return answer.imm != 0;
  }
  // A write of 8 bytes of a share into the other end's memory.
  void name(uint64_t share, uint64_t at) {
    const RemoteMemory remote = need(end.lane->import(end.memory->blob()));
    Frame& frame = put(FrameKind::notify, remote.key);
    frame.place = local::Place::shared;
    frame.length = frame.whole = 8;
    frame.source = at;
    std::memcpy(frame.inlined.data(), &share, sizeof share);
    publish();
  }

  GpuEnd& end;
  ShareSocket socket;
  Nonce nonce{};
  SharedInbox mine, theirs;
  std::unique_ptr<mem::gpu::Driver::Mapped> trial;

 private:
  uint32_t put_ = 0, answers_ = 0;
};

// Lines of this process's mappings that are memory of the software GPU; 0 on any other.
size_t mappings() {
  if (!isSoftwareGpu()) return 0;
  std::ifstream file("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(file, line);)
    count += line.find("softgpu (deleted)") != std::string::npos;
  return count;
}

// Once the thread that maps and frees has done what it was asked for.
size_t mappingsOf(const GpuEnd& end) {
  std::promise<void> reached;
  static_cast<local::LocalDevice&>(*end.device).errands()->ask([&] { reached.set_value(); });
  reached.get_future().wait();
  return mappings();
}

constexpr uint64_t kShare = 77;

// Names the share although it was refused: that ends the lane.
void nameAnyway(RawGpuPeer& peer) {
  peer.name(kShare, 0);
  REQUIRE(peer.end.pollUntil(broken, 1));
  CHECK(contains(peer.end.words, "never shared"));
  CHECK(peer.theirs->owner.error.load() != 0);
}

void refused(const char* what, const std::function<void(RawGpuPeer&)>& announce) {
  CAPTURE(what);
  const size_t before = mappings();
  {
    GpuEnd end(Made::forSharing);
    RawGpuPeer peer(end);
    const size_t standing = mappingsOf(end);
    announce(peer);
    CHECK_FALSE(peer.offer(kShare));
    CHECK(mappingsOf(end) == standing);
    CHECK(end.words.empty());  // the lane goes on without that share
    nameAnyway(peer);
  }
  CHECK(mappings() == before);
}

void taken(const mem::gpu::IpcHandle& handle) {
  const size_t before = mappings();
  {
    GpuEnd end(Made::forSharing);
    RawGpuPeer peer(end);
    peer.announce(kShare, kOwned, kByHandle, Fd(), handle);
    REQUIRE(peer.offer(kShare));
    peer.name(kShare, kOwned - 8);
    REQUIRE(end.pollUntil(notified, 1));
    peer.name(kShare, kOwned - 7);
    REQUIRE(end.pollUntil(broken, 1));
    CHECK(contains(end.words, "past the end"));
  }
  CHECK(mappings() == before);
}

}  // namespace

TEST_CASE("local: GPU memory that a peer names wrongly is refused with words, and nothing stays mapped") {
  skipWithoutDriver();
  Owner owner;
  refused("what was never told of", [](RawGpuPeer&) {});
  refused("a descriptor of other memory", [](RawGpuPeer& peer) {
    const Fd other(::memfd_create("other", MFD_CLOEXEC));
    REQUIRE(::ftruncate(other.get(), 2 * kMiB) == 0);
    peer.announce(kShare, 2 * kMiB, kByDescriptor, other);
  });
  refused("no descriptor", [](RawGpuPeer& peer) { peer.announce(kShare, 2 * kMiB, kByDescriptor, Fd()); });
  refused("a descriptor of less memory", [](RawGpuPeer& peer) {
    peer.announce(kShare, 64 * kMiB, kByDescriptor, need(peer.end.driver->exportShared(peer.trial->data())));
  });
  refused("bytes that are no handle", [](RawGpuPeer& peer) {
    mem::gpu::IpcHandle handle;
    std::fill(std::begin(handle.bytes), std::end(handle.bytes), static_cast<unsigned char>(0x55));
    peer.announce(kShare, kOwned, kByHandle, Fd(), handle);
  });
  refused("a way that nobody knows", [](RawGpuPeer& peer) { peer.announce(kShare, kOwned, 3, Fd()); });
  refused("a handle of this process", [](RawGpuPeer& peer) {
    const auto piece = need(peer.end.driver->allocate(0, kOwned));
    peer.announce(kShare, kOwned, kByHandle, Fd(), need(peer.end.driver->handleOf(0, piece->data())));
  });
  const mem::gpu::IpcHandle handle = owner.handle();
  taken(handle);
  refused("a handle of less memory",
          [&](RawGpuPeer& peer) { peer.announce(kShare, 2 * kOwned, kByHandle, Fd(), handle); });
  owner.freeIt();
  refused("a handle of memory that is freed",
          [&](RawGpuPeer& peer) { peer.announce(kShare, kOwned, kByHandle, Fd(), handle); });
  owner.end();
  refused("a handle of a process that is gone",
          [&](RawGpuPeer& peer) { peer.announce(kShare, kOwned, kByHandle, Fd(), handle); });
}
