// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/out_of_band.h"

#include <algorithm>

#include "src/base/log.h"

// A star of messages with rank 0 at its centre.
namespace weft::coll {

namespace {

Error stopped(const std::string& why) {
  return Error(Code::remote, "setting up a collective group", why);
}

}  // namespace

// Sends in pieces, as a control message has a limit. A text of no bytes is one empty piece.
Status OutOfBand::say(int rank, std::span<const std::byte> data, Patience& patience) {
  do {
    const auto piece = data.first(std::min(data.size(), kPieceBytes));
    TRY(mesh_.pipe(rank)->tell(OutOfBandPiece{false, Bytes(piece.begin(), piece.end())}.encode(), patience));
    data = data.subspan(piece.size());
  } while (!data.empty());
  return {};
}

// Receives the pieces of say(). A size that does not fit is an error: the ranks make different calls.
Status OutOfBand::hear(int rank, std::span<std::byte> data, Patience& patience) {
  do {
    TRY(const Bytes said, mesh_.pipe(rank)->hear(patience));
    TRY(const OutOfBandPiece piece, decodePiece(said));
    if (piece.gaveUp) {
      over_ = true;
      return stopped(format("rank %d gave up", rank));
    }
    if (piece.data.size() != std::min(data.size(), kPieceBytes))
      return stopped(format("rank %d sends %zu bytes where %zu are awaited", rank, piece.data.size(),
                            std::min(data.size(), kPieceBytes)));
    std::copy(piece.data.begin(), piece.data.end(), data.begin());
    data = data.subspan(piece.data.size());
  } while (!data.empty());
  return {};
}

// Rank 0 is the centre: a root that is another rank sends to rank 0 first.
Status OutOfBand::broadcast(std::span<std::byte> data, int root) {
  if (over_) return stopped(kAnotherGaveUp);
  Patience patience(mesh_.clock(), timeout_);
  const int own = mesh_.rank();
  if (own == root && own != 0) return say(0, data, patience);
  if (own != 0) return hear(0, data, patience);
  if (root != 0) TRY(hear(root, data, patience));
  for (int rank = 1; rank < mesh_.ranks(); rank++)
    if (rank != root) TRY(say(rank, data, patience));
  return {};
}

Status OutOfBand::gather(std::span<const std::byte> send, std::span<std::byte> all, int root) {
  if (over_) return stopped(kAnotherGaveUp);
  Patience patience(mesh_.clock(), timeout_);
  if (mesh_.rank() != 0) {
    TRY(say(0, send, patience));
    return mesh_.rank() == root ? hear(0, all, patience) : Status();
  }
  Bytes collected(send.size() * static_cast<size_t>(mesh_.ranks()));
  std::copy(send.begin(), send.end(), collected.begin());
  for (int rank = 1; rank < mesh_.ranks(); rank++) {
    const auto place = std::span(collected).subspan(send.size() * static_cast<size_t>(rank), send.size());
    TRY(hear(rank, place, patience));
  }
  if (root != 0) return say(root, collected, patience);
  std::copy(collected.begin(), collected.end(), all.begin());
  return {};
}

Status OutOfBand::barrier() {
  std::byte nothing{};
  Bytes all(static_cast<size_t>(mesh_.ranks()));
  TRY(gather(std::span(&nothing, 1), all, 0));
  return broadcast(std::span(&nothing, 1), 0);
}

void OutOfBand::giveUp() {
  Patience patience(mesh_.clock(), timeout_);
  const Bytes said = OutOfBandPiece{true, {}}.encode();
  for (int rank = 0; rank < mesh_.ranks(); rank++)
    if (rank != mesh_.rank() && (rank == 0 || mesh_.rank() == 0))
      (void)mesh_.pipe(rank)->tell(said, patience);
}

}  // namespace weft::coll
