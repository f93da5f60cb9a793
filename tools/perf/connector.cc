// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/connector.h"

namespace weft::perf {

namespace {

constexpr Milliseconds kConnectTimeout{60000};

class ConnectRound {
 public:
  ConnectRound(const ConnectRequest& request, int distance)
      : request_(request),
        size_(request.bootstrap->size()),
        ahead_((request.bootstrap->rank() + distance) % size_),
        behind_((request.bootstrap->rank() + size_ - distance) % size_),
        distance_(distance) {}

  // True where any rank has something to do: all of them find the same.
  bool needed() const {
    for (int r = 0; r < size_; ++r)
      if (request_.connects(r, (r + distance_) % size_)) return true;
    return false;
  }

  Status run(Connections* made) {
    const int rank = request_.bootstrap->rank();
    const bool sends = request_.connects(rank, ahead_);
    netdriver::Listener listener;
    if (request_.connects(behind_, rank)) TRY(request_.onThread([&] { return listen(&listener); }));
    TRY(const auto handles, request_.bootstrap->gatherValues(listener.handle));
    const netdriver::Handle* peer = sends ? &handles[static_cast<size_t>(ahead_)] : nullptr;
    return request_.onThread([&] { return connect(peer, std::move(listener), made); });
  }

 private:
  Status listen(netdriver::Listener* listener) const {
    TRY(*listener, netdriver::listen(*request_.context, request_.device));
    return {};
  }

  Status connect(const netdriver::Handle* peer, netdriver::Listener listener, Connections* made) const {
    TRY(netdriver::Ends ends, netdriver::connectEnds(*request_.context, request_.device, peer,
                                                     std::move(listener), kConnectTimeout));
    made->to[static_cast<size_t>(ahead_)] = std::move(ends.send);
    made->from[static_cast<size_t>(behind_)] = std::move(ends.recv);
    return {};
  }

  const ConnectRequest& request_;
  int size_;
  int ahead_;
  int behind_;
  int distance_;
};

}  // namespace

Result<Connections> connectRanks(const ConnectRequest& request) {
  const int size = request.bootstrap->size();
  Connections made;
  made.to.resize(static_cast<size_t>(size));
  made.from.resize(static_cast<size_t>(size));
  for (int distance = 0; distance < size; ++distance) {
    ConnectRound round(request, distance);
    if (round.needed()) TRY(round.run(&made));
  }
  return made;
}

}  // namespace weft::perf
