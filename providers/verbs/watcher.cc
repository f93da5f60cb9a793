// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/watcher.h"

#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "src/base/process.h"
#include "src/base/reserve.h"

// The thread that reads a card's events.
namespace weft::verbs {

Watcher::~Watcher() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

Status Watcher::start(const Library& library, ibv_context* context, Handler handler) {
  library_ = &library;
  context_ = context;
  handler_ = std::move(handler);
  stop_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  // Reading must not block: where another reader has taken the event, a blocked read could not be stopped.
  const int flags = ::fcntl(context->async_fd, F_GETFL);
  if (!stop_ || flags < 0 || ::fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) < 0)
    return Error(Code::resources, "watching a card", "its event descriptor", errno);
  TRY(thread_, startThread("weft-verbs-evnt", [this] { run(); }));
  return {};
}

void Watcher::run() {
  const MustNotFail nobodyToTell;
  pollfd wait[] = {{context_->async_fd, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  for (;;) {
    if (::poll(wait, 2, -1) < 0 && errno != EINTR) return;
    if (wait[1].revents) return;
    if (wait[0].revents & (POLLERR | POLLNVAL)) return;  // the card was removed
    ibv_async_event event{};
    if (library_->getAsyncEvent(context_, &event) != 0) continue;
    handler_(event);
    library_->ackAsyncEvent(&event);
  }
}

}  // namespace weft::verbs
