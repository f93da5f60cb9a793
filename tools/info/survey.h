// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/core/net.h"
#include "weft/transport.h"

// The fabrics that this machine offers, gathered once: every provider weft would try, the one it takes, and
// what NCCL would be told about its devices. Plain values; one thread.
namespace weft::info {

struct Versions {
  std::string weft;
  std::string fabric;  // libfabric; empty: none found
  std::string kernel;
  std::string glibc;
};

// A provider asked on its own.
struct ProviderSurvey {
  std::string spec;     // as WEFT_PROVIDER names it
  std::string version;  // of the library behind it
  std::vector<DeviceInfo> devices;
  std::vector<Refusal> refusals;  // what it saw and did not use
  std::string failure;            // why there is nothing; empty when there are devices
};

struct Survey {
  Versions versions;
  std::vector<ProviderSurvey> providers;     // in the order weft tries them; the named one first
  bool named = false;                        // WEFT_PROVIDER decides
  std::string taken;                         // the fabric's name; empty: nothing can be used
  std::string takenSpec;                     // which of the providers it came from
  std::string failure;                       // why, when nothing is taken
  std::vector<core::Properties> properties;  // by NCCL's device number
  std::string gpuDriver;                     // its version; empty: none
  std::string noGpuDriver;                   // why
  std::string gdrMode;                       // WEFT_GDR
  std::vector<mem::GdrVerdict> gpuDirect;    // each card with each GPU; with none where it takes none
};

Survey survey(const Config& config);

}  // namespace weft::info
