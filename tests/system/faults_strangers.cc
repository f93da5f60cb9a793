// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>
#include <atomic>
#include <string_view>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>

#include "src/base/config.h"
#include "src/base/fd.h"
#include "src/base/net/address.h"
#include "tests/system/driver/process_state.h"
#include "tests/system/driver/program.h"
#include "tests/system/driver/traffic.h"

// Strangers on the listening ports: port scanners, garbage, floods of connections that say nothing, slow
// writers. They get nothing, and the job goes on: traffic under way, and connections made meanwhile.
namespace weft::system {
namespace {

// By whichever address of this host the port is open on.
Fd dial(uint16_t port) {
  const auto interfaces = localInterfaces();
  if (!interfaces) return Fd();
  for (const Interface& interface : *interfaces) {
    const SocketAddress to = interface.address.withPort(port);
    Fd fd(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), to.raw(), to.length) == 0) return fd;
  }
  return Fd();
}

void say(const Fd& fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return;  // it is full or was closed on us: both are fine
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
}

// The attacks, each on one port; what stays open goes into `kept`.
class Stranger {
 public:
  explicit Stranger(Run& run) : run_(run), random_(41) {}

  void attack(uint16_t port) {
    scan(port);
    for (const size_t bytes : {1u, 3u, 16u, 100u, 4096u, 65536u}) garbage(port, bytes);
    speakOtherProtocols(port);
    announceMuch(port);
    for (int i = 0; i < 100; ++i) stay(port);
  }

  // A byte on each connection that is kept: never finishing, never silent.
  void drip() {
    const std::byte one{0x41};
    for (const Fd& fd : kept_) say(fd, {&one, 1});
  }

  void leave() { kept_.clear(); }

 private:
  void scan(uint16_t port) {
    dial(port);
    run_.count("strangers");
  }

  void garbage(uint16_t port, size_t bytes) {
    const Fd fd = dial(port);
    std::vector<std::byte> data(bytes);
    for (auto& b : data) b = static_cast<std::byte>(random_.next());
    say(fd, data);
    run_.count("strangers");
  }

  void speakOtherProtocols(uint16_t port) {
    for (const std::string text :
         {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "\x16\x03\x01\x02\x00"}) {
      const Fd fd = dial(port);
      say(fd, std::as_bytes(std::span(text)));
      run_.count("strangers");
    }
  }

  // Lengths that no one should believe, at every place where a length may stand.
  void announceMuch(uint16_t port) {
    for (size_t at = 0; at < 32; at += 4) {
      std::vector<std::byte> data(64);
      std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(at), 4, std::byte{0xff});
      Fd fd = dial(port);
      say(fd, data);
      kept_.push_back(std::move(fd));
      run_.count("strangers");
    }
  }

  void stay(uint16_t port) {
    kept_.push_back(dial(port));
    run_.count("strangers");
  }

  Run& run_;
  Random random_;
  std::vector<Fd> kept_;
};

void traffic(Run& run, End& end, const Comm& comm, uint64_t seed) {
  for (uint64_t i = 0; i < 50; ++i) sendChecked(run, comm, end.receives(), (i * 3001) % 100000, seed + i);
}

// Ports of the plugin alone: the test's own listener is closed when this is asked. libfabric's are left out,
// as it keeps what it has accepted until a whole request is there.
std::vector<uint16_t> portsOfWeft() {
  std::vector<uint16_t> ports = listeningPorts();
  const char* network = environmentValue("WEFT_PROVIDER");
  const bool libfabric = network != nullptr && std::string_view(network).starts_with("ofi");
  if (libfabric && ports.size() > 1) ports.resize(1);  // the control port is the first
  return ports;
}

