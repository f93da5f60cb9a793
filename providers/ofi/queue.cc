// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/queue.h"

#include <algorithm>
#include <array>

#include "providers/ofi/descriptors.h"
#include "providers/ofi/endpoint.h"
#include "providers/ofi/lines.h"
#include "src/base/log.h"
#include "src/base/random.h"

// The poll: completions, errors, events, and the shared endpoint's cut and renewal.
namespace weft::ofi {

namespace {

constexpr uint32_t kLeastDepth = 64;

bool carriesLength(const fi_info& info) {
  return info.domain_attr->cq_data_size >= 8;
}

int giveUniqueName(fid_ep* endpoint) {
  std::string name = format("fi_shm://weft-%016llx%016llx", static_cast<unsigned long long>(randomU64()),
                            static_cast<unsigned long long>(randomU64()));
  return fi_setname(&endpoint->fid, name.data(), name.size() + 1);
}

}  // namespace

OfiQueue::OfiQueue(OfiDevice& device, const QueueDepths& wanted)
    : device_(device),
      depths_{std::max(wanted.sends, 1u), std::max(wanted.notifications, 1u)},
      lengthInData_(carriesLength(device.fabricInfo())),
      knowsSource_(device.traits().reportsSource),
      operations_(0) {}

// The depths that were granted say -1: libfabric takes a class with the description of a card, which all
// queues of the device share.
Result<std::unique_ptr<Queue>> OfiQueue::create(OfiDevice& device, const QueueDepths& wanted) {
  if (wanted.trafficClass >= 0)
    WEFT_LOG(info, "%s sends in the fabric's own traffic class, not in %d, which NCCL asked for",
             device.info().name.c_str(), wanted.trafficClass);
  auto queue = std::make_unique<OfiQueue>(device, wanted);
  TRY(queue->start());
  return std::unique_ptr<Queue>(std::move(queue));
}

Status OfiQueue::start() {
  const ClosedOnExec opened;
  domain_ = device_.sharedDomain();
  if (!domain_) {
    TRY(ownDomain_, Domain::open(device_.library(), device_.fabricInfo(), true));
    domain_ = ownDomain_.get();
    TRY(device_.registry().attach(domain_));
  }
  gate_ = domain_->gate();
  const Entered entered(gate());
  TRY(openBook());
  TRY(openCompletionQueue());
  if (device_.traits().wantsEventQueue) {
    TRY(eq_, domain_->openEventQueue());
  }
  if (device_.traits().software) return {};
  TRY(sharedEndpoint_, openFabricEndpoint());
  return postReceives();
}

OfiQueue::~OfiQueue() {
  closer_.finish();
  {
    const Entered entered(gate());
    parked_.clear();
    sharedEndpoint_.reset();
    cq_.reset();
    book_.reset();
  }
  releaseMemory();
  if (ownDomain_) device_.registry().detach(ownDomain_.get());
}

// Hardware providers have a largest queue and no way to ask for its size: so try, and halve.
Status OfiQueue::openCompletionQueue() {
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_DATA;
  attributes.wait_obj = FI_WAIT_NONE;
  for (;;) {
    attributes.size = depths_.sends + depths_.notifications + kOwnOperations;
    fid_cq* raw = nullptr;
    const int code = fi_cq_open(domain_->get(), &attributes, &raw, nullptr);
    if (code == 0) {
      cq_.reset(raw);
      // As many as the completion queue has room for.
      operations_ = OperationPool(depths_.sends + kOwnOperations);
      return {};
    }
    if (depths_.notifications <= kLeastDepth)
      return fabricError(domain_->library(), "opening a completion queue", device_.info().name, code);
    depths_.notifications /= 2;
    depths_.sends = std::min(depths_.sends, std::max(depths_.sends / 2, kLeastDepth));
  }
}

// Between processes of a host, EFA's plain fabric would use its shared memory. That refuses writes with data
// in libfabric 2, is not fenced by closing the endpoint, and checks no key. Other providers and 1.17 do not
// know the option.
void OfiQueue::keepToTheCard(fid_ep* endpoint) const {
  const bool permitted = false;
  (void)fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, kSharedMemoryPermitted, &permitted, sizeof permitted);
  if (!device_.info().withoutGpu.empty()) return;
  const size_t none = 0;  // the card takes GPU memory for the host's, and would read it
  (void)fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, kInjectedWrite, &none, sizeof none);
}

