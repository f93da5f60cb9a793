// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <string>
#include <variant>

#include "src/base/net/sockets.h"
#include "src/control/event_loop.h"
#include "src/control/frame_seal.h"
#include "src/control/kernel_acks.h"
#include "src/control/wire.h"

// The frames of an established connection: reading, writing, and noticing its end. Events are reported as
// values; after close() there is no report. The object has to live until the report that it is in has
// returned. A Link owns it. Control thread.
namespace weft::control {

// The reports of a connection.
struct FrameCame {
  const FrameHeader& header;
  std::span<const std::byte> body;  // valid until the report has returned
};
struct ConnectionLost {  // reset, end, time-out, or bytes of somebody else: the peer may be fine
  std::string why;
  bool bySign;  // the other kernel ended it; else ours gave up, which is no sign of the other host
};
// Of the error that a connection ends with; 0: its end was read.
bool isSignOfHost(int error);
struct NonsenseCame {  // the peer does not keep our protocol
  std::string why;
};
struct RoomIsThere {};  // everything queued is written: more may come
using LinkReport = std::variant<FrameCame, ConnectionLost, NonsenseCame, RoomIsThere>;

class LinkIo {
 public:
  using Report = std::function<void(const LinkReport& report)>;

  LinkIo(EventLoop& loop, SealedSocket socket, Report report);
  ~LinkIo() { close(); }
  Status start();
  void close();

  // Queues a frame; flush() writes.
  void write(const FrameHeader& header, std::span<const std::byte> body);
  void flush();
  size_t queued() const { return out_.size() - written_; }
  void endWriting();  // tells the peer's kernel that nothing follows
  std::optional<KernelAcks> acks() const { return kernelAcks(socket_.get()); }
  bool closed() const { return !socket_; }

 private:
  void onEvent(uint32_t events);
  void readFrames();
  bool parse();
  bool handOver(std::span<std::byte> record);
  bool refuse(const char* what);
  void lost(int error);

  const Report report_;
  Fd socket_;
  FrameSeal seal_;
  Watch watch_;
  Bytes in_;          // grows to the longest frame that came
  size_t inEnd_ = 0;  // bytes at the front of in_ that hold data
  Bytes out_;
  size_t written_ = 0;  // bytes at the front of out_ that the socket has taken
};

}  // namespace weft::control
