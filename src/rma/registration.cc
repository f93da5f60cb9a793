// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <utility>

#include "src/base/log.h"
#include "src/rma/team.h"

// Windows: the memory of this rank, and what the ranks tell each other about it.
namespace weft::rma {

namespace {

constexpr const char* kRegistering = "registering a window";

}  // namespace

// On both comms of every link, as a comm moves only what is registered on it. The region below is one.
Status Team::registerOnLinks(Window& window) {
  for (uint32_t rank = 0; rank < ranks(); rank++) {
    const coll::Pipe* pipe = mesh_->pipe(static_cast<int>(rank));
    if (!pipe) continue;
    TRY(window.sending[rank], pipe->sending().registerMemory(window.memory));
    TRY(window.receiving[rank], pipe->receiving().registerMemory(window.memory));
  }
  return {};
}

// A GPU's memory that the fabric refuses is copied by the driver instead.
Result<Descriptor> Team::registerHere(Window& window, const MemoryDesc& desc) {
  window.memory = desc;
  TRY(memory_.settle(window));
  if (const Status registered = registerOnLinks(window); !registered) {
    if (window.host()) return registered.error();
    releaseHere(window);
    window.staged = true;
    WEFT_LOG(info, "a window of %zu bytes of GPU %d goes through host memory: %s", desc.length,
             window.memory.gpu, registered.error().message().c_str());
  }
  Descriptor own;
  own.length = desc.length;
  own.registered = 1;
  own.inlines = window.direct() ? 0 : 1;
  own.staged = window.staged ? 1 : 0;
  return own;
}

void Team::releaseHere(Window& window) {
  for (uint32_t rank = 0; rank < ranks(); rank++) {
    const coll::Pipe* pipe = mesh_->pipe(static_cast<int>(rank));
    if (!pipe) continue;
    if (auto* sending = std::exchange(window.sending[rank], nullptr))
      (void)pipe->sending().deregisterMemory(sending);
    if (auto* receiving = std::exchange(window.receiving[rank], nullptr))
      (void)pipe->receiving().deregisterMemory(receiving);
  }
}

// A rank that cannot register takes part all the same: the others would wait for it.
Result<Window*> Team::registerMemory(const Result<MemoryDesc>& desc, bool neverReset) {
  std::lock_guard oneAtATime(registering_);
  auto made = std::make_unique<Window>();
  made->team = this;
  made->neverReset = neverReset;
  made->sending.assign(ranks(), nullptr);
  made->receiving.assign(ranks(), nullptr);
  made->uses.assign(ranks(), 0);
  auto own = desc ? registerHere(*made, *desc) : Result<Descriptor>(desc.error());
  Window* window = made.get();
  {
    std::lock_guard lock(mutex_);
    window->number = registered_++;
    window->ranks.assign(ranks(), Descriptor());
    if (own) window->ranks[rank()] = *own;
    windows_.emplace(window->number, std::move(made));
  }
  auto all = exchange(window->number, own ? *own : Descriptor());
  std::optional<Error> refused;
  if (!own) refused = own.error();
  if (!all && !refused) refused = all.error();
  if (all && !refused)
    for (uint32_t rank = 0; rank < ranks() && !refused; rank++)
      if ((*all)[rank].registered == 0)
        refused =
            Error(Code::unavailable, kRegistering, format("rank %u could not register its memory", rank));
  if (refused) {
    giveUp(window);  // another rank may have it, and have put into it
    return *refused;
  }
  std::lock_guard lock(mutex_);
  window->ranks = all.take();
  return window;
}

Exchange& Team::exchangeOf(uint32_t number) {
  return exchanges_.try_emplace(number, ranks(), rank()).first->second;
}

// The descriptors of a round, as many in a message as fit.
void Team::sendRounds(uint32_t number, Exchange& exchange, std::vector<Posted>* posted) {
  while (const auto round = exchange.nextRound()) {
    for (uint32_t sent = 0; sent < round->count;) {
      const uint32_t first = (round->first + sent) % ranks();
      const auto most = static_cast<uint32_t>(kDescriptorsAtOnce);
      const uint32_t count = std::min({most, round->count - sent, ranks() - first});
      ByteWriter behind;
      for (uint32_t i = 0; i < count; i++) behind.raw(std::as_bytes(std::span(&exchange.of(first + i), 1)));
      Sender::Message message;
      message.head.kind = Kind::exchange;
      message.head.window = number;
      message.head.offset = first;
      message.head.bytes = count;
      message.owned = behind.take();
      message.head.inlined = static_cast<uint16_t>(message.owned.size());
      counters_.exchanged += message.owned.size();
      posted->emplace_back(round->to, link(round->to)->sender().post(std::move(message)));
      sent += count;
    }
  }
}

// A rank may be one registration ahead of this one, not more: it has heard of all ranks in each.
Status Team::heardExchange(uint32_t from, const Head& head, std::span<const std::byte> behind) {
  const bool due = head.window == registered_ || head.window + 1 == registered_;
  if (!due || head.bytes * sizeof(Descriptor) != behind.size())
    return Error(Code::remote, kRegistering,
                 format("what rank %u sent belongs to window %u, and %u are registered here", from,
                        head.window, registered_));
  Exchange& of = exchangeOf(head.window);
  for (uint64_t i = 0; i < head.bytes; i++) {
    Descriptor descriptor;
    std::memcpy(static_cast<void*>(&descriptor), behind.data() + i * sizeof descriptor, sizeof descriptor);
    if (!of.take(head.offset + i, descriptor))
      return Error(Code::remote, kRegistering,
                   format("what rank %u sent names a rank twice, or one that there is not", from));
  }
  return {};
}

bool Team::haveLeft(const std::vector<Posted>& posted) const {
  return std::all_of(posted.begin(), posted.end(),
                     [&](const Posted& one) { return link(one.first)->sender().left(one.second); });
}

const Link* Team::firstLost() const {
  for (const auto& one : links_)
    if (one && one->state() == Link::State::lost) return one.get();
  return nullptr;
}

// Returns once this rank has heard of all others and what it passes on has left: nobody may call progress()
// from then on.
Result<std::vector<Descriptor>> Team::exchange(uint32_t number, const Descriptor& own) {
  coll::Patience patience(mesh_->clock(), config().acceptTimeout);
  std::vector<Posted> posted;
  {
    std::lock_guard lock(mutex_);
    exchangeOf(number).begin(own);
  }
  for (;; patience.pause()) {
    std::lock_guard lock(mutex_);
    Exchange& ours = exchangeOf(number);
    sendRounds(number, ours, &posted);
    for (const auto& one : links_)
      if (one) advance(*one);
    const bool over = ours.done() && haveLeft(posted);
    const Link* lost = firstLost();
    if (!over && !lost && !patience.over()) continue;
    const uint32_t missing = ours.missing();
    auto all = ours.takeAll();
    exchanges_.erase(number);
    if (over) return all;
    if (lost) return lost->error();
    return Error(Code::timeout, kRegistering, format("rank %u does not register its part", missing));
  }
}

// The other rank's fabric writes into it no more. Of a lost one the core sees to that when the memory goes.
bool Team::isShutTo(const Link& link, const Window& window) const {
  core::MemoryHandle* handle = window.receiving[link.rank()];
  if (!handle || link.state() == Link::State::lost) return true;
  return mesh_->pipe(static_cast<int>(link.rank()))->receiving().isShut(handle);
}

// Nothing moves between that rank and this memory any more.
bool Team::isAtRest(const Link& link, const Window& window) const {
  return window.uses[link.rank()] == 0 && isShutTo(link, window);
}

void Team::shut(Window& window) {
  window.leaving = true;
  for (const auto& one : links_)
    if (one && window.receiving[one->rank()])
      mesh_->pipe(static_cast<int>(one->rank()))->receiving().shutMemory(window.receiving[one->rank()]);
}

Error Team::stillUsed(const Link& link, const Window& window) {
  return Error(
      Code::remote, "one-sided operations",
      format("window %u was given up while rank %u and rank %u moved bytes of it (WEFT_CLOSE_TIMEOUT); "
             "give windows up behind the last put and get",
             window.number, window.team->rank(), link.rank()));
}

// A link that has not come to rest in time is lost, and no other: its rank alone moves something here.
// Nothing waits with the lock held, as the fabric may take seconds to give memory back.
void Team::giveUp(Window* window) {
  coll::Patience patience(mesh_->clock(), config().closeTimeout);
  {
    std::lock_guard lock(mutex_);
    shut(*window);
  }
  std::unique_ptr<Window> gone;
  for (; !gone; patience.pause()) {
    std::lock_guard lock(mutex_);
    bool rests = true;
    for (const auto& one : links_) {
      if (!one || isAtRest(*one, *window)) continue;
      rests = false;
      if (!patience.over()) {
        advance(*one);
        continue;
      }
      one->giveUp(stillUsed(*one, *window));
      noteLost(*one);
    }
    if (!rests && !patience.over()) continue;
    gone = std::move(windows_.at(window->number));
    windows_.erase(window->number);
  }
  releaseHere(*gone);
}

Status Team::deregisterMemory(Window* window) {
  {
    std::lock_guard lock(mutex_);
    const bool ours = std::any_of(windows_.begin(), windows_.end(),
                                  [&](const auto& entry) { return entry.second.get() == window; });
    if (!ours)
      return Error(Code::invalidArgument, "deregistering a window",
                   "the window is null, or not of these ranks, or deregistered already");
  }
  giveUp(window);
  return {};
}

}  // namespace weft::rma
