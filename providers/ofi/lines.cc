// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/lines.h"

#include <optional>

#include "providers/ofi/descriptors.h"
#include "providers/ofi/domain.h"
#include "src/base/log.h"

// The trial of a card.
namespace weft::ofi {

namespace {

// Empty: the fabric does not say, and then each card is tried.
std::string kindOf(const fi_info& info) {
  const fi_device_attr* card = info.nic ? info.nic->device_attr : nullptr;
  const auto text = [](const char* from) { return std::string(from ? from : "") + "|"; };
  if (!card || !card->device_id) return {};
  return text(card->vendor_id) + text(card->device_id) + text(card->device_version) + text(card->firmware);
}

// Empty: the library does not know the question.
std::string whoDoes(const char* what, fid_ep* endpoint, int question) {
  bool emulated = false;
  size_t bytes = sizeof emulated;
  if (fi_getopt(&endpoint->fid, FI_OPT_ENDPOINT, question, &emulated, &bytes) != 0) return {};
  return format("%s by %s; ", what, emulated ? "libfabric" : "the card");
}

// Nothing: the card cannot be opened, and its next user gets the reason.
std::optional<CardTrial> tryOut(const std::shared_ptr<const Library>& library, const Nic& nic) {
  const ClosedOnExec opened;
  auto domain = Domain::open(library, *nic.fabricInfo, false);
  if (!domain) return {};
  fid_ep* raw = nullptr;
  const int code = fi_endpoint((*domain)->get(), nic.fabricInfo.get(), &raw, nullptr);
  const FidPtr<fid_ep> endpoint(raw);
  if (code != 0) return {};
  CardTrial seen;
  seen.promisesLines = askForLines(raw) == 0;
  seen.abilities = whoDoes("RDMA read", raw, kEmulatedRead) + whoDoes("RDMA write", raw, kEmulatedWrite) +
                   nic.info.abilities;
  return seen;
}

}  // namespace

CardTrial CardTrials::of(const std::shared_ptr<const Library>& library, const Traits& traits,
                         const Nic& nic) {
  if (!traits.canOrderLines || library->version() < kWriteLinesInOrderSince) return {};
  const std::string kind = kindOf(*nic.fabricInfo);
  if (const auto known = known_.find(kind); known != known_.end()) return known->second;
  const auto seen = tryOut(library, nic);
  if (seen && !kind.empty()) known_[kind] = *seen;
  return seen.value_or(CardTrial{});
}

int askForLines(fid_ep* endpoint) {
  const bool on = true;
  return fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, kWriteLinesInOrder, &on, sizeof on);
}

}  // namespace weft::ofi
