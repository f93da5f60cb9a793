// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/check/node.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <unistd.h>

#include <infiniband/efadv.h>

#include "tests/softefa/efa_abi.h"
#include "tests/softefa/settings.h"
#include "tests/softefa/softefa.h"

namespace softefa::check {

namespace {

// The names of settings that a node sets for its device list.
constexpr std::array<const char*, 4> kOwn{"SOFTEFA_HOST", "SOFTEFA_GENERATION", "SOFTEFA_FAULTS",
                                          "SOFTEFA_STRICT"};

void require(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

void exportSettings(const std::string& host, const Options& options) {
  const std::array<std::string, kOwn.size()> values{host, options.generation, options.faults, options.strict};
  for (size_t i = 0; i < kOwn.size(); ++i) ::setenv(kOwn[i], values[i].c_str(), 1);
  ::setenv("SOFTEFA_FABRIC", testFabric().c_str(), 1);
  for (const auto& item : splitList(options.extra)) {
    const size_t equals = item.find('=');
    ::setenv(item.substr(0, equals).c_str(), item.substr(equals + 1).c_str(), 1);
  }
}

void forgetSettings(const Options& options) {
  for (const char* name : kOwn) ::unsetenv(name);
  for (const auto& item : splitList(options.extra)) ::unsetenv(item.substr(0, item.find('=')).c_str());
}

// The fabric of the process that started us, or one of our own.
struct TestFabric {
  const bool given = environment("SOFTEFA_FABRIC") != nullptr;
  const std::string name = given ? environment("SOFTEFA_FABRIC") : "test-" + std::to_string(::getpid());
  ~TestFabric() {
    if (given) return;
    std::error_code error;
    std::filesystem::remove_all("/dev/shm/softefa-" + std::to_string(::getuid()) + "/" + name, error);
  }
};

}  // namespace

const std::string& testFabric() {
  static const TestFabric kFabric;
  return kFabric.name;
}

void Memory::deregister() {
  if (mr) ibv_dereg_mr(mr);
  mr = nullptr;
}

Node::Node(const std::string& host, const Options& options) : options_(options) {
  exportSettings(host, options);
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  forgetSettings(options);
  const bool there = count > static_cast<int>(options.nic);
  if (there) context = ibv_open_device(list[options.nic]);
  ibv_free_device_list(list);
  require(there, "no such device");
  require(context, "ibv_open_device");
  pd = ibv_alloc_pd(context);
  if (options.events) channel = ibv_create_comp_channel(context);
  ibv_cq_init_attr_ex attr{};
  attr.cqe = options.cqDepth;
  attr.channel = channel;
  efadv_cq_init_attr efa{};
  efa.wc_flags = EFADV_WC_EX_WITH_SGID;
  cq = efadv_create_cq(context, &attr, &efa, sizeof efa);
  require(pd && cq, "efadv_create_cq");
  createQueuePair();
  bringUp();
}

Node::~Node() {
  if (qp) ibv_destroy_qp(qp);
  if (cq) ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
  if (channel) ibv_destroy_comp_channel(channel);
  for (ibv_ah* ah : handles_) ibv_destroy_ah(ah);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
}

ibv_qp* Node::newQueuePair(const Options& options) {
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
  attr.cap = {options.sendDepth, options.receiveDepth, 2, 3, 32};
  attr.qp_type = options.datagrams ? IBV_QPT_UD : IBV_QPT_DRIVER;
  attr.sq_sig_all = 1;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  if (!options.datagrams && options.generation != "send") attr.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ;
  if (!options.datagrams && options.generation != "send" && options.generation != "read") {
    attr.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  }
  EfaQpInitAttr efa{};
  efa.flags = options.unsolicited ? kQpUnsolicitedWriteReceive : 0;
  auto* const known = reinterpret_cast<efadv_qp_init_attr*>(&efa);
  return options.datagrams ? ibv_create_qp_ex(context, &attr)
                           : efadv_create_qp_ex(context, &attr, known, sizeof efa);
}

void Node::createQueuePair() {
  qp = newQueuePair(options_);
  require(qp, "creating a queue pair");
}

int Node::setState(ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  attr.qkey = qkey;
  attr.port_num = 1;
  attr.rnr_retry = static_cast<uint8_t>(options_.rnrRetry);
  int mask = IBV_QP_STATE;
  if (state == IBV_QPS_INIT) mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
  if (state == IBV_QPS_RTS) mask |= IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY;
  return ibv_modify_qp(qp, &attr, mask);
}

void Node::bringUp() {
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS})
    require(setState(state) == 0, "ibv_modify_qp");
}

void Node::replaceQueuePair() {
  ibv_destroy_qp(qp);
  ++qkey;
  createQueuePair();
  bringUp();
}

