// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/support/fake_verbs.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

#include "providers/verbs/device.h"
#include "src/base/fd.h"

namespace weft::test {

namespace {

FakeVerbs* theOne = nullptr;

constexpr const char* kNames[] = {"fake0", "fake1", "fake2", "fake3"};
constexpr size_t kCards = std::size(kNames);

std::byte* at(uint64_t address) {
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(address));
}

}  // namespace

struct FakeVerbs::Card {
  int number = 0;
  ibv_device device{};
  verbs_context table{};
  ibv_pd domain{};
  Reached reached;
  Milliseconds late{0};  // before its queue pairs are ready to receive
  std::deque<ibv_async_event> happened;
  Fd events{::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)};
};

struct FakeVerbs::CompletionQueue {
  ibv_cq queue{};
  std::deque<ibv_wc> entries;
  int looks = 0;  // in vain
};

struct FakeVerbs::ReceiveQueue {
  ibv_srq queue{};
  std::deque<uint64_t> ids;
};

struct FakeVerbs::Pair {
  ibv_qp pair{};
  int card = 0;
  ibv_qp_attr connected{};
  ibv_qp_state state = IBV_QPS_RESET;
  bool failNext = false;
  std::deque<std::pair<ibv_send_wr, std::vector<std::byte>>> held;
  Asked asked;
  Ece ece;
};

struct FakeVerbs::Region {
  ibv_mr region{};
};

namespace {

// Ports as a transport, without discovery, which reads sysfs.
class Ports : public Transport {
 public:
  Ports(std::shared_ptr<const verbs::Library> library, std::vector<verbs::Port> ports, const Clock& clock)
      : library_(std::move(library)), ports_(std::move(ports)), clock_(clock) {}
  std::string name() const override { return "verbs"; }
  std::string version() const override { return "fake"; }
  Result<std::vector<DeviceInfo>> discover() override {
    std::vector<DeviceInfo> infos;
    for (const verbs::Port& port : ports_) infos.push_back(port.info);
    return infos;
  }
  std::vector<Refusal> refusals() const override { return {}; }
  Result<std::shared_ptr<Device>> open(const DeviceInfo& info) override {
    for (const verbs::Port& port : ports_)
      if (port.info.name == info.name) return verbs::VerbsDevice::open(library_, port, clock_);
    return Error(Code::unavailable, "opening a device", info.name);
  }

 private:
  const std::shared_ptr<const verbs::Library> library_;
  const std::vector<verbs::Port> ports_;
  const Clock& clock_;
};

}  // namespace

FakeVerbs::Card& FakeVerbs::cardOf(const ibv_device* device) {
  for (auto& card : cards_)
    if (&card->device == device) return *card;
  return *cards_.front();
}

FakeVerbs::FakeVerbs() : library_(std::make_shared<verbs::Library>()) {
  theOne = this;
  for (size_t i = 0; i < kCards; i++) {
    auto card = std::make_unique<Card>();
    card->number = static_cast<int>(i);
    card->reached = {"::ffff:192.0.2." + std::to_string(i + 1), static_cast<uint16_t>(i + 1)};
    ibv_context& context = card->table.context;
    context.device = &card->device;
    context.ops.post_send = post;
    context.ops.poll_cq = poll;
    context.ops.post_srq_recv = postReceives;
    context.async_fd = card->events.get();
    context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    card->table.sz = sizeof card->table;
    card->table.query_port = askPort;
    card->domain.context = &context;
    cards_.push_back(std::move(card));
  }
  bindCards(library_.get());
  bindMemory(library_.get());
  bindPairs(library_.get());
}

FakeVerbs::~FakeVerbs() {
  theOne = nullptr;
}

