// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <sched.h>
#include <string>
#include <vector>

#include "providers/tcp/transport.h"
#include "src/control/hub.h"

// What protection costs: a first message to a peer, a message on a link that stands, and bytes of a lane over
// tcp, each with WEFT_ENCRYPT=off, control and all, in turn. Both ends are in this process; a lane's two ends
// share one thread, which keeps to one processor.
//
//   protection-cost [SECONDS]
namespace weft {

namespace {

using Time = std::chrono::steady_clock;

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "protection-cost: %s\n", why.c_str());
  std::exit(1);
}

template <class T>
T must(Result<T> result) {
  if (!result) die(result.error().message());
  return result.take();
}

double secondsSince(Time::time_point start) {
  return std::chrono::duration<double>(Time::now() - start).count();
}

double processorSeconds() {
  timespec used{};
  (void)::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

Config configWith(const std::string& encrypt) {
  Config config;
  config.socketIfname = "=lo";
  config.encrypt = encrypt;
  config.tcpStreams = 1;
  return config;
}

class Echo : public control::Handler {
 public:
  void onMessage(const control::PeerRef& peer, uint16_t type, std::span<const std::byte> body) override {
    count++;
    if (answers) peer->send(type, Bytes(body.begin(), body.end()));
  }
  void onPeerDead(const control::PeerRef&, const Error&) override {}
  Milliseconds onTick(TimePoint) override { return Milliseconds(1000); }
  std::atomic<uint64_t> count{0};
  bool answers = false;
};

struct Side {
  explicit Side(const std::string& encrypt) {
    control::HubOptions options;
    options.config = configWith(encrypt);
    options.handler = echo;
    hub = must(control::Hub::create(std::move(options)));
  }
  std::shared_ptr<Echo> echo = std::make_shared<Echo>();
  std::shared_ptr<control::Hub> hub;
};

control::PeerRef call(Side& from, Side& to, control::Listener& listener) {
  auto asked = from.hub->call(listener.handle(), Bytes(8));
  while (asked->state() == control::Call::State::pending) {
    auto taken = must(listener.take());
    if (taken) to.hub->reply(*taken, Bytes(8));
    from.hub->runInline();
    to.hub->runInline();
  }
  if (asked->state() == control::Call::State::failed) die(asked->error().message());
  return asked->peer();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Microseconds from a call to its reply, with a new link each time: the median.
double firstMessage(const std::string& encrypt) {
  Side to(encrypt);
  auto listener = must(to.hub->listen());
  std::vector<double> times;
  for (int i = 0; i < 200; i++) {
    Side from(encrypt);
    const auto start = Time::now();
    (void)call(from, to, *listener);
    times.push_back(secondsSince(start) * 1e6);
  }
  return median(times);
}

// Microseconds of a message of 64 bytes and its answer on a link that stands: the median.
double message(const std::string& encrypt, size_t bytes) {
  Side from(encrypt), to(encrypt);
  to.echo->answers = true;
  auto listener = must(to.hub->listen());
  const auto peer = call(from, to, *listener);
  std::vector<double> times;
  for (uint64_t i = 1; i <= 5000; i++) {
    const auto start = Time::now();
    peer->send(16, Bytes(bytes));
    while (from.echo->count < i) {
      from.hub->runInline();
      to.hub->runInline();
    }
    times.push_back(secondsSince(start) * 1e6);
  }
  return median(times);
}

// An end of a lane with memory.
struct LaneEnd {
  LaneEnd(Transport& transport, size_t bytes) : buffer(bytes, std::byte{3}) {
    device = must(transport.open(must(transport.discover()).front()));
    queue = must(device->openQueue({}));
    lane = must(queue->openEndpoint());
    MemoryDesc desc;
    desc.address = buffer.data();
    desc.length = bytes;
    memory = must(device->registerMemory(desc));
  }
  size_t poll() {
    std::array<Completion, 16> out;
    size_t notified = 0;
    for (size_t i = 0, n = queue->poll(out); i < n; i++) {
      if (!out[i].ok) die(queue->explain(out[i]));
      stands = stands || out[i].kind == CompletionKind::connected;
      notified += out[i].kind == CompletionKind::notified ? 1 : 0;
    }
    return notified;
  }
  std::vector<std::byte> buffer;
  std::shared_ptr<Device> device;
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Endpoint> lane;
  std::unique_ptr<Memory> memory;
  bool stands = false;
};

// GB of writes of so many bytes, two of them at a time, for each second of the processor.
double laneRate(const std::string& encrypt, size_t bytes, double seconds) {
  auto transport = tcp::makeTransport(configWith(encrypt), Clock::system());
  LaneEnd a(*transport, bytes), b(*transport, bytes);
  if (!a.lane->connect(b.lane->address()) || !b.lane->connect(a.lane->address())) die("no lane");
  while (!a.stands || !b.stands) (void)(a.poll() + b.poll());
  Work work;
  work.op = Opcode::writeNotify;
  work.local = a.buffer.data();
  work.length = bytes;
  work.memory = a.memory.get();
  work.remote = must(a.lane->import(b.memory->blob()));
  size_t posted = 0, landed = 0;
  const auto start = Time::now();
  const double used = processorSeconds();
  while (secondsSince(start) < seconds) {
    if (posted < landed + 2) posted += a.lane->post({&work, 1});
    (void)a.poll();
    landed += b.poll();
  }
  return static_cast<double>(landed * bytes) / (processorSeconds() - used) / 1e9;
}

void keepToOneProcessor() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(0, &set);
  (void)::sched_setaffinity(0, sizeof set, &set);
}

}  // namespace

}  // namespace weft

int main(int argc, char** argv) {
  using namespace weft;
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  for (const char* encrypt : {"off", "control", "off", "control"}) {
    std::printf("%-8s first message %7.1f us, message of 64 bytes and answer %6.1f us, of 16 KiB %6.1f us\n",
                encrypt, firstMessage(encrypt), message(encrypt, 64), message(encrypt, 16384));
  }
  keepToOneProcessor();
  for (const size_t bytes : {size_t{64}, size_t{8192}, size_t{1} << 20}) {
    for (const char* encrypt : {"control", "all", "control", "all"})
      std::printf("%-8s lane, writes of %8zu bytes, both ends on one processor: %7.3f GB/s\n", encrypt, bytes,
                  laneRate(encrypt, bytes, seconds));
  }
  return 0;
}
