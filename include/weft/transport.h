// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/result.h"

// The seam between the protocol and the fabrics: Transport -> Device -> Queue -> Endpoint.
//
// Ownership: the holder of the unique_ptr. An Endpoint must be destroyed before its Queue, a Queue and a
// Memory before their Device. Threads: Transport and Device are thread-safe and may lock. A Queue and its
// Endpoints are used together by one thread at a time; the caller serialises. Sizes are bytes.
//
// Three rules hold for every fabric behind this header:
// 1. No order. Writes of one Endpoint may land in any order, byte-wise, and after their local completion.
// 2. Only Queue::poll reports. post() and connect() begin something; its end comes back as a Completion.
// 3. Fencing is a promise. After an Endpoint's `retired` completion nothing that it posted can land.
namespace weft {

enum class MemoryKind : uint8_t { host, cuda, dmabuf };

// The most that other ends may do to registered memory, each more than the one before: memory that only sends
// is nobody's, memory that receives is written to, and memory that a flush reads back is read, too.
enum class PeerAccess : uint8_t { none, write, readAndWrite };

// A range to register. For dmabuf, `fd` and `fdOffset` name the range, and `address` is the owner's view of
// it. The descriptor is borrowed during registerMemory only.
struct MemoryDesc {
  void* address = nullptr;
  size_t length = 0;
  MemoryKind kind = MemoryKind::host;
  int fd = -1;
  uint64_t fdOffset = 0;
  bool strictOrder = false;  // relaxed ordering is not allowed: the protocol's own rings
  bool ours = false;         // weft's own, which has to be mapped by itself (src/base/pages.h)
  bool direct = false;       // dmabuf: by the card's second function, DeviceInfo::directPath
  PeerAccess peers = PeerAccess::readAndWrite;
  int gpu = -1;  // the GPU that the memory belongs to, by the driver's number; -1: the host, or unknown
};

// Registered memory, deregistered by its destructor. A peer imports the blob to reach the memory.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::span<const std::byte> blob() const = 0;
};

// A peer's memory as an Endpoint sees it. A value that owns nothing.
struct RemoteMemory {
  uint64_t base = 0;  // the fabric's name of the first byte: an address, or 0 where offsets are used
  uint64_t key = 0;
};

// Kinds of work.
enum class Opcode : uint8_t {
  write,        // plain
  writeNotify,  // the peer's Queue gets a `notified` completion with `imm` and the write's length
  read,         // from the peer into local memory
  message,      // lands where the peer's Placer says; only where DeviceInfo::messages is set
};

// An operation. The buffer behind `local` is borrowed until its completion. For an unsignaled one it is
// borrowed until the protocol knows by other means that the peer has the bytes, or until the Endpoint has
// retired.
struct Work {
  Opcode op = Opcode::write;
  bool delivered = false;  // complete only once the bytes are in the peer's memory (see DeviceInfo::delivery)
  bool unsignaled = false;  // no completion wanted on success; a failure is reported all the same
  uint32_t imm = 0;
  void* local = nullptr;
  size_t length = 0;               // 0 is allowed for writes
  const Memory* memory = nullptr;  // covers [local, local + length); may be null when length is 0
  RemoteMemory remote;             // of a message: its label's two words; the fabric gives them no meaning
  uint64_t remoteOffset = 0;       // from the first byte of the peer's memory
  uint64_t context = 0;            // comes back in the completion
};

enum class CompletionKind : uint8_t {
  connected,  // Endpoint::connect finished; on failure the Endpoint is dead
  sent,       // a write or read of ours finished
  notified,   // a peer's writeNotify landed
  landed,     // all of a peer's message is in its Place; `context` is the Place's
  retired,    // Endpoint::retire finished
  broken,     // the Endpoint died, and no Work of ours failed with it (peer closed, address changed)
  faltering,  // not ok: nothing passes for now (port down, address gone), and the card goes on trying; ok:
              // it is over
};

class Endpoint;

// An event that Queue::poll hands out.
struct Completion {
  CompletionKind kind = CompletionKind::sent;
  bool ok = true;              // false: Queue::explain has the words
  uint32_t imm = 0;            // notified
  int32_t error = 0;           // the fabric's errno-like code when !ok
  uint64_t length = 0;         // notified: bytes its write carried
  uint64_t context = 0;        // sent: the Work's; landed: the Place's
  Endpoint* source = nullptr;  // the local one; null where the fabric cannot say (notified only)
};

