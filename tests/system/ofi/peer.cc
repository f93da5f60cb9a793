// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "providers/ofi/transport.h"
#include "tests/system/ofi/peer_wire.h"

// The other process of the two-process tests: opens one lane, tells its address on stdout, learns the test's
// from stdin, and answers every notification with a write of the same bytes, number and place. Ends when
// stdin closes, when its parent dies, or after a minute.
using namespace weft;
using namespace weft::test;

namespace {

constexpr size_t kBytes = 1 << 20;

struct Peer {
  std::unique_ptr<Transport> transport;
  std::shared_ptr<Device> device;
  std::vector<unsigned char> buffer = std::vector<unsigned char>(kBytes);
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Endpoint> lane;
  RemoteMemory remote;
};

Status open(const std::string& provider, Peer* peer) {
  Config config;
  config.socketIfname = "=lo";
  TRY(peer->transport, ofi::makeTransport(provider, config));
  TRY(const auto infos, peer->transport->discover());
  if (infos.empty()) return Error(Code::unavailable, "discovering", provider);
  TRY(peer->device, peer->transport->open(infos.front()));
  MemoryDesc desc;
  desc.address = peer->buffer.data();
  desc.length = peer->buffer.size();
  TRY(peer->memory, peer->device->registerMemory(desc));
  TRY(peer->queue, peer->device->openQueue({}));
  TRY(peer->lane, peer->queue->openEndpoint());
  writeLine(STDOUT_FILENO, peer->lane->address());
  writeLine(STDOUT_FILENO, peer->memory->blob());
  const Bytes address = readLine(STDIN_FILENO);
  const Bytes blob = readLine(STDIN_FILENO);
  TRY(peer->lane->connect(address));
  TRY(peer->remote, peer->lane->import(blob));
  return {};
}

// The place is the notification's number, in units of 64 bytes.
void answer(const Peer& peer, const Completion& notified) {
  Work work;
  work.op = Opcode::writeNotify;
  work.imm = notified.imm;
  work.remoteOffset = static_cast<uint64_t>(notified.imm) * 64 % kBytes;
  work.local = const_cast<unsigned char*>(peer.buffer.data()) + work.remoteOffset;
  work.length = notified.length;
  work.memory = peer.memory.get();
  work.remote = peer.remote;
  work.unsignaled = true;
  while (peer.lane->post(std::span(&work, 1)) == 0) {
    Completion found;
    if (peer.queue->poll(std::span(&found, 1)) == 1 && !found.ok) return;
  }
}

bool parentIsThere() {
  pollfd wait{STDIN_FILENO, POLLIN, 0};
  return ::poll(&wait, 1, 0) == 0;
}

void serve(const Peer& peer) {
  for (uint64_t round = 0; round % 1024 != 0 || parentIsThere(); round++) {
    Completion found[16];
    const size_t n = peer.queue->poll(found);
    for (size_t i = 0; i < n; i++)
      if (found[i].kind == CompletionKind::notified) answer(peer, found[i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::alarm(60);
  Peer peer;
  const Status opened =
      argc == 2 ? open(argv[1], &peer) : Error(Code::invalidArgument, "usage", "ofi_peer NAME");
  if (!opened) {
    fprintf(stderr, "ofi_peer: %s\n", opened.error().message().c_str());
    return 1;
  }
  serve(peer);
  return 0;
}