void FakeVerbs::bindCards(verbs::Library* library) {
  library->getDeviceList = [](int* count) {
    static ibv_device* list[kCards + 1];
    for (size_t i = 0; i < kCards; i++) {
      list[i] = &theOne->cards_[i]->device;
      list[i]->transport_type = theOne->speaks;
    }
    *count = kCards;
    return static_cast<ibv_device**>(list);
  };
  library->freeDeviceList = [](ibv_device**) {};
  library->getDeviceName = [](ibv_device* device) { return kNames[theOne->cardOf(device).number]; };
  library->openDevice = [](ibv_device* device) -> ibv_context* {
    errno = theOne->openFails;
    if (theOne->openFails != 0) return nullptr;
    return &theOne->cardOf(device).table.context;
  };
  library->closeDevice = [](ibv_context*) { return 0; };
  library->queryDevice = [](ibv_context*, ibv_device_attr* out) {
    *out = {};
    out->max_srq = 1;
    out->phys_port_cnt = 1;
    out->max_cqe = out->max_srq_wr = 1 << 16;
    out->max_qp_wr = 1024;
    return 0;
  };
  library->allocPd = [](ibv_context* context) { return &theOne->cardOf(context->device).domain; };
  library->deallocPd = [](ibv_pd*) { return 0; };
  library->getAsyncEvent = [](ibv_context* context, ibv_async_event* out) {
    Card& card = theOne->cardOf(context->device);
    uint64_t one = 0;
    const std::lock_guard lock(theOne->mutex_);
    if (::read(card.events.get(), &one, sizeof one) < 0 || card.happened.empty()) return -1;
    *out = card.happened.front();
    card.happened.pop_front();
    if (out->event_type == IBV_EVENT_QP_LAST_WQE_REACHED) theOne->handled_.insert(out->element.qp);
    return 0;
  };
  library->ackAsyncEvent = [](ibv_async_event* event) {
    const std::lock_guard lock(theOne->mutex_);
    if (event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED) theOne->handled_.erase(event->element.qp);
    theOne->acknowledged_.notify_all();
  };
}

int FakeVerbs::askPort(ibv_context*, uint8_t, ibv_port_attr* out, size_t bytes) {
  std::memset(out, 0, bytes);
  out->state = theOne->portState;
  out->link_layer = theOne->infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  out->active_mtu = IBV_MTU_4096;
  out->pkey_tbl_len = 1;
  out->gid_tbl_len = 1;
  out->max_msg_sz = 1 << 30;
  return 0;
}

void FakeVerbs::bindMemory(verbs::Library* library) {
  library->regMr = [](ibv_pd* pd, void* address, size_t length, int) -> ibv_mr* {
    const std::lock_guard lock(theOne->mutex_);
    errno = theOne->registerFails != 0 ? theOne->registerFails : theOne->room <= 0 ? ENOMEM : 0;
    if (errno != 0) return nullptr;
    theOne->room--;
    auto made = std::make_unique<Region>();
    made->region.context = pd->context;
    made->region.pd = pd;
    made->region.addr = address;
    made->region.length = length;
    ibv_mr* key = &made->region;
    theOne->regions_.emplace(key, std::move(made));
    return key;
  };
  library->regMrIova2 = [](ibv_pd* pd, void* address, size_t length, uint64_t, unsigned access) -> ibv_mr* {
    theOne->relaxed += (access & IBV_ACCESS_RELAXED_ORDERING) != 0;
    return theOne->library_->regMr(pd, address, length, 0);
  };
  library->deregMr = [](ibv_mr* region) {
    const std::lock_guard lock(theOne->mutex_);
    theOne->regions_.erase(region);
    theOne->room++;
    return 0;
  };
  library->createCq = [](ibv_context* context, int, void*, ibv_comp_channel*, int) {
    const std::lock_guard lock(theOne->mutex_);
    auto made = std::make_unique<CompletionQueue>();
    made->queue.context = context;
    ibv_cq* key = &made->queue;
    theOne->completionQueues_.emplace(key, std::move(made));
    return key;
  };
  library->destroyCq = [](ibv_cq* queue) {
    const std::lock_guard lock(theOne->mutex_);
    theOne->completionQueues_.erase(queue);
    return 0;
  };
  library->createSrq = [](ibv_pd* pd, ibv_srq_init_attr*) {
    const std::lock_guard lock(theOne->mutex_);
    auto made = std::make_unique<ReceiveQueue>();
    made->queue.context = pd->context;
    ibv_srq* key = &made->queue;
    theOne->receiveQueues_.emplace(key, std::move(made));
    return key;
  };
  library->destroySrq = [](ibv_srq* queue) {
    const std::lock_guard lock(theOne->mutex_);
    theOne->receiveQueues_.erase(queue);
    return 0;
  };
}