Result<FidPtr<fid_ep>> OfiQueue::openFabricEndpoint() {
  fid_ep* raw = nullptr;
  int code = fi_endpoint(domain_->get(), &device_.fabricInfo(), &raw, nullptr);
  FidPtr<fid_ep> endpoint(raw);
  if (code == 0 && device_.traits().namedAfterProcess) code = giveUniqueName(raw);
  if (code == 0 && !device_.traits().software) keepToTheCard(raw);
  if (code == 0 && device_.info().lines128InOrder && (code = askForLines(raw)) != 0)
    return fabricError(
        domain_->library(), "opening an endpoint",
        device_.info().name + " no longer promises 128-byte lines in order, which NCCL was told", code);
  if (code == 0) code = fi_ep_bind(raw, &book_->get()->fid, 0);
  if (code == 0) code = fi_ep_bind(raw, &cq_->fid, FI_TRANSMIT | FI_RECV);
  if (code == 0 && eq_) code = fi_ep_bind(raw, &eq_->fid, 0);
  if (code == 0) code = fi_enable(raw);
  if (code == 0) return endpoint;
  return fabricError(domain_->library(), "opening an endpoint", device_.info().name, code);
}

// Where a remote write with data consumes a posted receive (FI_RX_CQ_DATA), receives are kept posted.
Status OfiQueue::postReceives() {
  if (!(device_.fabricInfo().mode & FI_RX_CQ_DATA)) return {};
  const size_t room = device_.fabricInfo().rx_attr->size;
  depths_.notifications = static_cast<uint32_t>(std::min<size_t>(depths_.notifications, room));
  receives_.resize(depths_.notifications);
  unposted_.clear();
  unposted_.reserve(receives_.size());  // for all of them: a poll allocates nothing
  for (Operation& receive : receives_) {
    receive.purpose = Purpose::receive;
    const ssize_t code = fi_recv(sharedEndpoint_.get(), nullptr, 0, nullptr, FI_ADDR_UNSPEC, &receive);
    if (code != 0) return fabricError(domain_->library(), "posting receives", device_.info().name, code);
  }
  return {};
}

// A receive that is not posted again is lost for good, and with all of them lost every peer's card waits for
// one (RNR). Where the card has no room now, a later poll posts it.
void OfiQueue::postReceive(Operation* receive) {
  if (!sharedEndpoint_) return;  // it has been cut; the next one gets all of them
  if (fi_recv(sharedEndpoint_.get(), nullptr, 0, nullptr, FI_ADDR_UNSPEC, receive) == 0) [[likely]]
    return;
  unposted_.push_back(receive);
  attention_ = true;
}

void OfiQueue::postWaiting() {
  while (sharedEndpoint_ && !unposted_.empty()) {
    if (fi_recv(sharedEndpoint_.get(), nullptr, 0, nullptr, FI_ADDR_UNSPEC, unposted_.back()) != 0) return;
    unposted_.pop_back();
  }
}

Result<std::unique_ptr<Endpoint>> OfiQueue::openEndpoint() {
  if (failed_)
    return Error(Code::unavailable, "opening an endpoint", device_.info().name + ": " + failedWhy_);
  if (endpointCut_) {
    TRY(renewEndpoint());
  }
  TRY(auto endpoint, OfiEndpoint::create(*this));
  lanes_.push_back(static_cast<OfiEndpoint*>(endpoint.get()));
  return endpoint;
}

