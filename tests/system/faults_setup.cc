// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <optional>
#include <vector>

#include "tests/system/driver/program.h"
#include "tests/system/driver/traffic.h"

// Cards and hosts that are not what they should be: they work all the same, or whoever asks gets an error, on
// both sides and in time. What is wrong, and which words must be said about it, is the caller's business.
namespace weft::system {
namespace {

// Far less than what the caller gives a connect: who cannot go on says so.
constexpr Milliseconds kLimit{20'000};

void works(Run& run, End& end) {
  netdriver::Ends ends = connectBothWays(run, end);
  uint64_t seed = 0;
  for (const size_t bytes : {size_t{1}, size_t{3000}, size_t{200'000}, size_t{5'000'000}}) {
    const Memory out = makeMemory(run, ends.send, bytes), in = makeMemory(run, ends.recv, bytes);
    fill({out.data(), bytes}, ++seed);
    void* receive = postRecv(run, ends.recv, oneReceive(in.data(), bytes, 1, in.mhandle()));
    void* send = postSend(run, ends.send, {out.data(), bytes, 1, out.mhandle()});
    Deadline deadline(run, "a message in each direction");
    for (bool sent = false, received = false; !sent || !received; deadline.check()) {
      sent = sent || testOnce(run, ends.send, send);
      received = received || testOnce(run, ends.recv, receive);
    }
    run.expect(firstDifference({in.data(), bytes}, seed) < 0, "wrong data");
    run.count("messages", 2);
  }
  end.sync();
}

// No side gets a connection, and neither waits for a deadline.
void refused(Run& run, End& end) {
  run.expectWarnings();
  netdriver::Listener listener;
  if (end.receives()) listener = run.need(netdriver::listen(end.context(), end.device()));
  Handle handle = end.exchange(listener.handle);
  void* comm = nullptr;
  ncclResult_t result = ncclSuccess;
  for (Deadline deadline(run, "an error", kLimit); result == ncclSuccess && !comm; deadline.check())
    result = end.receives() ? end.net().accept(listener.comm.raw(), &comm)
                            : end.net().connect(end.context().raw(), end.device(), handle.data(), &comm);
  run.expect(result != ncclSuccess, "the connection was made all the same");
  run.count("errors", result != ncclSuccess ? 1 : 0);
  end.sync();
}

// A connection is there, and memory is registered until that is refused; then nothing else is the worse for
// it.
void registeredToTheEnd(Run& run, End& end) {
  constexpr size_t kPiece = size_t{4} << 20;
  constexpr size_t kMost = 100;
  run.expectWarnings();
  const Comm comm = connectOneWay(run, end);
  {
    std::vector<Memory> all;
    std::optional<Error> refusal;
    while (!refusal && all.size() < kMost) {
      HostBuffer buffer = run.need(HostBuffer::create(kPiece));
      auto registration = Registration::create(comm, buffer.span());
      if (registration) {
        all.push_back({std::move(buffer), registration.take()});
      } else {
        refusal = registration.takeError();
      }
    }
    run.expect(refusal.has_value() == end.receives(), refusal ? refusal->message() : "nothing was refused");
    run.count("pieces registered", all.size());
    end.sync();
  }
  sendChecked(run, comm, end.receives(), 3'000'000, 1);
  end.sync();
}

// One side stays, with what it has open; the other closes its cards and comes again, each time with endpoints
// that have the numbers of the last ones and are not those. More often than addresses are kept without need.
void returns(Run& run, End& end) {
  constexpr uint64_t kTimes = 70;
  std::vector<Comm> stay;
  if (!end.receives()) end.closeContext();
  for (uint64_t seed = 0; seed < kTimes; seed++) {
    std::optional<Context> fresh;
    if (!end.receives()) fresh = run.need(Context::create(end.net(), 0x7e7 + seed));
    Comm comm = connectOneWay(run, end, fresh ? *fresh : end.context());
    sendChecked(run, comm, end.receives(), 20'000, seed);
    end.sync();
    if (end.receives()) stay.push_back(std::move(comm));
  }
  run.count("returns", kTimes - 1);
}

constexpr Case kCases[] = {
    {.name = "works", .pair = &works, .processesOnly = true},
    {.name = "refused", .pair = &refused, .processesOnly = true},
    {.name = "returns", .pair = &returns, .processesOnly = true},
    {.name = "registered-to-the-end", .pair = &registeredToTheEnd, .processesOnly = true},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
