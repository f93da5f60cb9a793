// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

// How a device reaches GPU memory, as a trial registration proved it (ladder.h). A value.
namespace weft::mem {

struct GpuPath {
  bool dmabuf = false;     // by a dma-buf
  bool pcie = false;       //   of the mapping over PCIe, where a GPU has another one too
  bool direct = false;     //   through the card's second function
  bool byAddress = false;  // by its address: a kernel module resolves it
  std::string why;         // neither way works, and why

  bool works() const { return dmabuf || byAddress; }
};

// For a device of several cards: the ways that every card has. Both cards have to use the same mapping and
// the same kind of function.
inline GpuPath both(const GpuPath& a, const GpuPath& b) {
  GpuPath out;
  out.dmabuf = a.dmabuf && b.dmabuf && a.pcie == b.pcie && a.direct == b.direct;
  out.pcie = out.dmabuf && a.pcie;
  out.direct = out.dmabuf && a.direct;
  out.byAddress = a.byAddress && b.byAddress;
  if (!out.works())
    out.why = !a.works() ? a.why : !b.works() ? b.why : "its cards reach it in different ways";
  return out;
}

}  // namespace weft::mem