inline ssize_t OfiQueue::read(size_t room) {
  room = std::min(room, kBatch);
  return knowsSource_ ? fi_cq_readfrom(cq_.get(), entries_.data(), room, sources_.data())
                      : fi_cq_read(cq_.get(), entries_.data(), room);
}

size_t OfiQueue::readCompletions(std::span<Completion> out) {
  const ssize_t got = read(out.size());
  return got < 0 ? readNothing(got, out) : translateAll(static_cast<size_t>(got), out.data());
}

// The read mostly finds nothing, or one entry.
size_t OfiQueue::poll(std::span<Completion> out) {
  const TriedToEnter inside(gate());
  if (!inside) [[unlikely]]
    return 0;
  if (attention_) [[unlikely]]
    return pollWithCare(out);
  const ssize_t got = read(out.size());
  if (got == 1) return translate(entries_[0], sources_[0], out.data()) ? 1 : 0;
  if (got >= 0) return translateAll(static_cast<size_t>(got), out.data());  // 0: `out` has no room
  return got == -FI_EAGAIN && !eq_ ? 0 : readNothing(got, out);
}

// The rare cases: words of the last poll to forget, events to hand out, lanes that connect or retire.
size_t OfiQueue::pollWithCare(std::span<Completion> out) {
  events_.beginPoll();
  drained_ = false;
  if (endpointClosing_ && closer_.closed()) endpointClosed();
  size_t count = events_.take(out);
  if (count < out.size() && !failed_ && !endpointClosing_) count += readCompletions(out.subspan(count));
  if (!pending_.empty()) progressLanes();
  postWaiting();
  attention_ = failed_ || endpointCut_ || events_.explains() || !events_.empty() || !pending_.empty() ||
               !unposted_.empty();
  return count;
}

size_t OfiQueue::readNothing(ssize_t code, std::span<Completion> out) {
  if (code == -FI_EAGAIN) {
    drained_ = true;
    if (endpointCut_ && orphans_ > 0) reclaimOperations();
    if (eq_ && ++emptyReads_ % kReadsPerEventRead == 0) readEvents();
    return 0;
  }
  if (code == -FI_EAVAIL) return readErrors(out);
  queueFailed(code);
  return 0;
}

inline void OfiQueue::fillNotified(const fi_cq_data_entry& entry, Completion* out) const {
  out->kind = CompletionKind::notified;
  out->ok = true;
  out->imm = static_cast<uint32_t>(entry.data);
  out->length = lengthInData_ ? entry.data >> 32 : entry.len;
}

inline bool OfiQueue::notified(const fi_cq_data_entry& entry, fi_addr_t source, Completion* out) {
  if (entry.data == kRing) [[unlikely]]
    return helloCame(source);
  fillNotified(entry, out);
  out->source = knowsSource_ && book_ ? book_->laneFrom(source) : nullptr;
  if (!receives_.empty()) postReceive(static_cast<Operation*>(entry.op_context));
  return true;
}

inline bool OfiQueue::translate(const fi_cq_data_entry& entry, fi_addr_t source, Completion* out) {
  if (entry.flags & FI_REMOTE_CQ_DATA) return notified(entry, source, out);
  auto* operation = static_cast<Operation*>(entry.op_context);
  if (!operation || !operation->lane || operation->purpose > Purpose::unsignaled) [[unlikely]]
    return finish(operation, 0, {}, out);
  operation->lane->succeeded(*operation, out);
  const bool wanted = operation->purpose == Purpose::work;
  operations_.give(operation);
  return wanted;
}

bool OfiQueue::helloCame(fi_addr_t by) {
  if (OfiEndpoint* lane = book_ ? book_->laneFrom(by) : nullptr) lane->helloCame(by);
  return false;  // nothing to hand out
}

