// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/settings.h"

#include <algorithm>

// The settings within the limits of cards.
namespace weft::verbs {

Settings settingsFrom(const Config& config, bool software, bool ethernet) {
  Settings settings;
  settings.gidIndex = config.ibGidIndex;
  settings.trafficClass = config.ibTrafficClass;
  settings.serviceLevel = static_cast<uint8_t>(std::max(config.ibServiceLevel, 0));
  settings.timeout = static_cast<uint8_t>(std::min(config.ibTimeout, 31));
  settings.retryCount = static_cast<uint8_t>(std::min(config.ibRetryCount, software ? 6 : 7));
  settings.pkeyIndex = static_cast<uint16_t>(config.ibPkeyIndex);
  settings.ece = config.ibEce;
  settings.relaxedOrder = config.ibRelaxedOrdering != 0;
  settings.queuePairs = std::clamp(config.qpsPerConnection, 1, static_cast<int>(LaneAddress::kMostPairs));
  const bool apart = config.ibAdaptiveRouting < 0 ? !ethernet : config.ibAdaptiveRouting != 0;
  settings.apart = apart ? Apart::ifWanted : Apart::never;
  settings.apartAbove = static_cast<uint32_t>(config.ibAdaptiveMinBytes);
  settings.connectTimeout = config.connectTimeout;
  settings.closeTimeout = config.closeTimeout;
  return settings;
}

// 4.096 us times 2 to the power of the setting for each try (ibv_modify_qp(3)).
CardRetries retriesWith(const Settings& settings) {
  if (settings.timeout == 0) return {};
  const std::chrono::nanoseconds once{int64_t{4096} << settings.timeout};
  const auto first = std::chrono::ceil<Milliseconds>(once);
  return {first, std::chrono::ceil<Milliseconds>(once * (settings.retryCount + 1))};
}

}  // namespace weft::verbs
