// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/control/event_loop.h"
#include "src/control/sockets.h"
#include "src/control/wire.h"

// The frames of one established connection: reading, writing, and noticing its end. Control thread. After
// close() nothing is called any more; the object itself must live until the callback it is in has returned.
namespace weft::control {

class LinkIo {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void linkFrame(const FrameHeader& header, std::span<const std::byte> body) = 0;
    virtual void linkLost(const std::string& why) = 0;      // reset, end, timed out: the peer may be fine
    virtual void linkNonsense(const std::string& why) = 0;  // the peer does not speak our protocol
    virtual void linkRoom() = 0;                            // what was queued is written: more may come
  };

  LinkIo(EventLoop& loop, Owner& owner, Fd socket);
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

  Owner& owner_;
  Fd socket_;
  Watch watch_;
  Bytes in_;
  size_t inEnd_ = 0;  // bytes of in_ that hold data
  Bytes out_;
  size_t written_ = 0;
};

}  // namespace weft::control