size_t OfiQueue::translateAll(size_t read, Completion* out) {
  Completion* next = out;
  for (size_t i = 0; i < read; i++) {
    if (translate(entries_[i], sources_[i], next)) next++;
  }
  return static_cast<size_t>(next - out);
}

// EFA 1.17 was seen to report an operation that had been taken back already, after its endpoint was closed;
// hence the check of the purpose.
bool OfiQueue::finish(Operation* operation, int error, std::string_view why, Completion* out) {
  if (operation && operation->purpose == Purpose::receive) [[unlikely]]
    receiveEnded(operation, error);
  if (!operation || operation->purpose >= Purpose::receive) return false;
  const bool wanted = operation->lane && operation->lane->finished(*operation, error, why, out);
  if (!operation->lane && --orphans_ == 0) {
    parked_.clear();
    releaseMemory();
  }
  operations_.give(operation);
  return wanted;
}

// Without a notification: somebody sent what no receive of ours is for, or the queue pair is gone, which
// takes no receive any more. It waits for the end of the poll: a card that ends each at once would keep this
// one busy for ever.
void OfiQueue::receiveEnded(Operation* receive, int error) {
  if (error == FI_ECANCELED || unposted_.size() == receives_.size()) return;
  unposted_.push_back(receive);
  attention_ = true;
}

size_t OfiQueue::readErrors(std::span<Completion> out) {
  size_t count = 0;
  while (count < out.size() && readError(&out[count])) {
    if (out[count].kind == CompletionKind::sent && !out[count].ok) count++;
  }
  return count;
}

// False: there is no error to read. The provider's own words are kept for hardware only, as software
// providers leave a stale errno there.
bool OfiQueue::readError(Completion* out) {
  *out = Completion{};
  CompletionError read;
  const fi_cq_err_entry& entry = read.entry;
  if (fi_cq_readerr(cq_.get(), &read.entry, 0) <= 0) return false;
  std::string why = domain_->library().errorText(entry.err);
  if (!device_.traits().software) {
    std::array<char, 256> words{};
    const char* text =
        fi_cq_strerror(cq_.get(), entry.prov_errno, entry.err_data, words.data(), words.size());
    if (text) why += format(" (provider: %s, %d)", text, entry.prov_errno);
  }
  if (!finish(static_cast<Operation*>(entry.op_context), entry.err, why, out)) *out = Completion{};
  return true;
}

// The completion queue itself has failed (overrun, device gone): nothing that any lane reports can be
// believed any more.
void OfiQueue::queueFailed(int64_t code) {
  failed_ = attention_ = true;
  failedWhy_ = "the completion queue failed: " + domain_->library().errorText(code);
  for (OfiEndpoint* lane : lanes_) lane->broke(failedWhy_);
}

// Errors that belong to no operation. Flushed receives mean that the queue pair is gone: the card died or was
// reset. Any other error ends the operations that it concerns, or their deadlines do.
void OfiQueue::readEvents() {
  constexpr int kFlushed = 1;  // EFA_IO_COMP_STATUS_FLUSHED in the kernel's efa_io_defs.h
  uint32_t event = 0;
  fi_eq_err_entry entry{};
  int flushed = 0;
  while (fi_eq_read(eq_.get(), &event, nullptr, 0, 0) == -FI_EAVAIL &&
         fi_eq_readerr(eq_.get(), &entry, 0) > 0)
    if (entry.prov_errno == kFlushed) flushed = entry.err;
  if (flushed == 0 || endpointCut_) return;
  device_.markLost();
  cutEndpoint("the card ended all its work: " + domain_->library().errorText(flushed));
}

// An address of a software provider belongs to one lane and may come again for another, so none is kept.
Status OfiQueue::openBook() {
  TRY(book_, AddressBook::open(*domain_, device_.fabricInfo().addr_format,
                               device_.traits().software ? 0 : AddressBook::kKept));
  return {};
}

