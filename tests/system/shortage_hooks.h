// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>

// Makes the n-th call fail that the plugin makes for memory, or that anyone makes for a thread, by taking the
// place of malloc and pthread_create in this program. Descriptors run out by the kernel's own limit. One
// thread arms; any thread is hit.
namespace weft::system {

enum class Resource : uint8_t { memory, descriptors, threads };

const char* resourceName(Resource resource);

// Where the plugin lies, so that its calls are known from those of others. Once after each loading; false: it
// is not mapped.
bool findPluginCode();

// From here on until disarm the n-th request (from 0) fails; of descriptors, all after the n-th.
void arm(Resource resource, uint64_t n);
// True: a request failed, or with descriptors may have.
bool disarm();
// Requests seen since arm.
uint64_t requestsSeen();

}  // namespace weft::system
