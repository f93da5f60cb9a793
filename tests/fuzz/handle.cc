// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/handle.h"

#include <algorithm>
#include <array>

#include "tests/fuzz/target.h"

// NCCL's 128 bytes, as any process may hand them to us.
using namespace weft;
using control::Handle;
using control::kHandleBytes;

namespace {

using Raw = std::array<std::byte, kHandleBytes>;

Raw encoded(const Handle& handle) {
  Raw raw{};
  handle.encode(raw);
  return raw;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Raw raw{};
  const auto bytes = fuzz::bytesOf(data, std::min(size, raw.size()));
  std::copy(bytes.begin(), bytes.end(), raw.begin());
  const auto handle = Handle::decode(raw);
  if (!handle) {
    fuzz::demand(!handle.error().message().empty(), "a refusal says why");
    return 0;
  }
  const auto again = Handle::decode(encoded(*handle));
  fuzz::demand(static_cast<bool>(again), "what was decoded can be encoded and decoded");
  fuzz::demand(again->listener == handle->listener && again->secret == handle->secret &&
                   again->addresses.size() == handle->addresses.size(),
               "and stays the same");
  for (const auto& address : handle->addresses) (void)address.text();
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  Handle handle;
  handle.listener = 7;
  handle.secret.fill(std::byte{0x5a});
  std::vector<Input> inputs;
  for (const int family : {AF_INET, AF_INET6}) {
    handle.addresses.push_back(SocketAddress::any(family, 4711));
    const Raw raw = encoded(handle);
    inputs.emplace_back(raw.begin(), raw.end());
  }
  return inputs;
}