void FakeVerbs::bindPairs(verbs::Library* library) {
  library->createQp = [](ibv_pd* pd, ibv_qp_init_attr* wanted) {
    const std::lock_guard lock(theOne->mutex_);
    auto made = std::make_unique<Pair>();
    made->pair.context = pd->context;
    made->pair.send_cq = wanted->send_cq;
    made->pair.recv_cq = wanted->recv_cq;
    made->pair.srq = wanted->srq;
    made->pair.qp_num = theOne->nextPair_++;
    made->card = theOne->cardOf(pd->context->device).number;
    ibv_qp* key = &made->pair;
    theOne->pairs_.emplace(key->qp_num, std::move(made));
    return key;
  };
  library->modifyQp = [](ibv_qp* qp, ibv_qp_attr* to, int mask) {
    std::unique_lock lock(theOne->mutex_);
    if ((mask & IBV_QP_AV) && theOne->noRoute) {
      theOne->lookedFor++;
      return ENETUNREACH;
    }
    const Milliseconds late = theOne->cards_[static_cast<size_t>(pairOf(qp)->card)]->late;
    if ((mask & IBV_QP_AV) && late > Milliseconds(0)) {
      lock.unlock();
      std::this_thread::sleep_for(late);
      lock.lock();
    }
    theOne->move(*pairOf(qp), *to, mask);
    return 0;
  };
  library->queryEce = [](ibv_qp* qp, verbs::Ece* out) {
    const std::lock_guard lock(theOne->mutex_);
    const Ece& offer = theOne->ece[pairOf(qp)->card];
    *out = {offer.vendor, offer.options, 0};
    return 0;
  };
  library->setEce = [](ibv_qp* qp, verbs::Ece* wanted) {
    const std::lock_guard lock(theOne->mutex_);
    pairOf(qp)->ece = {wanted->vendor, wanted->options};
    return 0;
  };
  library->destroyQp = [](ibv_qp* qp) {
    theOne->destroy(qp);
    return 0;
  };
}

// Its entries that nobody read go with it, as with real cards, and so do events; it waits for the one that is
// being handled.
void FakeVerbs::destroy(const ibv_qp* qp) {
  destroyedByPoll += std::this_thread::get_id() == polls;
  std::unique_lock lock(mutex_);
  for (auto& card : cards_)
    std::erase_if(card->happened, [&](const ibv_async_event& event) {
      return event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == qp;
    });
  acknowledged_.wait(lock, [&] { return !handled_.contains(qp); });
  for (auto& [key, queue] : completionQueues_)
    std::erase_if(queue->entries, [&](const ibv_wc& entry) { return entry.qp_num == qp->qp_num; });
  pairs_.erase(qp->qp_num);
}

std::shared_ptr<const verbs::Library> FakeVerbs::library() {
  if (!eceThere) {
    library_->queryEce = nullptr;
    library_->setEce = nullptr;
  }
  return library_;
}

std::unique_ptr<Transport> FakeVerbs::transport(std::vector<int> cards, const Config& config) {
  std::vector<verbs::Port> ports;
  for (const int card : cards) ports.push_back(portOf(static_cast<size_t>(card), config));
  return std::make_unique<Ports>(library(), std::move(ports), *clock);
}

verbs::Port FakeVerbs::portOf(size_t card, const Config& config) {
  verbs::Port port;
  port.card = kNames[card];
  port.device = &cards_[card]->device;
  port.info.name = port.card + ":1";
  port.info.provider = "verbs";
  port.info.mtu = 128 << mtus[card];
  port.info.delivery = Delivery::always;
  port.info.peerMustStand = true;
  port.ethernet = !infiniband;
  port.settings = verbs::settingsFrom(config, false, port.ethernet);
  port.settings.apart = std::max(port.settings.apart, apart);
  port.info.retries = verbs::retriesWith(port.settings);
  port.readAddress = [this, card](ibv_context*) {
    auto address = addressOf(static_cast<int>(card));
    if (onAsking) onAsking();
    return address;
  };
  port.address = *addressOf(static_cast<int>(card));
  port.maxCompletions = port.maxReceives = 1 << 16;
  port.maxWorks = 1024;
  return port;
}

Result<verbs::PortAddress> FakeVerbs::addressOf(int number) {
  const std::lock_guard lock(mutex_);
  const Reached& by = cards_[static_cast<size_t>(number)]->reached;
  if (readFails > 0 && readFails-- > 0) return Error(Code::system, "asking the port", "fake", EIO);
  verbs::PortAddress address;
  int index = by.firstIndex;
  for (const std::string& gid : {by.gid, by.other}) {
    if (gid.empty()) continue;
    verbs::GidEntry entry{index++, {}, infiniband ? "" : "RoCE v2", infiniband ? "" : "eth0"};
    verbs::parseGid(gid, &entry.gid);
    address.table.push_back(entry);
  }
  address.gids = {address.table, "all there are"};
  if (address.table.empty()) address.none = "the port has none";
  address.mtu = mtus[number];
  address.lid = infiniband ? by.lid : uint16_t{0};
  address.needsHeader = by.needsHeader;
  return address;
}

