// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/mem/gpu/driver.h"
#include "tests/support/gpu_in_use.h"
#include "tests/system/driver/flow.h"
#include "tests/system/driver/program.h"
#include "tests/system/driver/traffic.h"
#include "tools/netdriver/log_sink.h"

// GPU memory as NCCL registers it: by its address and by a dma-buf. Runs on any CUDA driver; the software GPU
// in strict mode ends the process at an access by the processor. What the network in use takes no memory for
// is skipped with the reason: over `loop` nothing runs where no processor can map a dma-buf.
namespace weft::system {
namespace {

using mem::gpu::Driver;

constexpr int kTag = 9;
constexpr size_t kBytes = size_t{4} << 20;

std::shared_ptr<const Driver> driver(Run& run) {
  static const auto opened = Driver::open({}, false);  // loaded before the plugin looks for it
  run.require(static_cast<bool>(opened), opened ? "" : opened.error().message());
  return *opened;
}

bool networkIs(const char* name) {
  const char* set = environmentValue("WEFT_PROVIDER");
  return set != nullptr && std::strcmp(set, name) == 0;
}

// Why the network in use takes no GPU memory of that kind here, if there is a good reason.
std::string whyWithout(Run& run, int kind) {
  if (networkIs("local"))
    return kind == NCCL_PTR_DMABUF ? "processes of one host share GPU memory, and need no dma-buf of it" : "";
  const std::string why = test::whyNoSoftwareCard(*driver(run));
  if (networkIs("loop") || test::isSoftwareGpu()) return why;
  return "the card in use takes none; `weft info` says why";
}

// Whether the case can run. A network that should take such memory, and does not, is a failure.
void want(Run& run, const End& end, int kind) {
  if (end.properties().ptrSupport & kind) return;
  const std::string why = whyWithout(run, kind);
  run.require(!why.empty(),
              "ptrSupport is " + std::to_string(end.properties().ptrSupport) + ": GPU memory is not taken");
  run.expectWarnings();  // the plugin says so, too
  run.skip(why);
}

// Memory of the GPU, registered with one comm.
class GpuMemory {
 public:
  // shareable: by address, but allocated so that another process may map it, as NCCL's own buffers are.
  enum class By { address, dmabuf, shareable };

