// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "src/base/reserve.h"
#include "src/control/contract.h"

// The listeners of this process: the secret that a caller of each has to prove, and the requests that wait to
// be taken. A listener has to be known before its handle is, so the thread that asks for the listener enters
// it. Any thread. The table has a lock and each queue has one; they are never held together.
namespace weft::control {

// The requests of one listener, in the order in which they came.
class ListenerQueue {
 public:
  explicit ListenerQueue(Handle handle) : handle_(std::move(handle)) {}
  const Handle& handle() const { return handle_; }

  bool push(Request request);       // false: the queue is full
  bool push(const Error& failure);  // a connection that failed after its proof
  Result<std::optional<Request>> take();
  void peerDied(const Peer& peer, const Error& reason);  // its waiting requests become that error

 private:
  static constexpr size_t kMaxWaiting = 4096;

  struct Entry {
    Request request;
    Status status;  // an error: a connection that failed after it had proven our secret
  };
  bool enter(Entry entry);

  const Handle handle_;
  std::mutex mutex_;
  std::deque<Entry> waiting_;
};

// The listeners, by number. Numbers are never used twice in a process.
class ListenerTable {
 public:
  std::shared_ptr<ListenerQueue> add(const Incarnation& process, const std::vector<SocketAddress>& addresses);
  std::shared_ptr<ListenerQueue> find(uint32_t id);
  std::vector<std::shared_ptr<ListenerQueue>> all();
  void remove(uint32_t id);
  void clear();

 private:
  std::mutex mutex_;
  uint32_t lastId_ = 0;
  std::map<uint32_t, std::shared_ptr<ListenerQueue>> queues_;
};

// The listener in its user's hands. The destructor calls `closed` once, on the thread that destroys the
// listener.
class ListenerImpl : public Listener {
 public:
  ListenerImpl(std::shared_ptr<ListenerQueue> queue, std::function<void()> closed)
      : queue_(std::move(queue)), closed_(std::move(closed)) {}
  ~ListenerImpl() override {
    const MustNotFail closing;
    closed_();
  }
  const Handle& handle() const override { return queue_->handle(); }
  Result<std::optional<Request>> take() override { return queue_->take(); }

 private:
  const std::shared_ptr<ListenerQueue> queue_;
  const std::function<void()> closed_;
};

}  // namespace weft::control