void FakeVerbs::setReached(int card, const Reached& by) {
  const std::lock_guard lock(mutex_);
  cards_[static_cast<size_t>(card)]->reached = by;
}

void FakeVerbs::receivesLate(int card, Milliseconds by) {
  const std::lock_guard lock(mutex_);
  cards_[static_cast<size_t>(card)]->late = by;
}

void FakeVerbs::happens(int number, ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = 1;
  const std::lock_guard lock(mutex_);
  raise(*cards_[static_cast<size_t>(number)], event);
}

void FakeVerbs::raise(Card& card, const ibv_async_event& event) {
  card.happened.push_back(event);
  const uint64_t one = 1;
  (void)!::write(card.events.get(), &one, sizeof one);
}

FakeVerbs::Pair* FakeVerbs::pairOf(ibv_qp* qp) {
  return theOne->pairs_.at(qp->qp_num).get();
}

void FakeVerbs::move(Pair& pair, const ibv_qp_attr& to, int mask) {
  if (to.qp_state == IBV_QPS_ERR) return toError(pair);
  pair.state = to.qp_state;
  if (mask & IBV_QP_DEST_QPN) pair.connected = to;
  for (auto& [number, other] : pairs_)  // what was dropped here before comes again
    if (dropsEarly && !holding_ && other->connected.dest_qp_num == pair.pair.qp_num) carryOutHeld(*other);
}

void FakeVerbs::toError(Pair& pair) {
  if (pair.state != IBV_QPS_ERR && saysLast) {
    ibv_async_event last{};
    last.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
    last.element.qp = &pair.pair;
    raise(*cards_[static_cast<size_t>(pair.card)], last);
  }
  pair.state = IBV_QPS_ERR;
  for (const auto& one : pair.held) finish(pair, one.first, IBV_WC_WR_FLUSH_ERR);
  pair.held.clear();
}

int FakeVerbs::post(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
  const std::lock_guard lock(theOne->mutex_);
  Pair& pair = *pairOf(qp);
  pair.asked.posts++;
  int left = theOne->takesOnly.exchange(-1);
  for (ibv_send_wr* request = first; request; request = request->next) {
    if (left-- == 0) {
      *bad = request;
      return ENOMEM;
    }
    theOne->take(pair, *request);
  }
  return 0;
}

void FakeVerbs::take(Pair& pair, const ibv_send_wr& request) {
  Asked& asked = pair.asked;
  const size_t length = request.num_sge ? request.sg_list->length : 0;
  asked.requests++;
  asked.signalled += (request.send_flags & IBV_SEND_SIGNALED) != 0;
  asked.inlined += (request.send_flags & IBV_SEND_INLINE) != 0;
  asked.writes += request.opcode == IBV_WR_RDMA_WRITE;
  asked.notifications += request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  asked.bytes += length;
  if ((!holding_ && pair.held.empty()) || pair.state == IBV_QPS_ERR) return carryOut(pair, request);
  keep(pair, request);
}

void FakeVerbs::keep(Pair& pair, const ibv_send_wr& request) {
  std::vector<std::byte> data;
  if (request.num_sge)
    data.assign(at(request.sg_list->addr), at(request.sg_list->addr) + request.sg_list->length);
  pair.held.emplace_back(request, std::move(data));
}

