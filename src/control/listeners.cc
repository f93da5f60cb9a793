// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/listeners.h"

#include "src/base/random.h"

// The table of listeners, and the queue of each.
namespace weft::control {

bool ListenerQueue::push(Request request) {
  return enter({std::move(request), {}});
}

bool ListenerQueue::push(const Error& failure) {
  return enter({{}, failure});
}

bool ListenerQueue::enter(Entry entry) {
  std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMaxWaiting) return false;
  waiting_.push_back(std::move(entry));
  return true;
}

Result<std::optional<Request>> ListenerQueue::take() {
  std::lock_guard lock(mutex_);
  if (waiting_.empty()) return std::optional<Request>();
  Entry first = std::move(waiting_.front());
  waiting_.pop_front();
  if (!first.status) return first.status.takeError();
  return std::optional<Request>(std::move(first.request));
}

// The request's place in the queue stays, so that the user hears of the lost connection in its turn.
void ListenerQueue::peerDied(const Peer& peer, const Error& reason) {
  std::lock_guard lock(mutex_);
  for (Entry& entry : waiting_) {
    if (entry.request.peer.get() == &peer) entry = Entry{{}, reason};
  }
}

// Every listener has a secret of its own, so that a handle lets its holder reach that listener only.
std::shared_ptr<ListenerQueue> ListenerTable::add(const Incarnation& process,
                                                  const std::vector<SocketAddress>& addresses) {
  Handle handle;
  handle.process = process;
  fillRandom(handle.secret);
  handle.addresses = addresses;
  std::lock_guard lock(mutex_);
  handle.listener = ++lastId_;
  auto queue = std::make_shared<ListenerQueue>(handle);
  queues_[handle.listener] = queue;
  return queue;
}

std::shared_ptr<ListenerQueue> ListenerTable::find(uint32_t id) {
  std::lock_guard lock(mutex_);
  const auto found = queues_.find(id);
  return found == queues_.end() ? nullptr : found->second;
}

// Returns copies, so that no queue's lock is taken while the table's is held.
std::vector<std::shared_ptr<ListenerQueue>> ListenerTable::all() {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<ListenerQueue>> out;
  for (const auto& [id, queue] : queues_) out.push_back(queue);
  return out;
}

void ListenerTable::remove(uint32_t id) {
  std::shared_ptr<ListenerQueue> last;  // destroyed after the lock
  std::lock_guard lock(mutex_);
  const auto found = queues_.find(id);
  if (found == queues_.end()) return;
  last = std::move(found->second);
  queues_.erase(found);
}

void ListenerTable::clear() {
  std::map<uint32_t, std::shared_ptr<ListenerQueue>> last;
  std::lock_guard lock(mutex_);
  last.swap(queues_);
}

}  // namespace weft::control
