// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <infiniband/verbs.h>

// One end of a test of the software device, spoken to through the verbs API alone. A node is a virtual host
// with one device, protection domain, completion queue and queue pair. Used by one thread.
namespace softefa::check {

struct Options {
  std::string generation = "inorder";
  std::string faults;
  std::string strict;
  std::string extra;  // more settings, as NAME=VALUE NAME=VALUE
  unsigned nic = 0;
  unsigned cqDepth = 256;
  unsigned sendDepth = 64;
  unsigned receiveDepth = 64;
  unsigned rnrRetry = 7;
  bool unsolicited = false;
  bool datagrams = false;
  bool events = false;  // a completion channel
};

// Everything a completion tells.
struct Done {
  uint64_t wrId;
  ibv_wc_status status;
  unsigned vendor;
  ibv_wc_opcode opcode;
  uint32_t byteLength;
  uint32_t imm;
  unsigned flags;
  uint32_t qpn;
  uint32_t sourceQpn;
  uint32_t slid;
  bool sgidKnown;
  bool unsolicited;
};

// Registered memory.
struct Memory {
  std::vector<unsigned char> bytes;
  ibv_mr* mr = nullptr;

  uint64_t address() const { return reinterpret_cast<uintptr_t>(bytes.data()); }
  ibv_sge piece(size_t offset, size_t length) const {
    return {address() + offset, static_cast<uint32_t>(length), mr->lkey};
  }
  void deregister();
  ~Memory() { deregister(); }
};

// How a peer's queue pair is reached.
struct Target {
  ibv_ah* ah;
  uint32_t qpn;
  uint32_t qkey;
};

class Node {
 public:
  explicit Node(const std::string& host, const Options& options = {});
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  ibv_gid gid() const;
  ibv_ah* handleFor(const ibv_gid& gid);  // destroyed with the node unless dropHandle did it
  void dropHandle(ibv_ah* ah);
  Target meet(const Node& other) { return {handleFor(other.gid()), other.qp->qp_num, other.qkey}; }

  std::unique_ptr<Memory> memory(size_t size, int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                                           IBV_ACCESS_REMOTE_READ);

  int receive(uint64_t wrId, const ibv_sge& piece);
  int send(uint64_t wrId, const Target& to, const ibv_sge& piece, std::optional<uint32_t> imm = {});
  int sendInline(uint64_t wrId, const Target& to, const std::string& text);
  int write(uint64_t wrId, const Target& to, const ibv_sge& piece, const Memory& remote, size_t offset = 0,
            std::optional<uint32_t> imm = {});
  int writeTo(uint64_t wrId, const Target& to, const ibv_sge& piece, uint32_t rkey, uint64_t address,
              std::optional<uint32_t> imm = {});
  int read(uint64_t wrId, const Target& to, const ibv_sge& piece, const Memory& remote, size_t offset = 0);
  int readFrom(uint64_t wrId, const Target& to, const ibv_sge& piece, uint32_t rkey, uint64_t address);

  // The next completion, within that time; take throws when none comes. poll: 0, ENOENT or EINVAL as
  // start_poll says.
  std::optional<Done> next(std::chrono::milliseconds patience = std::chrono::seconds(20));
  Done take();
  int poll(Done& done);

  void setFaults(const std::string& assignments);
  uint64_t counter(const char* name) const;
  void replaceQueuePair();  // destroys it and makes another, with another queue key
  void createQueuePair();
  ibv_qp* newQueuePair(const Options& options);  // nullptr with errno when it is refused
  void bringUp();                                // to ready-to-send
  int setState(ibv_qp_state state);

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq_ex* cq = nullptr;
  ibv_qp* qp = nullptr;
  uint32_t qkey = 0x1000;

 private:
  ibv_qp_ex* extended() const { return ibv_qp_to_qp_ex(qp); }
  int finish(const Target& to, const ibv_sge& piece);

  Options options_;
  std::vector<ibv_ah*> handles_;
};

// A folder-less name of a fabric that only this process and its children know; what it left is removed at
// exit.
const std::string& testFabric();

// Runs a program of the build with settings (NAME=VALUE ...); its exit status as wait tells it, and its
// output.
struct Outcome {
  int status;
  std::string output;
};
Outcome runProgram(const std::string& settings, const std::string& command);

}  // namespace softefa::check