// The label of a message, as its sender gave it with the Work: `imm`, and the two words of `remote`.
struct MessageLabel {
  uint32_t imm = 0;
  RemoteMemory words;
};

// The place where a message lands. It is one of four: memory, nowhere, a refusal, or not known yet.
struct Place {
  // Of the Queue's own Device; the bytes go from `offset` on. Deregistering it while they arrive ends the
  // lane. Null: the message is read and dropped.
  const Memory* memory = nullptr;
  uint64_t offset = 0;
  uint64_t context = 0;           // comes back in a `landed` completion; 0: no completion is wanted
  const char* refusal = nullptr;  // static words: this sender may not send this message, and its lane breaks
  bool later = false;  // only where the message may wait: the placer is asked again at a later poll
};

// The part of a receiver that decides where a message lands. It is asked when the header of the message is
// here and none of its bytes. Queue::poll calls it on its thread; it may post, but must not poll.
class Placer {
 public:
  // `mayWait`: the fabric can leave the message where it is for some polls more, and what is behind it too.
  // It asks again at each of them, and in the end without `mayWait`.
  virtual Place place(Endpoint& at, const MessageLabel& label, uint64_t length, bool mayWait) = 0;

 protected:
  ~Placer() = default;
};

// A lane to a peer: connected once, retired at the end.
class Endpoint {
 public:
  // A hard close: works in flight may still land, unless it has retired before.
  virtual ~Endpoint() = default;

  // The bytes that the peer's Endpoint connects to, at most 256. The same for the Endpoint's life.
  virtual std::span<const std::byte> address() const = 0;

  // Starts connecting in both directions; the peer connects to us as well. Never blocks; ends in a
  // `connected` completion. An Endpoint that connects to its own address is a loopback lane.
  virtual Status connect(std::span<const std::byte> peerAddress) = 0;

  // Tells that the peer's Endpoint was given our address by its connect(). Where targets must know who writes
  // to them (DeviceInfo::targetMustKnow), nothing leaves before this call; elsewhere it has no effect. It may
  // come before or after our own connect().
  virtual void peerConnected() {}

  // Takes a peer's Memory::blob, for this lane and later ones over its rail to that peer. Too slow for the
  // data path.
  virtual Result<RemoteMemory> import(std::span<const std::byte> blob) = 0;

  // Takes the first n works, in order, and returns n. Fewer than given means "later" and is never an error.
  virtual size_t post(std::span<const Work> works) = 0;

  // Starts fencing; nothing may be posted after it. Outstanding works complete first, most of them not ok.
  // Then comes `retired`:
  //   ok              nothing that this end posted can land any more
  //   not ok          this will be true once the peer's end has retired too
  //   not ok, EBUSY   it will never be true: the peer does not answer, and cutting this lane off would cut
  //                   others too; the buffers stay registered until those lanes are gone
  virtual void retire() = 0;

  // After `retired` with EBUSY: cuts this lane off together with all lanes that share its card in this Queue.
  // Those lanes break, and this lane's `retired` comes once more. False: the fabric cannot do it.
  virtual bool cut() { return false; }
};

struct QueueDepths {
  uint32_t sends = 1024;          // works in flight over all Endpoints
  uint32_t notifications = 4096;  // notifications that arrived and were not polled yet
  int trafficClass = -1;          // of everything that its Endpoints send; -1: the fabric's default
};

// The only source of completions. On software fabrics, polling also makes the progress.
class Queue {
 public:
  virtual ~Queue() = default;
  // Fills `out` from its front and returns the number. Without room it hands out nothing and loses nothing.
  virtual size_t poll(std::span<Completion> out) = 0;
  // Errors: `resources` where a limit of the machine or the card is reached.
  virtual Result<std::unique_ptr<Endpoint>> openEndpoint() = 0;
  // Sets the Placer that decides where messages land. Called before the first Endpoint connects; the Placer
  // outlives the Queue.
  virtual void placeBy(Placer* /*placer*/) {}

  // Words for a completion with !ok that the last poll returned: the operation that failed, and the fabric's
  // own reason.
  virtual std::string explain(const Completion& completion) const = 0;

