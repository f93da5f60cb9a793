// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
// The other process of control_process_test: a hub with one listener. It prints its handle in hexadecimal,
// answers every call, sends every message back, and ends when its standard input does.
//   control_peer IFNAME [KERNEL_TIMEOUT]
#include <cstdio>
#include <poll.h>
#include <string>
#include <unistd.h>

#include "src/control/hub.h"

using namespace weft;
using namespace weft::control;

namespace {

class Echo : public Handler {
 public:
  void onMessage(const PeerRef& peer, uint16_t type, std::span<const std::byte> body) override {
    peer->send(type, Bytes(body.begin(), body.end()));
  }
  void onPeerDead(const PeerRef&, const Error&) override {}
  Milliseconds onTick(TimePoint) override { return Milliseconds(60000); }
};

void printHandle(const Handle& handle) {
  std::array<std::byte, kHandleBytes> raw{};
  handle.encode(raw);
  for (const std::byte byte : raw) printf("%02x", static_cast<unsigned>(byte));
  printf("\n");
  fflush(stdout);
}

bool inputOpen() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, 5) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  HubOptions options;
  options.config.socketIfname = argc > 1 ? argv[1] : "=lo";
  if (argc > 2) options.config.kernelTimeout = Milliseconds(std::stoi(argv[2]));
  options.fingerprint = {{"plugin", "test", true}};
  options.handler = std::make_shared<Echo>();
  auto hub = Hub::create(std::move(options));
  if (!hub) {
    fprintf(stderr, "control_peer: %s\n", hub.error().message().c_str());
    return 1;
  }
  auto listener = (*hub)->listen();
  if (!listener) return 1;
  printHandle((*listener)->handle());
  while (inputOpen()) {
    auto request = (*listener)->take();
    if (request && *request) (*hub)->reply(**request, {});
  }
  return 0;
}
