// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>

#include "tools/doctor/finding.h"
#include "tools/doctor/world.h"
#include "tools/info/survey.h"

// Every check of one host, each a function of a world. A check says what is fine, too, so that its reader
// knows what was looked at, and says that it could not look where it could not. Any thread.
namespace weft::doctor {

// --- limits.cc
Findings openFiles(const World& world);
Findings lockedMemory(const World& world);
Findings threads(const World& world);
// --- memory.cc
Findings sharedMemory(const World& world);
Findings memoryGroup(const World& world);
Findings processors(const World& world);
Findings processorQuota(const World& world);
// --- interfaces.cc
Findings interfacesUp(const World& world);
Findings sharedAddresses(const World& world);
Findings subnets(const World& world);
Findings packetSizes(const World& world);
Findings linkSpeeds(const World& world);
// --- ports.cc
Findings ephemeralPorts(const World& world);
Findings pinnedPorts(const World& world);
Findings socketBuffers(const World& world);
// --- rdma.cc
Findings rdmaPorts(const World& world);
Findings rdmaAddresses(const World& world);
Findings rdmaCounters(const World& world);
Findings rdmaAccess(const World& world);
// --- pcie.cc
Findings pcieLinks(const World& world);
Findings accessControl(const World& world);
Findings addressTranslation(const World& world);
Findings relaxedOrdering(const World& world);
// --- gpu.cc
Findings cardsBesideGpus(const World& world);
Findings fabric(const info::Survey& survey);
Findings gpuDirect(const info::Survey& survey);
// --- settings.cc
Findings weftSettings(const World& world);
Findings ncclSettings(const World& world);
Findings settingsThatFight(const World& world);
// --- libraries.cc
Findings otherPlugins(const World& world);
Findings ncclPlugin(const World& world);   // the plugin that a setting names; nothing where none does
Findings pluginIsSet(const World& world);  // of a job: nothing where it is

// All of those that need nothing but the world, in the order of their report.
using Check = Findings (*)(const World& world);
std::span<const Check> checks();
// Those of what the environment of a job must have; whoever looks at a host alone has another environment.
std::span<const Check> jobChecks();

// How many ranks run on this host and in the whole job, by the launcher's variables; nothing where none says.
std::optional<int64_t> ranksHere(const World& world);
std::optional<int64_t> ranksInAll(const World& world);

}  // namespace weft::doctor