// Side 0 is the one that is bothered, by side 1 and by threads of its own.
void strangers(Run& run, End& end) {
  run.expectWarnings();
  const Comm comm = connectOneWay(run, end);
  traffic(run, end, comm, 0);
  const auto ports = portsOfWeft();
  if (end.receives()) run.require(!ports.empty(), "no listening port found to bother");
  const size_t before = descriptors().size();
  Stranger stranger(run);
  for (int round = 0; round < run.scaled(2, 20); ++round) {
    if (end.receives())
      for (const uint16_t port : ports) stranger.attack(port);
    traffic(run, end, comm, 1000);
    stranger.drip();
    // A new connection while a hundred others are open that say nothing.
    const Comm another = connectOneWay(run, end);
    sendChecked(run, another, end.receives(), 30000, 5);
    stranger.leave();
    end.sync();
  }
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(15);
  while (descriptors().size() > before && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  run.expect(descriptors().size() <= before, "descriptors grew from " + std::to_string(before) + " to " +
                                                 std::to_string(descriptors().size()));
  if (end.receives()) run.count("ports", ports.size());
  end.sync();
}

// The port of control links: it opens before any device does.
uint16_t controlPort() {
  const auto ports = listeningPorts();
  return ports.empty() ? uint16_t{0} : ports.front();
}

// The beginning of a hello that could be one, a byte on every connection at a time.
void dripHello(const std::vector<Fd>& connections, size_t byte) {
  constexpr std::array<uint8_t, 8> kHello = {'W', 'F', 'T', 'L', 1, 0, 1, 0};
  const std::byte next{byte < kHello.size() ? kHello[byte] : uint8_t{0}};
  for (const Fd& fd : connections) say(fd, {&next, 1});
}

// Side 1 opens a thousand connections to side 0 at once and writes a hello on each, slower than anyone waits.
void thousand(Run& run, End& end) {
  constexpr size_t kConnections = 1000;
  run.expectWarnings();
  const Comm comm = connectOneWay(run, end);
  traffic(run, end, comm, 0);
  const uint16_t port = end.exchange(controlPort());
  const size_t before = descriptors().size();
  std::vector<Fd> connections;
  if (!end.receives()) {
    run.require(port != 0, "the other side's control port was not found");
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    while (connections.size() < kConnections) connections.push_back(dial(port));
    run.count("connections at once", kConnections);
    const auto open = std::count_if(connections.begin(), connections.end(),
                                    [](const Fd& fd) { return static_cast<bool>(fd); });
    run.expect(open == kConnections, "only " + std::to_string(open) + " connections were made");
  }
  for (size_t byte = 0; byte < 10; ++byte) {
    dripHello(connections, byte);
    traffic(run, end, comm, byte);
    const Comm another = connectOneWay(run, end);
    sendChecked(run, another, end.receives(), 30000, byte);
    end.sync();
  }
  connections.clear();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(15);
  while (descriptors().size() > before && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  run.expect(descriptors().size() <= before, "descriptors grew from " + std::to_string(before) + " to " +
                                                 std::to_string(descriptors().size()));
  end.sync();
}

// A listener whose handle nobody uses, and only strangers come: accept finds nothing.
void onlyStrangers(Run& run, End& end) {
  run.expectWarnings();
  netdriver::Listener listener = run.need(netdriver::listen(end.context(), end.device()));
  const Handle theirs = end.exchange(listener.handle);
  Stranger stranger(run);
  if (end.receives())
    for (const uint16_t port : listeningPorts()) stranger.attack(port);
  for (int i = 0; i < 200; ++i) {
    void* raw = nullptr;
    run.success(end.net().accept(listener.comm.raw(), &raw), Call::accept);
    run.require(raw == nullptr, "a stranger was accepted");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  end.sync();
  const netdriver::Ends ends = run.need(netdriver::connectBoth(end.context(), end.device(), theirs,
                                                               std::move(listener), run.settings().timeout));
  sendChecked(run, end.receives() ? ends.recv : ends.send, end.receives(), 10000, 3);
  end.sync();
}

constexpr Case kCases[] = {
    {.name = "strangers", .pair = &strangers, .processesOnly = true},
    {.name = "thousand", .pair = &thousand, .processesOnly = true},
    {.name = "only-strangers", .pair = &onlyStrangers, .processesOnly = true},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
