// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cerrno>
#include <memory>
#include <sys/socket.h>

#include "providers/tcp/sealed_channel.h"
#include "src/base/fd.h"
#include "tests/fuzz/target.h"

// The records of a sealed connection of the tcp provider, cut anywhere: of strangers, changed on their way,
// and, as a seal lets no input through, of a seal that opens everything.
using namespace weft;
using namespace weft::tcp;

namespace {

enum Kind : uint8_t { stranger, changed, opened, kinds };

// Takes all for the next record, and leaves it as it is.
class NoSeal final : public GcmSeal {
 public:
  bool close(std::span<const std::byte> from, std::byte* to, std::span<std::byte, kSealBytes>) override {
    std::copy(from.begin(), from.end(), to);
    return true;
  }
  bool open(std::span<const std::byte> from, std::byte* to, std::span<const std::byte, kSealBytes>) override {
    std::copy(from.begin(), from.end(), to);
    return true;
  }
};

// How the bytes come, and how much room there is for what is in them.
struct Cut {
  size_t step = 1;
  size_t room = 1;
};

struct Taken {
  Bytes bytes;
  bool broken = false;
};

class Ends {
 public:
  Ends() {
    int ends[2];
    fuzz::demand(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "there are sockets");
    near_.reset(ends[0]);
    far_.reset(ends[1]);
  }
  int near() const { return near_.get(); }
  int far() const { return far_.get(); }

