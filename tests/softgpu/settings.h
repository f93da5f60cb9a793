// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

namespace softgpu {

// What may be made to go wrong in kernels. Times in microseconds.
struct Faults {
  unsigned slow = 0;  // added to each chunk that a kernel moves
  unsigned late = 0;  // a kernel starts so long after its turn
  unsigned hang = 0;  // the n-th kernel of this process moves nothing until it is aborted; 0: none
};

// Whether memory is handed out as a descriptor for network cards, and what such a descriptor can do.
enum class Dmabuf {
  none,
  opaque,  // as a GPU's: nobody but a card can use it, and there is none
  card,    // a processor may map it: for cards in software
};

// Settings of the software GPU, read once from the environment (README.md lists the variables).
struct Settings {
  unsigned gpus = 1;              // on this machine, before CUDA_VISIBLE_DEVICES
  std::vector<unsigned> visible;  // ordinal -> GPU of the machine
  unsigned major = 8, minor = 0;  // compute capability
  std::vector<std::string> pci;   // address of each GPU
  std::vector<int> numa;          // NUMA node of each GPU, -1: none
  bool gdr = true;                // GPUDirect RDMA
  Dmabuf dmabuf = Dmabuf::opaque;
  bool pcieMapping = false;  // a dma-buf of the mapping over PCIe can be had
  bool ordered = true;       // a NIC's writes are visible to the GPU without a flush
  bool peer = true;          // GPUs reach each other's memory
  unsigned driver = 13000;   // driver API version
  bool waits = false;        // calls that allocate, free and map wait until no kernel runs
  bool strict = false;       // the CPU touches device memory by the driver alone
  size_t memory = size_t{64} << 30;
  Faults faults;
  std::string wrong;  // the variable that was not understood; then there are no GPUs
};

// The settings of this process. Any thread; the first call reads them and says that this is a software GPU.
const Settings& settings();

// Whether the library this is part of says what it is: of those that a process loads, one does.
bool speaks();

}  // namespace softgpu
