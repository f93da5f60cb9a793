// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// usage: softefa-peer
// Host "b" in a process of its own: says where it is (GID, queue pair, key, memory), grants every receive,
// and lives until its input ends or it is killed.
#include <cstdio>
#include <unistd.h>

#include "tests/softefa/check/node.h"

using namespace softefa::check;

int main() {
  Options options;
  options.unsolicited = true;
  Node node("b", options);
  const auto memory = node.memory(1 << 20);
  Node host("a");  // for its GID alone: the other end's first NIC
  node.handleFor(host.gid());
  for (uint64_t i = 0; i < 64; ++i) node.receive(i, memory->piece(0, 4096));
  const ibv_gid gid = node.gid();
  for (const uint8_t byte : gid.raw) std::printf("%02x", byte);
  std::printf(" %u %u %u %llu\n", node.qp->qp_num, node.qkey, memory->mr->rkey,
              static_cast<unsigned long long>(memory->address()));
  std::fflush(stdout);
  char byte = 0;
  return ::read(STDIN_FILENO, &byte, 1) < 0 ? 1 : 0;
}
