// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/result.h"

// The seam between the protocol and the fabrics: Transport -> Device -> Queue -> Endpoint.
//
// Ownership: whoever holds the unique_ptr; an Endpoint must be destroyed before its Queue, a Queue and a
// Memory before their Device. Threads: Transport and Device are thread-safe and may lock; a Queue and its
// Endpoints together are used by one thread at a time (the caller serialises). Sizes are bytes.
//
// Three rules hold for every fabric behind this header:
//  1. No order. Writes of one Endpoint may land in any order, byte-wise, and after their local completion.
//  2. Only Queue::poll reports. post() and connect() start things; how they end comes back as a Completion.
//  3. Fencing is a promise. After an Endpoint's `retired` completion nothing that it posted can land.
namespace weft {

enum class MemoryKind : uint8_t { host, cuda, dmabuf };

// A range to register. For dmabuf, `fd` and `fdOffset` name it and `address` is where the owner sees it; the
// fd is only borrowed during registerMemory.
struct MemoryDesc {
  void* address = nullptr;
  size_t length = 0;
  MemoryKind kind = MemoryKind::host;
  int fd = -1;
  uint64_t fdOffset = 0;
  bool strictOrder = false;  // never relaxed-ordered: the protocol's own rings
  int gpu = -1;              // whose memory it is, by the driver's number; -1: the host's, or not known
};

// Registered memory; deregisters itself. The blob is what a peer imports to reach it.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::span<const std::byte> blob() const = 0;
};

// A peer's memory as one Endpoint sees it. A value: copying it costs nothing and owns nothing.
struct RemoteMemory {
  uint64_t base = 0;  // what the fabric calls the first byte: an address, or 0 where offsets are used
  uint64_t key = 0;
};

enum class Opcode : uint8_t {
  write,        // plain
  writeNotify,  // the peer's Queue gets a `notified` completion with `imm` and the write's length
  read,         // from the peer into local memory
  message,      // lands where the peer's Placer says; only where DeviceInfo::messages is set
};

// One operation. The buffer behind `local` is borrowed until its completion (for an unsignaled one: until the
// protocol knows by other means that the peer has it, or the Endpoint retired).
struct Work {
  Opcode op = Opcode::write;
  bool delivered = false;  // complete only once the bytes are in the peer's memory (see DeviceInfo::delivery)
  bool unsignaled = false;  // no completion wanted on success; a failure is reported all the same
  uint32_t imm = 0;
  void* local = nullptr;
  size_t length = 0;               // 0 is allowed for writes
  const Memory* memory = nullptr;  // covers [local, local + length); may be null when length is 0
  RemoteMemory remote;             // of a message: its label's two words, which mean nothing to the fabric
  uint64_t remoteOffset = 0;       // from the first byte of the peer's region
  uint64_t context = 0;            // comes back in the completion
};

enum class CompletionKind : uint8_t {
  connected,  // Endpoint::connect finished; on failure the Endpoint is dead
  sent,       // a write or read of ours finished
  notified,   // a peer's writeNotify landed
  landed,     // all of a peer's message is where Placer::place had it put; `context` is what that gave
  retired,    // Endpoint::retire finished
  broken,     // the Endpoint died with no Work of ours to blame (peer closed, port down)
};

class Endpoint;

struct Completion {
  CompletionKind kind = CompletionKind::sent;
  bool ok = true;              // false: Queue::explain has the words
  uint32_t imm = 0;            // notified
  int32_t error = 0;           // errno-like code of the fabric when !ok
  uint64_t length = 0;         // notified: bytes its write carried
  uint64_t context = 0;        // sent: the Work's; landed: the Place's
  Endpoint* source = nullptr;  // the local one; null where the fabric cannot say (notified only)
};

// What a message is about, as its sender gave it with the Work: `imm`, and the two words of `remote`.
struct MessageLabel {
  uint32_t imm = 0;
  RemoteMemory words;
};

// Where a message lands. Exactly one of three: in memory, nowhere, or refused.
struct Place {
  // Of the Queue's own Device. The bytes go from `offset` on; whoever deregisters it while they arrive ends
  // the lane. Null: the message is read and dropped.
  const Memory* memory = nullptr;
  uint64_t offset = 0;
  uint64_t context = 0;           // comes back in a `landed` completion; 0: nobody wants to hear
  const char* refusal = nullptr;  // static words: the sender may not send this, and its lane breaks
};

// The side of a receiver that decides where a message lands, asked when the message's header is there and not
// one of its bytes. Called from within Queue::poll, by its thread; it may post, but must not poll.
class Placer {
 public:
  virtual Place place(Endpoint& at, const MessageLabel& label, uint64_t length) = 0;

 protected:
  ~Placer() = default;
};

// One lane to one peer: connected once, retired at the end.
class Endpoint {
 public:
  virtual ~Endpoint() = default;  // a hard close: whatever is in flight may still land unless retired before

  // Opaque bytes the peer's Endpoint connects to (at most 256). Stable for the Endpoint's life.
  virtual std::span<const std::byte> address() const = 0;

  // Starts connecting both ways (the peer connects to us as well). Never blocks; ends in a `connected`
  // completion. Connecting to one's own address makes a loopback lane.
  virtual Status connect(std::span<const std::byte> peerAddress) = 0;