  virtual QueueDepths depths() const = 0;  // what was granted; may be less than was asked for
};

// The meaning of a `sent` completion of a plain Work (delivered == false), and whether a stronger one can be
// asked for.
enum class Delivery : uint8_t {
  accepted,    // the buffer is free again; Work::delivered is not available
  selectable,  // as `accepted`, but Work::delivered is honoured
  always,      // every completion means delivered (reliable hardware)
};

// The patience of a card with a peer that acknowledges nothing. 0: it has none, or nobody knows it. The
// protocol blames no lane before the card had its tries.
struct CardRetries {
  std::chrono::milliseconds first{0};  // then it sends the packet again, for the first time
  std::chrono::milliseconds all{0};    // then it gives up, and the work fails
};

// The facts about a device. A value; the device's `info()` never changes.
struct DeviceInfo {
  std::string name;      // unique within its provider: "eth0", "mlx5_0:1", "loop0"
  std::string provider;  // as WEFT_PROVIDER would name it: "loop", "ofi:net"
  std::string address;   // for people: "192.0.2.7", a GID
  std::string pciPath;   // sysfs device directory; empty when there is none
  uint64_t guid = 0;
  int port = 1;
  int speedMbps = 10000;  // never 0
  float latencyUs = 0;
  int numaNode = -1;  // -1: unknown
  int mtu = 0;        // bytes; 0: unknown
  Delivery delivery = Delivery::accepted;
  // The ways that may be tried with GPU memory. A trial registration tells whether they work
  // (src/mem/ladder.h).
  bool cudaMemory = false;    // registered by address; the GPU's kernel module resolves it
  bool dmabufMemory = false;  // registered by a dma-buf
  std::string directPath;     // sysfs directory of a second function of the card, for GPU memory; empty: none
  bool pcieMapping =
      false;  // where a GPU is also reached past PCIe (C2C), the card needs the mapping over PCIe
  bool sharedGpu = false;  // no card is involved: a copy from GPU to GPU, by memory that the driver shares
  std::string withoutGpu;  // why no way is tried; empty: some are
  bool lines128InOrder = false;  // 128-byte lines land whole or in increasing address order
  bool offload = false;          // the card moves the data, not this machine's processors
  bool virtualFunction = false;  // a virtual function (SR-IOV) on the host that has the card itself
  bool targetMustKnow = false;  // a card refuses writes from Endpoints to which none of its own has connected
  CardRetries retries;
  bool peerMustStand = false;  // an Endpoint may be connected before its peer's is, which loses writes then
  std::string linkLayer;       // "InfiniBand", "Ethernet" or empty
  size_t maxWriteBytes = size_t{1} << 30;  // the longest Work
  // A message up to this size is better copied at both ends than announced first.
  int eagerBytes = 8192;
  std::string abilities;    // what the card does by itself, as its fabric says; empty: nothing to say of it
  std::string connections;  // to each peer: how many, and why; empty: nothing to say of them
  bool messages = false;    // Opcode::message works: the receiver's processor moves the bytes
  bool postIsCall = false;  // a post enters the kernel, so small works are better posted several at a time
};

// A port of a network card. All Contexts of the process share it.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // Blocks as long as the fabric needs. Errors: `resources` where the card or a limit is full.
  virtual Result<std::unique_ptr<Memory>> registerMemory(const MemoryDesc& desc) = 0;
  virtual Result<std::unique_ptr<Queue>> openQueue(const QueueDepths& wanted) = 0;
};

// A device or fabric that a provider found and did not use, with the reason in words; remembered for `weft
// info`.
struct Refusal {
  std::string what;
  std::string why;
  bool failed = false;  // it is here and should work, but something is wrong with this machine
  bool byUser = false;  // a setting leaves it out
};

// A fabric on this machine. Thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;  // "ofi:net"
  // Of the library behind it: "libfabric 1.17.0"; empty: the fabric is our own.
  virtual std::string version() const = 0;
  // The devices that can be used. A device that cannot is in refusals() afterwards.
  virtual Result<std::vector<DeviceInfo>> discover() = 0;
  virtual std::vector<Refusal> refusals() const = 0;
  // `info` is one that discover() returned.
  virtual Result<std::shared_ptr<Device>> open(const DeviceInfo& info) = 0;
};

}  // namespace weft
