// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <span>
#include <sys/types.h>
#include <sys/uio.h>

#include "providers/tcp/wire.h"
#include "src/base/crypto/gcm.h"

// A socket whose bytes are sealed, for a stream that sends and receives as if it had the socket itself. On
// the wire are records: the length of what is in it, the bytes encrypted, a tag. What a record brought is
// handed out only when its tag was right. Used by the Queue's thread.
namespace weft::tcp {

constexpr size_t kRecordBytes = 32 << 10;  // most that one record holds

// The keys of a connection's two directions.
struct ChannelKeys {
  Key256 send{};
  Key256 receive{};
};
ChannelKeys channelKeys(const Key256& greetingKey, const Greeting& greeting, bool weDialled);

class SealedChannel {
 public:
  static Result<std::unique_ptr<SealedChannel>> create(const ChannelKeys& keys);
  SealedChannel(std::unique_ptr<GcmSeal> out, std::unique_ptr<GcmSeal> in);

  // As sendmsg(2) and recvmsg(2) with MSG_DONTWAIT, in plain bytes. What was taken may be here still, which
  // pending() says and drain() goes on with. EBADMSG, from then on: bytes came that the other end did not
  // send.
  ssize_t send(int fd, std::span<const iovec> parts);
  ssize_t receive(int fd, std::span<const iovec> parts);
  bool pending() const { return sent_ < sealed_; }
  int drain(int fd);  // 0, or an errno

 private:
  bool seal(size_t bytes);
  ssize_t fill(int fd);
  size_t wholeRecord() const;
  bool openInto(std::byte* to, size_t length);
  bool deliver(std::byte** to, size_t* room, size_t* given);

  std::unique_ptr<GcmSeal> sealOut_, sealIn_;
  Bytes out_;          // sealed, to be sent; grows to the most that one call took
  size_t sealed_ = 0;  // of it, so many bytes are filled, and
  size_t sent_ = 0;    // so many have left
  Bytes plain_;        // of the record that is being made
  Bytes in_;           // from the socket
  size_t inFrom_ = 0, inTo_ = 0;
  Bytes opened_;  // of a record that did not fit where it belongs
  size_t openedFrom_ = 0;
  bool broken_ = false;  // a record did not open, so nobody knows where the next one begins
};

}  // namespace weft::tcp