  GpuMemory(Run& run, const Comm& comm, size_t bytes, By by)
      : run_(run), comm_(comm), driver_(driver(run)), bytes_(bytes) {
    constexpr size_t kGranularity = size_t{2} << 20;
    if (by == By::shareable)
      shareable_ =
          run.need(driver_->allocateShareable(0, (bytes + kGranularity - 1) / kGranularity * kGranularity));
    else
      piece_ = run.need(driver_->allocate(0, bytes));
    std::vector<std::byte> fresh(bytes, kUntouched);
    put(0, fresh);
    if (by != By::dmabuf) {
      run.success(comm.net().regMrAs(NCCL_PTR_CUDA, comm.raw(), data(), bytes, &mhandle_), Call::regMr);
      return;
    }
    const Fd fd = run.need(driver_->exportDmabuf(data(), (bytes + 4095) / 4096 * 4096, false));
    run.success(comm.net().regMrDmaBuf(comm.raw(), data(), bytes, 0, fd.get(), &mhandle_), Call::regMr);
  }
  ~GpuMemory() {
    if (mhandle_) run_.expect(comm_.net().deregMr(comm_.raw(), mhandle_) == ncclSuccess, "deregMr fails");
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  std::byte* data() const {
    return shareable_ ? shareable_->data() : static_cast<std::byte*>(piece_->data());
  }
  size_t size() const { return bytes_; }
  void* mhandle() const { return mhandle_; }
  void put(size_t offset, std::span<const std::byte> bytes) const {
    run_.need(driver_->toGpu(0, data() + offset, bytes.data(), bytes.size()));
  }
  std::vector<std::byte> get(size_t offset, size_t bytes) const {
    std::vector<std::byte> out(bytes);
    run_.need(driver_->fromGpu(0, out.data(), data() + offset, bytes));
    return out;
  }

 private:
  Run& run_;
  const Comm& comm_;
  std::shared_ptr<const Driver> driver_;
  size_t bytes_;
  std::unique_ptr<Driver::Piece> piece_;  // one of the two
  std::unique_ptr<Driver::Mapped> shareable_;
  void* mhandle_ = nullptr;
};

void flush(Run& run, const Comm& comm, std::byte* data, size_t bytes, void* mhandle) {
  RecvArgs args = oneReceive(data, bytes, kTag, mhandle);
  void* request = nullptr;
  run.success(comm.net().iflush(comm.raw(), args, &request), Call::iflush);
  if (request == nullptr) return;
  run.count("flushes");
  wait(run, comm, request);
}

void sendGpu(Run& run, const Comm& comm, const GpuMemory& memory, size_t offset, size_t bytes,
             uint64_t seed) {
  std::vector<std::byte> message(bytes);
  fill(message, seed);
  if (bytes > 0) memory.put(offset, message);
  wait(run, comm, postSend(run, comm, {memory.data() + offset, bytes, kTag, memory.mhandle()}));
}

// With the bytes around it.
void receiveGpu(Run& run, const Comm& comm, const GpuMemory& memory, size_t offset, size_t bytes,
                uint64_t seed) {
  constexpr size_t kAround = 512;
  const std::vector<std::byte> blank(bytes + 2 * kAround, kUntouched);
  memory.put(offset - kAround, blank);
  std::byte* data = memory.data() + offset;
  const Sizes sizes = wait(run, comm, postRecv(run, comm, oneReceive(data, bytes, kTag, memory.mhandle())));
  const std::string what = std::to_string(bytes) + " bytes at offset " + std::to_string(offset);
  run.expect(static_cast<size_t>(sizes[0]) == bytes, what + ": size " + std::to_string(sizes[0]));
  if (bytes > 0) flush(run, comm, data, bytes, memory.mhandle());
  const std::vector<std::byte> got = memory.get(offset - kAround, blank.size());
  const std::span<const std::byte> all(got);
  run.expect(firstDifference(all.subspan(kAround, bytes), seed) < 0, what + ": wrong data");
  run.expect(isUntouched(all.first(kAround)) && isUntouched(all.last(kAround)), what + ": wrote beside it");
  run.count("messages");
  run.count("bytes", bytes);
}

constexpr size_t kSizes[] = {0, 1, 8, 31, 64, 1000, 8192, 8193, 65536, (size_t{1} << 20) + 3};

void bothWith(Run& run, End& end, GpuMemory::By by) {
  want(run, end, by == GpuMemory::By::dmabuf ? NCCL_PTR_DMABUF : NCCL_PTR_CUDA);
  const Comm comm = connectOneWay(run, end);
  const GpuMemory memory(run, comm, kBytes, by);
  uint64_t seed = 1;
  for (const size_t offset : {size_t{4096}, size_t{8192} + 129}) {
    for (const size_t size : kSizes) {
      end.receives() ? receiveGpu(run, comm, memory, offset, size, seed)
                     : sendGpu(run, comm, memory, offset, size, seed);
      seed++;
    }
  }
}

void byAddress(Run& run, End& end) {
  bothWith(run, end, GpuMemory::By::address);
}

void byDmabuf(Run& run, End& end) {
  bothWith(run, end, GpuMemory::By::dmabuf);
}

void shareable(Run& run, End& end) {
  bothWith(run, end, GpuMemory::By::shareable);
}

// Small messages from host memory: the first ones leave before the receiver has registered anything, the
// others once the sender has heard that it receives into GPU memory.
void fromHost(Run& run, End& end) {
  constexpr int kEarly = 5;
  constexpr int kLater = 20;
  constexpr size_t kSmall = 300;
  want(run, end, NCCL_PTR_CUDA);
  const Comm comm = connectOneWay(run, end);
  if (!end.receives()) {
    const Memory memory = makeMemory(run, comm, (kEarly + kLater) * kSmall);
    for (int i = 0; i < kEarly + kLater; i++) {
      if (i == kEarly) end.sync();
      const std::span<std::byte> message(memory.data() + static_cast<size_t>(i) * kSmall, kSmall);
      fill(message, static_cast<uint64_t>(i));
      wait(run, comm, postSend(run, comm, {message.data(), kSmall, kTag, memory.mhandle()}));
    }
    end.sync();
    return;
  }
  end.sync();  // all early ones have left
  const GpuMemory memory(run, comm, kBytes, GpuMemory::By::address);
  for (int i = 0; i < kEarly + kLater; i++)
    receiveGpu(run, comm, memory, 4096, kSmall, static_cast<uint64_t>(i));
  end.sync();
}

void toHost(Run& run, End& end) {
  want(run, end, NCCL_PTR_CUDA);
  const Comm comm = connectOneWay(run, end);
  if (!end.receives()) {
    const GpuMemory memory(run, comm, kBytes, GpuMemory::By::shareable);
    for (const size_t size : kSizes) sendGpu(run, comm, memory, 77, size, size);
    end.sync();
    return;
  }
  const Memory memory = makeMemory(run, comm, kBytes);
  for (const size_t size : kSizes) {
    wait(run, comm, postRecv(run, comm, oneReceive(memory.data(), size, kTag, memory.mhandle())));
    run.expect(firstDifference({memory.data(), size}, size) < 0, std::to_string(size) + " bytes: wrong data");
    run.count("messages");
  }
  end.sync();
}

// Memory that is registered, used, deregistered and freed, again and again: the next one mostly has the
// address of the one before.
void churn(Run& run, End& end) {
  want(run, end, NCCL_PTR_CUDA);
  const Comm comm = connectOneWay(run, end);
  Random random(3);
  const bool dmabufs = (end.properties().ptrSupport & NCCL_PTR_DMABUF) != 0;
  const int rounds = run.scaled(300, 10000);
  for (int round = 0; round < rounds; round++) {
    const size_t size = random.below(4) == 0 ? 100'000 : 1 + random.below(20'000);
    const size_t offset = 512 + random.below(5000);
    constexpr GpuMemory::By kWays[] = {GpuMemory::By::address, GpuMemory::By::shareable,
                                       GpuMemory::By::dmabuf};
    const GpuMemory::By by = kWays[random.below(dmabufs ? 3 : 2)];
    const GpuMemory memory(run, comm, offset + size + 512, by);
    const auto seed = static_cast<uint64_t>(round);
    end.receives() ? receiveGpu(run, comm, memory, offset, size, seed)
                   : sendGpu(run, comm, memory, offset, size, seed);
    run.count("rounds");
  }
}

class BadInput {
 public:
  BadInput(Run& run, const Comm& comm) : run_(run), comm_(comm) {}

