// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/links.h"

#include <unistd.h>

namespace softefa {

Inbox* Links::find(const Gid& to, uint32_t qpn) {
  const uint32_t number = inboxOf(qpn);
  auto& known = inboxes_[{to, number}];
  if (known && known->closed()) known.reset();
  if (!known) known = Inbox::peer(folderOf(to), number);
  if (known && known->closed()) known.reset();
  return known.get();
}

Links::Sent Links::put(const Gid& to, uint32_t qpn, const PacketHeader& header,
                       std::span<const Piece> payload) {
  Inbox* const inbox = find(to, qpn);
  if (inbox) return inbox->put(header, payload) ? Sent::yes : Sent::full;
  return ::access(folderOf(to).c_str(), F_OK) == 0 ? Sent::noInbox : Sent::noHost;
}

bool Links::answers(const Gid& to, uint32_t qpn) {
  const Inbox* const inbox = find(to, qpn);
  return inbox && inbox->ownerAnswers();
}

}  // namespace softefa
