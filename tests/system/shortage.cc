// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <thread>

#include "tests/system/driver/process_state.h"
#include "tests/system/driver/program.h"
#include "tests/system/driver/traffic.h"
#include "tests/system/shortage_hooks.h"

// Memory, descriptors and threads run out in the middle of making a connection, at each place where one is
// asked for: the n-th request fails, for n from 0 until none is left to fail. Each time there is an error or
// success, soon; nothing stays behind; a connection that stood before goes on, and the next one can be made.
namespace weft::system {
namespace {

using Clock = std::chrono::steady_clock;
using netdriver::Side;

constexpr Milliseconds kHang{8000};      // whoever lacks something must know by then
constexpr Milliseconds kCourtesy{300};   // how long the other side waits for one that may have failed
constexpr uint64_t kMostSteps = 20'000;  // a sweep that does not end is a failure
constexpr size_t kBytes = 20'000;

bool bad(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

// Everything one side makes for a connection, as far as it got.
struct Half {
  std::optional<Context> context;
  netdriver::Listener listener;
  Comm comm;
  Memory memory;
  bool failed = false;
};  // given back from the bottom up

// Repeats a call until it gives something, fails, or the time is up, which for whoever lacks something is a
// failure of the test.
template <class Poll>
void* poll(Run& run, Half& half, bool victim, const char* what, Poll call) {
  void* result = nullptr;
  const auto end = Clock::now() + (victim ? kHang : kCourtesy);
  while (result == nullptr && !half.failed) {
    half.failed = bad(call(&result));
    if (Clock::now() > end) {
      run.expect(!victim, std::string(what) + " neither failed nor succeeded");
      half.failed = true;
    }
    std::this_thread::yield();
  }
  return half.failed ? nullptr : result;
}

class Attempt {
 public:
  Attempt(Run& run, End& end, bool victim) : run_(run), end_(end), victim_(victim) {}

  // Side 0 listens and receives, side 1 connects and sends. True: both sides got through.
  bool make() {
    open();
    connect();
    if (both()) exchangeMessage();
    return both();
  }

  void close() { half_.reset(); }

 private:
  // Both sides are well; said at fixed places, so that they stay in step.
  bool both() {
    const auto mine = static_cast<uint8_t>(half_->failed ? 0 : 1);
    return end_.exchange(mine) != 0 && mine != 0;
  }

  void open() {
    if (auto made = Context::create(end_.net(), 7)) {
      half_->context.emplace(made.take());
    } else {
      half_->failed = true;
    }
    if (half_->failed || !end_.receives()) return;
    if (auto made = netdriver::listen(*half_->context, 0)) {
      half_->listener = made.take();
    } else {
      half_->failed = true;
    }
  }

  void connect() {
    Handle handle = end_.exchange(half_->listener.handle);
    if (!both()) {
      half_->failed = true;
      return;
    }
    Net& net = end_.net();
    const auto call = [&](void** out) {
      return end_.receives() ? net.accept(half_->listener.comm.raw(), out)
                             : net.connect(half_->context->raw(), 0, handle.data(), out);
    };
    void* raw = poll(run_, *half_, victim_, end_.receives() ? "accept" : "connect", call);
    half_->comm = Comm(net, end_.receives() ? Side::recv : Side::send, raw);
  }

  void exchangeMessage() {
    half_->memory.buffer = run_.need(HostBuffer::create(kBytes));
    auto registered = Registration::create(half_->comm, half_->memory.buffer.span());
    half_->failed = !registered;
    if (registered) half_->memory.registration = registered.take();
    if (!both()) {
      half_->failed = true;
      return;
    }
    if (!end_.receives()) fill(half_->memory.buffer.span(), 5);
    void* request = poll(run_, *half_, victim_, "a data call", [&](void** out) { return post(out); });
    if (request == nullptr) return;
    poll(run_, *half_, victim_, "test", [&](void** out) {
      int done = 0;
      const ncclResult_t result = end_.net().test(request, &done, nullptr);
      if (done != 0) *out = request;
      return result;
    });
    if (end_.receives() && !half_->failed)
      run_.expect(firstDifference({half_->memory.data(), kBytes}, 5) < 0, "wrong data");
  }

  ncclResult_t post(void** out) {
    if (end_.receives())
      return end_.net().irecv(half_->comm.raw(),
                              oneReceive(half_->memory.data(), kBytes, 1, half_->memory.mhandle()), out);
    return end_.net().isend(half_->comm.raw(), {half_->memory.data(), kBytes, 1, half_->memory.mhandle()},
                            out);
  }

  Run& run_;
  End& end_;
  const bool victim_;
  std::unique_ptr<Half> half_ = std::make_unique<Half>();
};

// libfabric 1.17 now and then keeps the socket of a lane that is closed while it is being made. What weft
// kept would add up with every step.
constexpr size_t fabricKeeps(uint64_t steps) {
  return 4 + steps / 30;
}

void expectAsBefore(Run& run, size_t descriptorsBefore, uint64_t n) {
  descriptorsBefore += fabricKeeps(n);
  const auto end = Clock::now() + Milliseconds(5000);
  while (descriptors().size() > descriptorsBefore && Clock::now() < end)
    std::this_thread::sleep_for(Milliseconds(2));
  std::string open;
  for (const DescriptorState& state : descriptors())
    open += " " + std::to_string(state.fd) + " " + state.target;
  run.expect(descriptors().size() <= descriptorsBefore, "step " + std::to_string(n) + ": more than " +
                                                            std::to_string(descriptorsBefore) +
                                                            " descriptors are open:" + open);
}

// One side lacks something; both then make a connection undisturbed, and use the one they had.
class Sweep {
 public:
  Sweep(Run& run, End& end, Resource resource, int victim)
      : run_(run), end_(end), resource_(resource), victim_(end.side() == victim) {}

  void go() {
    const netdriver::Ends bystander = connectBothWays(run_, end_);
    for (int i = 0; i < 3; ++i) undisturbed();
    // Descriptors of the first connections may stay a moment.
    std::this_thread::sleep_for(Milliseconds(200));
    const size_t before = descriptors().size();
    const uint64_t stride = resource_ == Resource::memory ? run_.scaled<uint64_t>(7, 1) : 1;
    for (uint64_t n = 0; step(n, before); n += stride) {
      run_.require(n < kMostSteps, "the sweep does not end");
      sendChecked(run_, end_.receives() ? bystander.recv : bystander.send, end_.receives(), 3000, n);
      undisturbed();
      expectAsBefore(run_, before, n);
    }
    end_.sync();
  }

 private:
  // False: nothing is left to fail.
  bool step(uint64_t n, size_t) {
    Attempt attempt(run_, end_, victim_);
    end_.sync();
    if (victim_) arm(resource_, n);
    const bool made = attempt.make();
    const bool hit = victim_ && disarm();
    attempt.close();
    if (victim_) run_.count(std::string("failures of ") + resourceName(resource_), hit ? 1 : 0);
    // A descriptor limit that is never reached ends its sweep; the others know whether they hit.
    const bool over = resource_ == Resource::descriptors ? made : !hit;
    if (victim_ && made && hit && resource_ != Resource::descriptors) run_.count("survived");
    const auto mine = static_cast<uint8_t>(victim_ && over ? 1 : 0);
    return end_.exchange(mine) == 0 && mine == 0;
  }

  void undisturbed() {
    Attempt attempt(run_, end_, true);
    run_.require(attempt.make(), "a connection fails though nothing is lacking any more");
    end_.sync();
    attempt.close();
    end_.sync();
  }

  Run& run_;
  End& end_;
  const Resource resource_;
  const bool victim_;
};

template <Resource resource, int victim>
void sweep(Run& run, End& end) {
  run.expectWarnings();
  run.require(findPluginCode(), "the plugin is not mapped");
  Sweep(run, end, resource, victim).go();
}

// One life of the library, from init over a connection with itself to the end. True: all of it worked.
bool liveOnce(Run& run, int abi, Resource resource, uint64_t n) {
  const auto library = openPlugin(run, abi);
  run.require(findPluginCode(), "the plugin is not mapped");
  arm(resource, n);
  bool made = false;
  if (auto context = Context::create(library->net(), 3)) {
    if (auto listener = netdriver::listen(*context, 0)) {
      const Handle self = listener->handle;
      made = static_cast<bool>(netdriver::connectBoth(*context, 0, self, listener.take(), kHang));
    }
  }
  disarm();
  return made;
}

// The same while nothing of the library lives yet: its first thread, its devices, its settings.
template <Resource resource>
void sweepAlone(Run& run, int abi) {
  run.expectWarnings();
  constexpr uint64_t kNothing = UINT64_MAX / 2;
  const uint64_t stride = resource == Resource::memory ? run.scaled<uint64_t>(23, 1) : 1;
  const bool limit = resource == Resource::descriptors;  // which has no n-th request to speak of
  run.require(liveOnce(run, abi, Resource::memory, kNothing), "a connection with itself fails");
  const size_t before = descriptors().size();
  for (uint64_t n = 0; n < kMostSteps; n += stride) {
    const auto begin = Clock::now();
    const bool made = liveOnce(run, abi, resource, n);
    run.expect(Clock::now() - begin < kHang, "step " + std::to_string(n) + " took too long");
    expectAsBefore(run, before, n);
    if (limit ? made : requestsSeen() <= n)
      return run.count(std::string("steps of ") + resourceName(resource), n);
    run.require(liveOnce(run, abi, Resource::memory, kNothing), "the next life of the library does not work");
  }
  run.require(false, "the sweep does not end");
}

constexpr const char* kShort = "WEFT_CONNECT_TIMEOUT=4000";

constexpr Case pairCase(const char* name, void (*body)(Run&, End&)) {
  return {.name = name, .pair = body, .processesOnly = true, .minAbi = 11, .environment = kShort};
}

constexpr Case aloneCase(const char* name, void (*body)(Run&, int)) {
  return {.name = name, .alone = body, .minAbi = 11, .environment = kShort};
}

constexpr Case kCases[] = {
    aloneCase("memory-alone", &sweepAlone<Resource::memory>),
    aloneCase("descriptors-alone", &sweepAlone<Resource::descriptors>),
    aloneCase("threads-alone", &sweepAlone<Resource::threads>),
    pairCase("memory-connecting", &sweep<Resource::memory, 1>),
    pairCase("memory-accepting", &sweep<Resource::memory, 0>),
    pairCase("descriptors-connecting", &sweep<Resource::descriptors, 1>),
    pairCase("descriptors-accepting", &sweep<Resource::descriptors, 0>),
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
