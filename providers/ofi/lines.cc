// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/lines.h"

#include "providers/ofi/descriptors.h"
#include "providers/ofi/domain.h"

// The trial of the promise of 128-byte lines.
namespace weft::ofi {

bool promisesLines(const std::shared_ptr<const Library>& library, const Traits& traits, const Nic& nic) {
  if (!traits.canOrderLines || library->version() < kWriteLinesInOrderSince) return false;
  const ClosedOnExec opened;
  auto domain = Domain::open(library, *nic.fabricInfo, false);
  if (!domain) return false;  // the next user of the card gets the reason
  fid_ep* raw = nullptr;
  const int code = fi_endpoint((*domain)->get(), nic.fabricInfo.get(), &raw, nullptr);
  const FidPtr<fid_ep> endpoint(raw);
  return code == 0 && askForLines(raw) == 0;
}

int askForLines(fid_ep* endpoint) {
  const bool on = true;
  return fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, kWriteLinesInOrder, &on, sizeof on);
}

}  // namespace weft::ofi