 private:
  Fd near_, far_;
};

// All that the channel has now. After the first byte that the other end did not send there is nothing more.
void take(SealedChannel& channel, int fd, size_t room, Taken* taken) {
  while (!taken->broken) {
    Bytes into(room);
    const size_t half = room / 2;
    const iovec parts[2] = {{into.data(), half}, {into.data() + half, room - half}};
    const ssize_t got = channel.receive(fd, parts);
    if (got < 0 && errno == EAGAIN) return;
    if (got < 0) {
      fuzz::demand(errno == EBADMSG, "a record that is none ends the channel");
      fuzz::demand(channel.receive(fd, parts) < 0 && errno == EBADMSG, "and the channel stays ended");
      taken->broken = true;
      return;
    }
    fuzz::demand(got > 0 && static_cast<size_t>(got) <= room, "no more comes than there is room for");
    taken->bytes.insert(taken->bytes.end(), into.begin(), into.begin() + got);
  }
}

Taken feed(SealedChannel& channel, const Bytes& wire, Cut cut) {
  const Ends ends;
  Taken taken;
  for (size_t at = 0; at < wire.size() && !taken.broken; at += cut.step) {
    const size_t length = std::min(cut.step, wire.size() - at);
    if (::send(ends.near(), wire.data() + at, length, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) break;
    take(channel, ends.far(), cut.room, &taken);
  }
  return taken;
}

// What the other end puts on the wire for this.
Bytes sealed(SealedChannel& channel, Bytes plain, size_t step) {
  const Ends ends;
  Bytes wire, part(64 << 10);
  for (size_t at = 0; at < plain.size(); at += step) {
    const iovec one{plain.data() + at, std::min(step, plain.size() - at)};
    fuzz::demand(channel.send(ends.near(), {&one, 1}) == static_cast<ssize_t>(one.iov_len), "all is taken");
    for (ssize_t got = 1; got > 0 || channel.pending();) {
      got = ::recv(ends.far(), part.data(), part.size(), MSG_DONTWAIT);
      if (got > 0) wire.insert(wire.end(), part.begin(), part.begin() + got);
      (void)channel.drain(ends.near());
    }
  }
  return wire;
}

bool begins(const Bytes& whole, const Bytes& part) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

// Both ends of a connection, or none on a host without AES-GCM.
std::unique_ptr<SealedChannel> channelOf(bool dials) {
  auto made = SealedChannel::create(channelKeys({}, {}, dials));
  return made ? made.take() : nullptr;
}

void tryStranger(const Bytes& wire, Cut cut) {
  const auto channel = channelOf(true);
  if (channel) fuzz::demand(feed(*channel, wire, cut).bytes.empty(), "a stranger's bytes are no message");
}

// The first bytes say how often the others are sent, and which byte of the wire is changed; beyond its end,
// none is.
void tryChanged(std::span<const std::byte> input, Cut cut) {
  ByteReader reader(input);
  const auto times = 1u + reader.get<uint8_t>() % 16;
  const auto at = reader.get<uint32_t>();
  const auto text = reader.raw(reader.left());
  const auto here = channelOf(true), there = channelOf(false);
  if (!here || text.empty()) return;
  Bytes plain;
  for (unsigned i = 0; i < times; i++) plain.insert(plain.end(), text.begin(), text.end());
  Bytes wire = sealed(*here, plain, cut.step);
  const bool changes = at < wire.size();
  if (changes) wire[at] ^= static_cast<std::byte>(1u << at % 8);
  const Taken taken = feed(*there, wire, cut);
  fuzz::demand(begins(plain, taken.bytes), "only what was sent is handed out");
  fuzz::demand((taken.bytes.size() == plain.size()) != changes, "all of it, unless it was changed");
}

// What is in records that all open, up to the first whose length cannot be.
Taken inside(const Bytes& wire) {
  Taken found;
  for (size_t at = 0; wire.size() - at >= sizeof(uint32_t);) {
    const auto length = ByteReader(std::span(wire).subspan(at)).get<uint32_t>();
    const size_t end = at + sizeof length + std::min<size_t>(length, kRecordBytes) + kSealBytes;
    if (wire.size() < end) break;
    found.broken = length == 0 || length > kRecordBytes;
    if (found.broken) break;
    const auto text = std::span(wire).subspan(at + sizeof length, length);
    found.bytes.insert(found.bytes.end(), text.begin(), text.end());
    at = end;
  }
  return found;
}

void tryOpened(const Bytes& wire, Cut cut) {
  SealedChannel channel(std::make_unique<NoSeal>(), std::make_unique<NoSeal>());
  const Taken taken = feed(channel, wire, cut), expected = inside(wire);
  fuzz::demand(taken.broken == expected.broken, "a length that cannot be ends the channel, and no other");
  fuzz::demand(begins(expected.bytes, taken.bytes), "what is in records is handed out in its order");
  fuzz::demand(taken.broken || taken.bytes.size() == expected.bytes.size(), "and nothing is left out");
}

size_t stepOf(std::byte said) {
  const auto number = std::to_integer<size_t>(said);
  return number < 192 ? 1 + number : (number - 191) << 10;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const auto input = fuzz::bytesOf(data, size);
  const Cut cut{stepOf(input[1]), stepOf(input[2])};
  const auto body = input.subspan(3);
  switch (data[0] % kinds) {
    case stranger:
      tryStranger(Bytes(body.begin(), body.end()), cut);
      break;
    case changed:
      tryChanged(body, cut);
      break;
    default:
      tryOpened(Bytes(body.begin(), body.end()), cut);
  }
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  const auto record = [](uint32_t length, size_t bytes) {
    return ByteWriter().put(length).raw(Bytes(bytes, std::byte{0x31})).raw(Bytes(kSealBytes)).take();
  };
  const auto cut = [](uint8_t step, uint8_t room, const Bytes& bytes) {
    return ByteWriter().put(step).put(room).raw(bytes).take();
  };
  const auto change = [](uint8_t times, uint32_t at, size_t bytes) {
    return ByteWriter().put(times).put(at).raw(Bytes(bytes, std::byte{0x32})).take();
  };
  Bytes two = record(1, 1);
  const Bytes longer = record(600, 600);
  two.insert(two.end(), longer.begin(), longer.end());
  return {choose(stranger, cut(30, 30, record(40, 40))),
          choose(changed, cut(20, 7, change(2, UINT32_MAX, 100))),
          choose(changed, cut(255, 255, change(15, UINT32_MAX, 3000))),
          choose(changed, cut(250, 199, change(15, 33'000, 3000))),
          choose(changed, cut(100, 100, change(0, 5, 100))),
          choose(opened, cut(9, 40, two)),
          choose(opened, cut(255, 199, two)),
          choose(opened, cut(255, 20, record(0, 1))),
          choose(opened, cut(40, 255, record(kRecordBytes + 1, 100)))};
}