void FakeVerbs::carryOut(Pair& pair, const ibv_send_wr& request) {
  if (pair.state == IBV_QPS_ERR) return finish(pair, request, IBV_WC_WR_FLUSH_ERR);
  const auto peer = pairs_.find(pair.connected.dest_qp_num);
  if (pair.failNext || peer == pairs_.end() || peer->second->state == IBV_QPS_ERR) {
    pair.failNext = false;
    finish(pair, request, IBV_WC_RETRY_EXC_ERR);
    return toError(pair);
  }
  if (peer->second->state < IBV_QPS_RTR) {
    tooEarly++;
    if (dropsEarly) return keep(pair, request);
  }
  const size_t length = request.num_sge ? request.sg_list->length : 0;
  std::byte* local = length ? at(request.sg_list->addr) : nullptr;
  std::byte* remote = at(request.wr.rdma.remote_addr);
  if (length && request.opcode == IBV_WR_RDMA_READ) std::memcpy(local, remote, length);
  if (length && request.opcode != IBV_WR_RDMA_READ) std::memcpy(remote, local, length);
  if (request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    Pair& there = *peer->second;
    ReceiveQueue& receives = *receiveQueues_.at(there.pair.srq);
    if (length == 0 && !carriesEmpty) return finish(pair, request, IBV_WC_SUCCESS);
    ibv_wc entry{};
    entry.wr_id = receives.ids.front();
    receives.ids.pop_front();
    entry.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    entry.imm_data = request.imm_data;
    entry.byte_len = tellsLength ? static_cast<uint32_t>(length) : 0;
    entry.qp_num = there.pair.qp_num;
    completionQueues_.at(there.pair.recv_cq)->entries.push_back(entry);
  }
  finish(pair, request, IBV_WC_SUCCESS);
}

void FakeVerbs::finish(Pair& pair, const ibv_send_wr& request, ibv_wc_status status) {
  if (status == IBV_WC_SUCCESS && !(request.send_flags & IBV_SEND_SIGNALED)) return;
  ibv_wc entry{};
  entry.wr_id = request.wr_id;
  entry.status = status;
  entry.qp_num = pair.pair.qp_num;
  completionQueues_.at(pair.pair.send_cq)->entries.push_back(entry);
}

int FakeVerbs::poll(ibv_cq* cq, int most, ibv_wc* out) {
  const std::lock_guard lock(theOne->mutex_);
  auto& entries = theOne->completionQueues_.at(cq)->entries;
  CompletionQueue& queue = *theOne->completionQueues_.at(cq);
  if (entries.size() < theOne->batch && ++queue.looks % 4 != 0) return 0;
  int count = 0;
  for (; count < most && !entries.empty(); count++, entries.pop_front()) out[count] = entries.front();
  return count;
}

int FakeVerbs::postReceives(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr**) {
  const std::lock_guard lock(theOne->mutex_);
  auto& ids = theOne->receiveQueues_.at(srq)->ids;
  for (const ibv_recv_wr* one = first; one; one = one->next) ids.push_back(one->wr_id);
  return 0;
}

std::vector<uint32_t> FakeVerbs::pairsOf(int card) {
  const std::lock_guard lock(mutex_);
  std::vector<uint32_t> numbers;
  for (const auto& [number, pair] : pairs_)
    if (pair->card == card) numbers.push_back(number);
  return numbers;
}

size_t FakeVerbs::receivesOf(int card) {
  const std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [key, queue] : receiveQueues_)
    if (queue->queue.context == &cards_[static_cast<size_t>(card)]->table.context) sum += queue->ids.size();
  return sum;
}

FakeVerbs::Asked FakeVerbs::asked(uint32_t pair) {
  const std::lock_guard lock(mutex_);
  return pairs_.at(pair)->asked;
}

ibv_qp_attr FakeVerbs::connectedWith(uint32_t pair) {
  const std::lock_guard lock(mutex_);
  return pairs_.at(pair)->connected;
}

FakeVerbs::Ece FakeVerbs::eceSet(uint32_t pair) {
  const std::lock_guard lock(mutex_);
  return pairs_.at(pair)->ece;
}

void FakeVerbs::resetCounts() {
  const std::lock_guard lock(mutex_);
  for (auto& [number, pair] : pairs_) pair->asked = {};
}

void FakeVerbs::hold(bool on) {
  const std::lock_guard lock(mutex_);
  holding_ = on;
  for (auto& [number, pair] : pairs_)
    if (!on) carryOutHeld(*pair);
}

void FakeVerbs::release(uint32_t pair) {
  const std::lock_guard lock(mutex_);
  carryOutHeld(*pairs_.at(pair));
}

// A work that is held carries copies of its data, as inline data must be gone once posted.
void FakeVerbs::carryOutHeld(Pair& pair) {
  for (auto held = std::exchange(pair.held, {}); auto& [request, data] : held) {
    ibv_sge piece{reinterpret_cast<uintptr_t>(data.data()), static_cast<uint32_t>(data.size()), 0};
    request.sg_list = &piece;
    carryOut(pair, request);
  }
}

void FakeVerbs::failNext(uint32_t pair) {
  const std::lock_guard lock(mutex_);
  pairs_.at(pair)->failNext = true;
}

}  // namespace weft::test