void OfiQueue::cutEndpoint(const std::string& why) {
  endpointCut_ = endpointClosing_ = attention_ = true;
  unposted_.clear();
  cutWhy_ = why;
  for (OfiEndpoint* lane : lanes_) lane->endpointGoing(why);
  closer_.close(std::move(sharedEndpoint_));
}

// Closing the endpoint destroyed its queue pair: nothing that any lane posted to it is on its way any more.
// The address book goes with it, as the provider keeps its knowledge of peers there.
void OfiQueue::endpointClosed() {
  closer_.finish();
  endpointClosing_ = false;
  for (OfiEndpoint* lane : lanes_) lane->endpointGone(cutWhy_);
  book_.reset();
  releaseMemory();
}

size_t OfiQueue::wantedLanes() const {
  return static_cast<size_t>(
      std::count_if(lanes_.begin(), lanes_.end(), [](const OfiEndpoint* lane) { return lane->wanted(); }));
}

void OfiQueue::holdMemory() {
  if (!holdsMemory_) device_.registry().hold();
  holdsMemory_ = true;
}

void OfiQueue::releaseMemory() {
  if (holdsMemory_) device_.registry().release();
  holdsMemory_ = false;
}

// The completions of the old endpoint are read to their end first, so that its operations are free again.
Status OfiQueue::renewEndpoint() {
  TRY(device_.usable());
  if (endpointClosing_ || orphans_ > 0)
    return Error(Code::unavailable, "opening an endpoint",
                 device_.info().name + ": the last one is still ending");
  TRY(openBook());
  TRY(sharedEndpoint_, openFabricEndpoint());
  Status posted = postReceives();
  if (!posted) sharedEndpoint_.reset();  // before its addresses, which the next try renews
  endpointCut_ = !posted;
  return posted;
}

void OfiQueue::reclaimOperations() {
  operations_.reset();
  orphans_ = 0;
}

void OfiQueue::progressLanes() {
  const TimePoint now = device_.clock().now();
  const auto done = [&](OfiEndpoint* lane) { return !lane->progress(now, drained_ || failed_); };
  pending_.erase(std::remove_if(pending_.begin(), pending_.end(), done), pending_.end());
}

void OfiQueue::progress(OfiEndpoint* lane) {
  attention_ = true;
  if (std::find(pending_.begin(), pending_.end(), lane) == pending_.end()) pending_.push_back(lane);
}

void OfiQueue::forget(OfiEndpoint* lane, FidPtr<fid_ep> endpoint) {
  lanes_.erase(std::remove(lanes_.begin(), lanes_.end(), lane), lanes_.end());
  pending_.erase(std::remove(pending_.begin(), pending_.end(), lane), pending_.end());
  events_.eraseIf([lane](const Completion& completion) { return completion.source == lane; });
  abandon(lane, [](const Operation&) {});
  if (endpoint && orphans_ > 0 && !device_.traits().closesCleanly) parked_.push_back(std::move(endpoint));
}

// Reading no entries makes a provider look at its sockets; it handles a limited number at each look.
void OfiQueue::turnStrangersAway(std::span<const Bytes> names) {
  constexpr int kMostTimes = 100;
  if (!device_.traits().oneDials) return;
  for (int i = 0; i < kMostTimes; i++) {
    const size_t silent = turnSilentAway(names);
    (void)fi_cq_read(cq_.get(), nullptr, 0);
    if (silent == 0) return;
  }
}

void OfiQueue::report(const Completion& completion, std::string why) {
  attention_ = true;
  events_.report(completion, std::move(why));
}

void OfiQueue::explainNow(const Completion& completion, std::string why) {
  attention_ = true;
  events_.explainNow(completion, std::move(why));
}

std::string OfiQueue::explain(const Completion& completion) const {
  if (const std::string* why = events_.wordsOf(completion)) return *why;
  return completion.ok ? "no error" : domain_->library().errorText(completion.error);
}

}  // namespace weft::ofi
