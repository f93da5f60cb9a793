// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/rma/team.h"

#include <algorithm>
#include <cinttypes>

#include "src/base/log.h"

// A team's operations, what it hears, and its end. Registrations are in registration.cc.
namespace weft::rma {

namespace {

constexpr const char* kOperation = "one-sided operations";
constexpr size_t kLinksAtOnce = 16;  // looked at by one progress()

Error refused(const std::string& why) {
  return Error(Code::invalidArgument, kOperation, why);
}

}  // namespace

Result<std::unique_ptr<Team>> Team::open(coll::MeshOptions options) {
  options.full = true;
  options.purpose = "the ranks of one-sided operations";
  options.hint = "is its process alive, and does it run the same release?";
  TRY(auto mesh, coll::Mesh::open(std::move(options)));
  auto team = std::make_unique<Team>(std::move(mesh));
  TRY(team->connect());
  return team;
}

Team::Team(std::unique_ptr<coll::Mesh> mesh)
    : mesh_(std::move(mesh)), memory_(mem::gpu::Driver::ofProcess(config().libcuda)) {}

Status Team::connect() {
  for (uint32_t rank = 0; rank < ranks(); rank++) {
    coll::Pipe* pipe = mesh_->pipe(static_cast<int>(rank));
    links_.emplace_back();
    if (!pipe) continue;
    TRY(links_.back(), Link::create(rank, this->rank(), *pipe, memory_));
  }
  TRY(auto runtime, mesh_->options().context->net().runtime());
  told_ = core::Runtime::tellState(std::move(runtime), [this] { return stateText(); });
  return {};
}

// Nobody asks what it waits for while its parts go.
Team::~Team() {
  told_.reset();
}

// Links and failures:

void Team::advance(Link& link) {
  if (link.state() != Link::State::lost && !link.advance(*this)) noteLost(link);
}

// All links where they are few, else some of them in turn.
void Team::advanceSome() {
  const size_t looks = std::min(kLinksAtOnce, links_.size());
  for (size_t i = 0; i < looks; i++) {
    Link* next = links_[nextLink_].get();
    nextLink_ = (nextLink_ + 1) % ranks();
    if (next) advance(*next);
  }
}

// A rank that said goodbye may go. Any other loss breaks the team: whoever waits for a signal of that rank
// has no request that could tell.
void Team::noteLost(const Link& link) {
  bool waited = false;
  for (Request& request : requests_)
    if (request.state == Request::State::moving && request.rank == link.rank()) {
      waited = true;
      request.enter(Request::State::failed);
    }
  if (link.saidGoodbye() && !waited) return;
  if (failed() || closed_) return;
  error_ = link.error();
  failed_.store(true, std::memory_order_release);
  WEFT_LOG(error, "%s", link.error().message().c_str());
}

Error Team::error() const {
  std::lock_guard lock(mutex_);
  return *error_;
}

TeamCounters Team::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

stats::OneSidedSum Team::sentTo(uint32_t rank) const {
  std::lock_guard lock(mutex_);
  const stats::OneSided* counted = mesh_->pipe(static_cast<int>(rank))->sending().oneSided();
  return counted ? stats::sumOf(*counted) : stats::OneSidedSum();
}

stats::OneSidedSum Team::receivedFrom(uint32_t rank) const {
  std::lock_guard lock(mutex_);
  const stats::OneSided* counted = mesh_->pipe(static_cast<int>(rank))->receiving().oneSided();
  return counted ? stats::sumOf(*counted) : stats::OneSidedSum();
}

// Checks. A window of another team is recognised before anything in it is used as an index:

Status Team::mayReach(uint32_t rank) const {
  if (rank >= ranks())
    return refused(format("there is no rank %u; the ranks are 0 to %u", rank, ranks() - 1));
  const Link* to = link(rank);
  if (!to || to->state() == Link::State::open) return {};
  if (to->state() == Link::State::lost) return to->error();
  return Error(Code::remote, kOperation, format("rank %u has closed its end", rank));
}

Status Team::checkOwned(const Window* window, const char* what) const {
  if (!window) return refused(format("the handle of the %s is null", what));
  if (window->team != this) return refused(format("the handle of the %s belongs to other ranks", what));
  return {};
}

Status Team::checkRange(const Window* window, uint32_t rank, uint64_t offset, uint64_t bytes,
                        const char* what) const {
  TRY(checkOwned(window, what));
  if (window->covers(rank, offset, bytes)) return {};
  return refused(format("the %s is outside: %s", what, window->describe(rank, offset, bytes).c_str()));
}

Status Team::checkPut(const Put& put) const {
  TRY(mayReach(put.rank));
  if (put.bytes > 0) {
    TRY(checkRange(put.source, rank(), put.sourceOffset, put.bytes, "source"));
    TRY(checkRange(put.target, put.rank, put.targetOffset, put.bytes, "target"));
  }
  if (!put.signals) return {};
  TRY(checkRange(put.signal, put.rank, put.signalOffset, sizeof(uint64_t), "signal"));
  if (put.signalOffset % sizeof(uint64_t) == 0) return {};
  return refused(format("a signal at %" PRIu64 ", which is no multiple of 8", put.signalOffset));
}

// Operations:

Result<Request*> Team::begin(uint32_t rank, Window* window, uint64_t bytes) {
  if (freeRequests_.empty()) freeRequests_.push_back(&requests_.emplace_back());
  Request* request = freeRequests_.back();
  freeRequests_.pop_back();
  request->rank = rank;
  request->headLeft = false;
  request->left = bytes;
  request->window = bytes > 0 ? window : nullptr;
  request->enter(Request::State::moving);
  return request;
}

// Within this rank nothing is under way, so all earlier puts are here.
Result<Request*> Team::putHere(const Put& put) {
  if (put.bytes > 0) {
    TRY(memory_.copy(*put.target, put.targetOffset, *put.source, put.sourceOffset, put.bytes));
  }
  if (put.signals) {
    TRY(add(*put.signal, put.signalOffset, put.addend, 1));
  }
  TRY(Request * request, begin(put.rank, nullptr, 0));
  request->headLeft = true;
  request->settle();
  return request;
}

Sender::Body Team::bodyOf(const Window& window, uint64_t offset, uint64_t bytes, uint32_t to,
                          uint32_t piece) {
  Sender::Body body;
  body.data = window.at(offset);
  body.bytes = bytes;
  body.memory = window.sending[to];
  body.staged = window.staged ? &window : nullptr;
  body.piece = piece;
  return body;
}

Result<Request*> Team::put(const Put& put) {
  std::lock_guard lock(mutex_);
  TRY(checkPut(put));
  counters_.puts++;
  Link* to = link(put.rank);
  if (!to) return putHere(put);
  Sender::Message message;
  Head& head = message.head;
  head.context = put.context;
  head.bytes = put.bytes;
  head.offset = put.targetOffset;
  if (put.bytes > 0) head.window = put.target->number;
  const bool behind = put.bytes > 0 && put.bytes <= kInlineBytes && !put.source->direct() &&
                      put.target->ranks[put.rank].inlines != 0;
  head.inlined = behind ? static_cast<uint16_t>(put.bytes) : uint16_t{0};
  if (behind && put.source->staged) {
    message.owned.resize(head.inlined);
    TRY(memory_.read(*put.source, put.source->at(put.sourceOffset), message.owned.data(), head.inlined));
  }
  if (put.signals) {
    head.signals = 1;
    head.signalWindow = put.signal->number;
    head.signalOffset = put.signalOffset;
    head.addend = put.addend;
  }
  TRY(message.request, begin(put.rank, put.source, behind ? 0 : put.bytes));
  Request* request = message.request;
  if (behind && put.source->host()) message.inlined = put.source->at(put.sourceOffset);
  if (put.bytes > 0 && !behind) {
    head.piece = put.source->piece(*put.target, put.rank);
    message.body = bodyOf(*put.source, put.sourceOffset, put.bytes, put.rank, head.piece);
    message.body.request = request;
    message.body.placed = !put.source->staged && to->sender().mayPlace(put.target->number);
    message.body.toWindow = put.target->number;
    message.body.to = put.targetOffset;
    head.placed = message.body.placed ? 1 : 0;
    counters_.placed += head.placed;
  }
  (void)to->sender().post(std::move(message));
  (void)to->sender().advance();  // a failure is found again by the next look at the link
  return request;
}

Result<Request*> Team::getHere(const Get& get) {
  Put put;
  put.rank = get.rank;
  put.bytes = get.bytes;
  put.source = get.remote;
  put.sourceOffset = get.remoteOffset;
  put.target = get.local;
  put.targetOffset = get.localOffset;
  return putHere(put);
}

Result<Request*> Team::get(const Get& get) {
  std::lock_guard lock(mutex_);
  TRY(mayReach(get.rank));
  if (get.bytes > 0) {
    TRY(checkRange(get.remote, get.rank, get.remoteOffset, get.bytes, "remote range"));
    TRY(checkRange(get.local, rank(), get.localOffset, get.bytes, "local range"));
  }
  counters_.gets++;
  Link* to = link(get.rank);
  if (!to || get.bytes == 0) return getHere(get);
  Sender::Message message;
  message.head.kind = Kind::get;
  message.head.context = get.context;
  message.head.window = get.remote->number;
  message.head.bytes = get.bytes;
  message.head.offset = get.remoteOffset;
  message.head.piece = get.local->piece(*get.remote, get.rank);
  TRY(message.request, begin(get.rank, get.local, get.bytes));
  Request* request = message.request;
  to->receiver().await(*get.local, get.localOffset, get.bytes, message.head.piece, request);
  (void)to->sender().post(std::move(message));
  (void)to->sender().advance();
  return request;
}

Status Team::test(Request* request, bool* done) {
  *done = false;
  std::lock_guard lock(mutex_);
  if (!request || request->state == Request::State::free)
    return refused("the request is null, or its end was told already");
  Link* of = link(request->rank);
  if (request->state == Request::State::moving && of) advance(*of);
  if (request->state == Request::State::failed) return of->error();
  if (request->state != Request::State::done) return {};
  request->enter(Request::State::free);
  freeRequests_.push_back(request);
  *done = true;
  return {};
}

Status Team::progress() {
  std::lock_guard lock(mutex_);
  advanceSome();
  return failed() ? Status(*error_) : Status();
}

// What is heard:

Window* Team::window(uint32_t number, bool* known) {
  *known = number < registered_;
  const auto found = windows_.find(number);
  return found == windows_.end() ? nullptr : found->second.get();
}

Status Team::add(Window& window, uint64_t offset, uint64_t addend, uint64_t signals) {
  counters_.signals += signals;
  return memory_.add(window, offset, addend);
}

Status Team::heard(uint32_t from, const Head& head, std::span<const std::byte> behind) {
  switch (head.kind) {
    case Kind::get:
      return heardGet(from, head);
    case Kind::exchange:
      return heardExchange(from, head, behind);
    case Kind::goodbye:
      link(from)->leave();
      return {};
    case Kind::alarm:
      return Error(Code::remote, kOperation,
                   format("rank %u gave up: %.*s", from, static_cast<int>(behind.size()),
                          reinterpret_cast<const char*>(behind.data())));
    case Kind::put:
      break;
  }
  return Error(Code::internal, kOperation, "a put at the wrong desk");
}

Status Team::heardGet(uint32_t from, const Head& head) {
  bool known = false;
  Window* source = window(head.window, &known);
  if (!source)
    return Error(Code::remote, kOperation,
                 format("rank %u: a get from window %u, which is not registered", from, head.window));
  if (head.bytes == 0 || !source->covers(rank(), head.offset, head.bytes))
    return Error(
        Code::remote, kOperation,
        format("rank %u: a get of %s", from, source->describe(rank(), head.offset, head.bytes).c_str()));
  if (source->staged && head.piece != kStagedPieceBytes)
    return Error(Code::remote, kOperation, format("rank %u: a get in pieces that are too large", from));
  Sender::Body body = bodyOf(*source, head.offset, head.bytes, from, head.piece);
  body.window = source;
  link(from)->sender().answer(body);
  return {};
}

// The end:

// The other ranks may still send here, and wait for gets, until they have said goodbye themselves. A rank
// that is lost, or does not come to its own close in time, is not waited for.
void Team::close() {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    for (const auto& one : links_)
      if (one) one->sayGoodbye();
  }
  coll::Patience patience(mesh_->clock(), config().closeTimeout);
  const auto over = [](const std::unique_ptr<Link>& one) {
    return !one || one->state() == Link::State::lost ||
           (one->state() == Link::State::left && one->sender().idle());
  };
  for (;; patience.pause()) {
    std::lock_guard lock(mutex_);
    for (const auto& one : links_)
      if (one) advance(*one);
    if (patience.over() || std::all_of(links_.begin(), links_.end(), over)) break;
  }
  std::map<uint32_t, std::unique_ptr<Window>> left;
  {
    std::lock_guard lock(mutex_);
    for (const auto& one : links_)
      if (one) one->lose(Error(Code::remote, kOperation, format("rank %u: this end is closed", one->rank())));
    left.swap(windows_);
  }
  // What waits for the fabric does so without the lock: a lost link moves nothing.
  closeComms();
  for (const auto& [number, window] : left) releaseHere(*window);
}

// The comms first: what is registered on them is in use until they are closed.
void Team::closeComms() {
  for (uint32_t rank = 0; rank < ranks(); rank++) {
    const coll::Pipe* pipe = mesh_->pipe(static_cast<int>(rank));
    if (!pipe) continue;
    pipe->sending().close();
    pipe->receiving().close();
  }
}

}  // namespace weft::rma
