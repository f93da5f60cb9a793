// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <string>
#include <variant>

#include "src/base/net/sockets.h"
#include "src/control/event_loop.h"
#include "src/control/kernel_acks.h"
#include "src/control/wire.h"

// The frames of one established connection: reading, writing, and noticing its end. What happens is reported
// as values; after close() nothing is, and the object has to live until the report that it is in has
// returned. Control thread.
namespace weft::control {

// The reports of a connection.
struct FrameCame {
  const FrameHeader& header;
  std::span<const std::byte> body;  // until the report has returned
};
struct ConnectionLost {  // reset, end, timed out: the peer may be fine
  std::string why;
};
struct NonsenseCame {  // the peer does not speak our protocol
  std::string why;
};
struct RoomIsThere {};  // what was queued is written: more may come
using LinkReport = std::variant<FrameCame, ConnectionLost, NonsenseCame, RoomIsThere>;

class LinkIo {
 public:
  using Report = std::function<void(const LinkReport& report)>;

  LinkIo(EventLoop& loop, Fd socket, Report report);
  ~LinkIo() { close(); }
  Status start();
  void close();

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
  void lost(int error);

  const Report report_;
  Fd socket_;
  Watch watch_;
  Bytes in_;
  size_t inEnd_ = 0;  // bytes of in_ that hold data
  Bytes out_;
  size_t written_ = 0;
};

}  // namespace weft::control
