// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "tests/softefa/identity.h"

namespace softefa {

// Programs look below /sys for a card's driver, PCI address and NUMA node. This makes a private tree with the
// part of it that they read, below the fabric's directory, and returns its root; empty when it cannot.
// The tree stays: it is a few small files, the same for every process of the host.
std::string makeSysfs(const Settings& settings, const std::vector<Identity>& nics);

// Folder of an RDMA device in that tree.
std::string devicePath(const std::string& root, const Identity& nic);

// Folder of everything that belongs to the fabric, made when absent; empty when it cannot be made.
std::string fabricDirectory(const Settings& settings);

}  // namespace softefa