  void cuda(const std::string& what, void* data, size_t size) {
    void* handle = this;
    const ncclResult_t result = comm_.net().regMrAs(NCCL_PTR_CUDA, comm_.raw(), data, size, &handle);
    refused(what, result, handle);
  }
  void host(const std::string& what, void* data, size_t size) {
    void* handle = this;
    const ncclResult_t result = comm_.net().regMr(comm_.raw(), data, size, &handle);
    refused(what, result, handle);
  }
  void dmabuf(const std::string& what, void* data, size_t size, uint64_t offset, int fd) {
    void* handle = this;
    const ncclResult_t result = comm_.net().regMrDmaBuf(comm_.raw(), data, size, offset, fd, &handle);
    refused(what, result, handle);
  }

 private:
  void refused(const std::string& what, ncclResult_t result, const void* handle) {
    run_.expect(result != ncclSuccess, what + " is taken");
    run_.expect(handle == nullptr, what + ": the handle is not null");
    run_.count("refusals");
  }

  Run& run_;
  const Comm& comm_;
};

void* pinnedHostMemory(Run& run, size_t bytes) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  run.require(library != nullptr, "no driver");
  const test::GpuInUse gpu;  // in this thread
  run.require(static_cast<bool>(gpu), gpu.why());
  const auto allocate = reinterpret_cast<int (*)(void**, size_t, unsigned)>(dlsym(library, "cuMemHostAlloc"));
  void* memory = nullptr;
  run.require(allocate(&memory, bytes, 0) == 0, "cuMemHostAlloc fails");
  return memory;
}

void badDmabufs(Run& run, const End& end, BadInput& bad) {
  if (!(end.properties().ptrSupport & NCCL_PTR_DMABUF)) return;
  const auto gpu = driver(run);
  const Fd zero(open("/dev/zero", O_RDWR | O_CLOEXEC));
  // A small piece, so that it is not found as a part of what is registered.
  const auto other = run.need(gpu->allocate(0, 4096));
  const Fd fd = run.need(gpu->exportDmabuf(other->data(), 4096, false));
  bad.dmabuf("a closed descriptor", other->data(), 4096, 0, -1);
  bad.dmabuf("a null pointer with a descriptor", nullptr, 4096, 0, fd.get());
  bad.dmabuf("a descriptor that is no dma-buf", other->data(), 4096, 0, zero.get());
  bad.dmabuf("an offset past the end", other->data(), 4096, size_t{1} << 30, fd.get());
}

void badInput(Run& run, End& end) {
  want(run, end, NCCL_PTR_CUDA);
  const auto gpu = driver(run);
  const Comm comm = connectOneWay(run, end);
  BadInput bad(run, comm);
  const auto piece = run.need(gpu->allocate(0, kBytes));
  auto* data = static_cast<std::byte*>(piece->data());
  void* freed = nullptr;
  {
    const auto gone = run.need(gpu->allocate(0, kBytes));
    freed = gone->data();
  }
  std::byte plain[4096];
  bad.cuda("freed memory", freed, 4096);
  bad.cuda("plain host memory as CUDA", plain, sizeof plain);
  bad.cuda("pinned host memory as CUDA", pinnedHostMemory(run, 4096), 4096);
  bad.cuda("nothing", data, 0);
  bad.cuda("a null pointer", nullptr, 4096);
  bad.cuda("more than was allocated", data, kBytes + 4097);
  bad.cuda("2^31 bytes", data, size_t{1} << 31);
  bad.cuda("2^40 bytes", data, size_t{1} << 40);
  bad.cuda("a negative size", data, static_cast<size_t>(-4096));
  bad.host("GPU memory as the host's", data, 4096);
  badDmabufs(run, end, bad);
  // The comm goes on.
  sendChecked(run, comm, end.receives(), 5000, 5);
}

// A process may start workers while its memory is registered.
void forked(Run& run, End& end) {
  want(run, end, NCCL_PTR_CUDA);
  const Comm comm = connectOneWay(run, end);
  const GpuMemory memory(run, comm, kBytes, GpuMemory::By::address);
  for (uint64_t seed = 0; seed < 5; seed++) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int status = -1;
    run.expect(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child fails");
    end.receives() ? receiveGpu(run, comm, memory, 4096, 20'000, seed)
                   : sendGpu(run, comm, memory, 4096, 20'000, seed);
  }
}

// A card says that it takes GPU memory where it does, and not where it cannot.
void properties(Run& run, End& end) {
  int wanted = NCCL_PTR_HOST;
  for (const int kind : {NCCL_PTR_CUDA, NCCL_PTR_DMABUF})
    if (whyWithout(run, kind).empty()) wanted |= kind;
  const int found = end.properties().ptrSupport;
  if (!(found & NCCL_PTR_CUDA)) run.expectWarnings();  // the reason is one
  const bool known = networkIs("local") || networkIs("loop") || test::isSoftwareGpu();
  run.expect(known ? found == wanted : (found & NCCL_PTR_HOST) != 0,
             "ptrSupport is " + std::to_string(found));
}

// A stream that is captured while this lives, so that a call of any thread that could disturb a capture fails
// it. The end says whether one did.
class Capturing {
 public:
  explicit Capturing(Run& run) : run_(run), library_(dlopen("libcuda.so.1", RTLD_NOW)) {
    run.require(library_ != nullptr && static_cast<bool>(gpu_), "no driver");
    run.require(call<int (*)(void**, unsigned)>("cuStreamCreate")(&stream_, kNonBlocking) == 0, "no stream");
    run.require(call<int (*)(void*, int)>("cuStreamBeginCapture_v2")(stream_, kGlobal) == 0, "no capture");
  }
  ~Capturing() {
    void* graph = nullptr;
    run_.expect(call<int (*)(void*, void**)>("cuStreamEndCapture")(stream_, &graph) == 0,
                "a capture that was under way has failed");
    if (graph != nullptr) call<int (*)(void*)>("cuGraphDestroy")(graph);
    call<int (*)(void*)>("cuStreamDestroy_v2")(stream_);
  }
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;

 private:
  static constexpr unsigned kNonBlocking = 1;
  static constexpr int kGlobal = 0;

  template <class Function>
  Function call(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }

  Run& run_;
  void* library_;
  const test::GpuInUse gpu_;  // in this thread
  void* stream_ = nullptr;
};

// Connecting, registering, messages, and giving memory back, all while a stream is captured.
void captured(Run& run, End& end) {
  want(run, end, NCCL_PTR_CUDA);
  const Capturing capturing(run);
  bothWith(run, end, GpuMemory::By::shareable);
  bothWith(run, end, GpuMemory::By::address);
}

bool isSet(const char* variable, const char* to) {
  const char* set = environmentValue(variable);
  return set != nullptr && std::strcmp(set, to) == 0;
}

// The receiver's GPU copies no more from the sender's memory. Where a card is, its lanes carry the message
// that was under way and all that follow; where none is, the comm ends with words that say what failed.
void copiesFail(Run& run, End& end) {
  want(run, end, NCCL_PTR_CUDA);
  if (!test::isSoftwareGpu()) run.skip("the software GPU alone has copies that fail");
  if (!isSet("WEFT_LOCAL_GPU", "1")) run.skip("no GPU memory is shared: WEFT_LOCAL_GPU=1");
  if (isSet("SOFTGPU_PEER", "0")) run.skip("GPUs that do not reach each other copy nothing between them");
  run.expectWarnings();
  const Comm comm = connectOneWay(run, end);
  const GpuMemory memory(run, comm, kBytes, GpuMemory::By::shareable);
  const auto exchange = [&](size_t bytes, uint64_t seed) {
    end.receives() ? receiveGpu(run, comm, memory, 4096, bytes, seed)
                   : sendGpu(run, comm, memory, 4096, bytes, seed);
  };
  for (uint64_t seed = 0; seed < 4; seed++) exchange(100'000, seed);
  end.sync();
  const auto failing = end.receives() ? std::make_unique<test::FailingCopies>() : nullptr;
  end.sync();
  if (!networkIs("local")) {
    for (uint64_t seed = 4; seed < 20; seed++) exchange(100'000, seed);
    end.sync();
    if (end.receives()) expectMessage(run, {"rail local", "is left to the other rails"});
    return;
  }
  void* request = end.receives()
                      ? postRecv(run, comm, oneReceive(memory.data(), 100'000, kTag, memory.mhandle()))
                      : postSend(run, comm, {memory.data(), 100'000, kTag, memory.mhandle()});
  run.expect(waitForResult(run, comm, request, Milliseconds(30'000)) != ncclSuccess,
             "a message arrived that nothing could carry");
  if (end.receives())
    expectMessage(run, {"rail local", "copying between GPU memory"});  // both may be one process
  end.sync();
}

// What is asked for and cannot be is said, once.
void idleSetting(Run& run, int abi) {
  if (!networkIs("tcp")) run.skip("it is about a network that takes no GPU memory: WEFT_PROVIDER=tcp");
  run.expectWarnings();
  const auto library = openPlugin(run, abi);
  const Context first = run.need(Context::create(library->net(), 1));
  const Context second = run.need(Context::create(library->net(), 2));
  size_t said = 0;
  for (const std::string& line : netdriver::LogSink::instance().takeWarnings())
    said += line.find("WEFT_LOCAL_GPU=1 does nothing here") != std::string::npos &&
            line.find("takes no GPU memory") != std::string::npos;
  run.expect(said == 1, "said " + std::to_string(said) + " times");
}

constexpr Case kCases[] = {
    {.name = "properties", .pair = &properties},
    {.name = "by-address", .pair = &byAddress},
    {.name = "by-dmabuf", .pair = &byDmabuf},
    {.name = "shareable", .pair = &shareable},
    {.name = "from-host", .pair = &fromHost},
    {.name = "to-host", .pair = &toHost},
    {.name = "forked", .pair = &forked},
    {.name = "bad-input", .pair = &badInput},
    {.name = "churn", .pair = &churn},
    {.name = "captured", .pair = &captured},
    {.name = "copies-fail", .pair = &copiesFail},
    {.name = "idle-setting", .alone = &idleSetting},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  const weft::test::GpuInUse gpu;  // as NCCL has it before the plugin
  if (!gpu) {
    std::printf("%s\n", gpu.why().c_str());
    return 77;
  }
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