ibv_gid Node::gid() const {
  ibv_gid gid{};
  require(ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_gid");
  return gid;
}

ibv_ah* Node::handleFor(const ibv_gid& gid) {
  ibv_ah_attr attr{};
  attr.port_num = 1;
  attr.is_global = 1;
  attr.grh.dgid = gid;
  ibv_ah* const ah = ibv_create_ah(pd, &attr);
  require(ah, "ibv_create_ah");
  handles_.push_back(ah);
  return ah;
}

void Node::dropHandle(ibv_ah* ah) {
  std::erase(handles_, ah);
  ibv_destroy_ah(ah);
}

std::unique_ptr<Memory> Node::memory(size_t size, int access) {
  auto memory = std::make_unique<Memory>();
  memory->bytes.resize(size);
  memory->mr =
      ibv_reg_mr_iova2(pd, memory->bytes.data(), size, memory->address(), static_cast<unsigned>(access));
  require(memory->mr, "ibv_reg_mr");
  return memory;
}

int Node::receive(uint64_t wrId, const ibv_sge& piece) {
  ibv_sge list = piece;
  ibv_recv_wr work{};
  work.wr_id = wrId;
  work.sg_list = &list;
  work.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp, &work, &bad);
}

int Node::finish(const Target& to, const ibv_sge& piece) {
  if (piece.length > 0) ibv_wr_set_sge_list(extended(), 1, &piece);
  ibv_wr_set_ud_addr(extended(), to.ah, to.qpn, to.qkey);
  return ibv_wr_complete(extended());
}

int Node::send(uint64_t wrId, const Target& to, const ibv_sge& piece, std::optional<uint32_t> imm) {
  ibv_wr_start(extended());
  extended()->wr_id = wrId;
  if (imm) {
    ibv_wr_send_imm(extended(), *imm);
  } else {
    ibv_wr_send(extended());
  }
  return finish(to, piece);
}

int Node::sendInline(uint64_t wrId, const Target& to, const std::string& text) {
  std::string copy = text;
  const ibv_data_buf buffer{copy.data(), copy.size()};
  ibv_wr_start(extended());
  extended()->wr_id = wrId;
  ibv_wr_send(extended());
  ibv_wr_set_inline_data_list(extended(), 1, &buffer);
  return finish(to, {});
}

int Node::write(uint64_t wrId, const Target& to, const ibv_sge& piece, const Memory& remote, size_t offset,
                std::optional<uint32_t> imm) {
  return writeTo(wrId, to, piece, remote.mr->rkey, remote.address() + offset, imm);
}

int Node::writeTo(uint64_t wrId, const Target& to, const ibv_sge& piece, uint32_t rkey, uint64_t address,
                  std::optional<uint32_t> imm) {
  ibv_wr_start(extended());
  extended()->wr_id = wrId;
  if (imm) {
    ibv_wr_rdma_write_imm(extended(), rkey, address, *imm);
  } else {
    ibv_wr_rdma_write(extended(), rkey, address);
  }
  return finish(to, piece);
}

int Node::read(uint64_t wrId, const Target& to, const ibv_sge& piece, const Memory& remote, size_t offset) {
  return readFrom(wrId, to, piece, remote.mr->rkey, remote.address() + offset);
}

int Node::readFrom(uint64_t wrId, const Target& to, const ibv_sge& piece, uint32_t rkey, uint64_t address) {
  ibv_wr_start(extended());
  extended()->wr_id = wrId;
  ibv_wr_rdma_read(extended(), rkey, address);
  return finish(to, piece);
}

int Node::poll(Done& done) {
  ibv_poll_cq_attr attr{};
  const int found = ibv_start_poll(cq, &attr);
  if (found != 0) return found;
  EfaCq* const efa = reinterpret_cast<EfaCq*>(efadv_cq_from_ibv_cq_ex(cq));
  ibv_gid sgid{};
  done = {cq->wr_id,
          cq->status,
          ibv_wc_read_vendor_err(cq),
          ibv_wc_read_opcode(cq),
          ibv_wc_read_byte_len(cq),
          ibv_wc_read_imm_data(cq),
          ibv_wc_read_wc_flags(cq),
          ibv_wc_read_qp_num(cq),
          ibv_wc_read_src_qp(cq),
          ibv_wc_read_slid(cq),
          efa->readSgid(efa, &sgid) == 0,
          efa->isUnsolicited(efa)};
  ibv_end_poll(cq);
  return 0;
}

std::optional<Done> Node::next(std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  Done done{};
  while (std::chrono::steady_clock::now() < end) {
    if (poll(done) == 0) return done;
    std::this_thread::yield();
  }
  return std::nullopt;
}

Done Node::take() {
  const auto done = next();
  if (!done) throw std::runtime_error("no completion came");
  return *done;
}

void Node::setFaults(const std::string& assignments) {
  require(softefa_set_faults(context, assignments.c_str()) == 0, "softefa_set_faults");
}

uint64_t Node::counter(const char* name) const {
  uint64_t value = 0;
  require(softefa_counter(context, name, &value) == 0, name);
  return value;
}

Outcome runProgram(const std::string& settings, const std::string& command) {
  const std::string line = "SOFTEFA_FABRIC=" + testFabric() + " " + settings + " " + command + " 2>&1";
  Outcome outcome{-1, {}};
  std::FILE* const pipe = ::popen(line.c_str(), "re");
  if (!pipe) return outcome;
  char part[512];
  for (size_t got = 0; (got = std::fread(part, 1, sizeof part, pipe)) > 0;) outcome.output.append(part, got);
  outcome.status = ::pclose(pipe);
  return outcome;
}

}  // namespace softefa::check
