// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "providers/ofi/library.h"
#include "providers/ofi/names.h"
#include "src/base/config.h"
#include "weft/transport.h"

// Discovery: the offers of a libfabric provider, as a Device for each network card. fi_getinfo takes some
// hundred milliseconds, as it loads and asks every provider; so it runs once and the result is kept. Any
// thread.
namespace weft::ofi {

struct Nic {
  DeviceInfo info;
  std::shared_ptr<fi_info> fabricInfo;  // its domains and endpoints are opened by it
};

struct Catalogue {
  Traits traits;
  std::vector<Nic> nics;
  std::vector<Refusal> refusals;
};

// `name` as traitsOf takes it; empty: the best provider that has a usable card.
Result<Catalogue> discoverNics(const Library& library, const std::string& name, const Config& config);

}  // namespace weft::ofi
