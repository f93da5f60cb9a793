// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/doctor/checks.h"

#include "src/base/number.h"

namespace weft::doctor {

namespace {

constexpr Check kChecks[] = {
    openFiles,     lockedMemory,       threads,         sharedMemory,    memoryGroup,
    processors,    processorQuota,     interfacesUp,    sharedAddresses, subnets,
    packetSizes,   linkSpeeds,         ephemeralPorts,  pinnedPorts,     socketBuffers,
    rdmaPorts,     rdmaAddresses,      rdmaCounters,    rdmaAccess,      pcieLinks,
    accessControl, addressTranslation, relaxedOrdering, cardsBesideGpus, weftSettings,
    ncclSettings,  settingsThatFight,  ncclPlugin,      otherPlugins,
};

constexpr Check kJobChecks[] = {pluginIsSet};

std::optional<int64_t> firstNumber(const World& world, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto number = world.settingNumber(name); number && *number > 0) return number;
  return std::nullopt;
}

}  // namespace

std::span<const Check> checks() {
  return kChecks;
}

std::span<const Check> jobChecks() {
  return kJobChecks;
}

// "8(x2)" of Slurm begins with what counts here.
std::optional<int64_t> ranksHere(const World& world) {
  return firstNumber(world, {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                             "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
}

std::optional<int64_t> ranksInAll(const World& world) {
  return firstNumber(world, {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"});
}

}  // namespace weft::doctor
