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

// The listeners of this process: whose secret a stranger may prove, and the requests that wait to be taken. A
// listener must be known before its handle is, so it is entered by the thread that asks for it. Any thread;
// one lock for the table, one for each queue, never held together.
namespace weft::control {

class ListenerQueue {
 public:
  explicit ListenerQueue(Handle handle) : handle_(std::move(handle)) {}
  const Handle& handle() const { return handle_; }

  bool push(Request request);  // false: full
  bool push(const Error& failure);
  Result<std::optional<Request>> take();
  void peerDied(const Peer& peer, const Error& reason);  // its waiting requests become that error

 private:
  static constexpr size_t kMaxWaiting = 4096;

  struct Entry {
    Request request;
    Status status;  // an error: of a connection that failed after it proved our secret
  };
  bool enter(Entry entry);

  const Handle handle_;
  std::mutex mutex_;
  std::deque<Entry> waiting_;
};

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

// The listener in its user's hands. `closed` is called once, from the destructor, on the destroying thread.
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