  // The peer's Endpoint was given our address by its connect(). Where targets must know who writes to them
  // (DeviceInfo::targetMustKnow) nothing leaves before this; elsewhere it says nothing new. Before or after
  // our own connect().
  virtual void peerConnected() {}

  // A peer's Memory::blob for this lane and later ones over its rail to that peer. Not for the data path.
  virtual Result<RemoteMemory> import(std::span<const std::byte> blob) = 0;

  // Takes the first n works, in order, and returns n; fewer than given means "later", never an error.
  virtual size_t post(std::span<const Work> works) = 0;

  // Starts fencing; nothing may be posted after it. Outstanding works complete first, most of them not ok,
  // then comes `retired`:
  //   ok              nothing that this end posted can land any more
  //   not ok          so it is once the peer's end has retired too
  //   not ok, EBUSY   never: the peer does not answer, and what would cut this lane off would cut others too;
  //                   the buffers stay registered until those lanes are gone
  virtual void retire() = 0;

  // After `retired` with EBUSY: cuts this lane off together with all that share its card in this Queue. Those
  // break, and this one's `retired` comes once more. False: it cannot.
  virtual bool cut() { return false; }
};

struct QueueDepths {
  uint32_t sends = 1024;          // works in flight over all Endpoints
  uint32_t notifications = 4096;  // arrived and not yet polled
  int trafficClass = -1;          // of everything its Endpoints send; -1: the fabric's default
};

// The only source of completions. Polling it is also what makes progress on software fabrics.
class Queue {
 public:
  virtual ~Queue() = default;
  // Fills `out` from its front and returns how many; without room it hands out nothing and loses nothing.
  virtual size_t poll(std::span<Completion> out) = 0;
  virtual Result<std::unique_ptr<Endpoint>> openEndpoint() = 0;
  // Who is asked where messages land; before the first Endpoint connects. Outlives the Queue.
  virtual void placeBy(Placer* /*placer*/) {}

  // Words for a completion with !ok that the last poll returned: what failed and the fabric's own reason.
  virtual std::string explain(const Completion& completion) const = 0;

  virtual QueueDepths depths() const = 0;  // what was granted; may be less than asked for
};

// What a `sent` completion of a plain Work (delivered == false) means, and whether more can be asked for.
enum class Delivery : uint8_t {
  accepted,    // only that the buffer is free again; Work::delivered is not available
  selectable,  // as accepted, but Work::delivered is honoured
  always,      // every completion means delivered (reliable hardware)
};

struct DeviceInfo {
  std::string name;      // unique within its provider: "eth0", "mlx5_0:1", "loop0"
  std::string provider;  // as WEFT_PROVIDER would name it: "loop", "ofi:net"
  std::string address;   // for people: "192.0.2.7", a GID
  std::string pciPath;   // sysfs device directory; empty when there is none
  uint64_t guid = 0;
  int port = 1;
  int speedMbps = 10000;  // never 0
  float latencyUs = 0;
  int numaNode = -1;
  int mtu = 0;
  Delivery delivery = Delivery::accepted;
  // What may be tried with GPU memory; whether it works, a trial registration says (src/mem/ladder.h).
  bool cudaMemory = false;    // registered by its address, which the GPU's kernel module resolves
  bool dmabufMemory = false;  // registered by a dma-buf
  bool pcieMapping =
      false;  // where a GPU is also reached past PCIe (C2C), the card needs the mapping over PCIe
  bool sharedGpu = false;        // no card: copied from GPU to GPU, by memory that the driver shares
  std::string withoutGpu;        // why none of them is tried
  bool lines128InOrder = false;  // 128-byte lines land whole or in increasing address order
  bool offload = false;          // the card moves the data, not this machine's processors
  bool virtualFunction = false;  // SR-IOV, on the host that has the card itself
  bool targetMustKnow = false;   // a card refuses writes of an Endpoint that none of its own connected to
  std::string linkLayer;         // "InfiniBand", "Ethernet" or empty
  size_t maxWriteBytes = size_t{1} << 30;
  int eagerBytes = 8192;    // a message of so many bytes is better copied at both ends than asked for first
  bool messages = false;    // Opcode::message works: the receiving end's processor moves the bytes
  bool postIsCall = false;  // a post enters the kernel, so small works are better posted several at a time
};

// One NIC port. Shared by every Context of the process.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual Result<std::unique_ptr<Memory>> registerMemory(const MemoryDesc& desc) = 0;
  virtual Result<std::unique_ptr<Queue>> openQueue(const QueueDepths& wanted) = 0;
};

// Something a provider saw and did not use, with the reason in words; remembered for `weft info`.
struct Refusal {
  std::string what;
  std::string why;
  bool failed = false;  // it is here and should be usable, but something is wrong with this machine
  bool byUser = false;  // a setting leaves it out
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;     // "ofi:net"
  virtual std::string version() const = 0;  // of the library behind it: "libfabric 1.17.0"; empty for our own
  virtual Result<std::vector<DeviceInfo>> discover() = 0;
  virtual std::vector<Refusal> refusals() const = 0;
  virtual Result<std::shared_ptr<Device>> open(const DeviceInfo& info) = 0;
};

}  // namespace weft
