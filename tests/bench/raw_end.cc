// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/bench/raw_end.h"

#include <algorithm>
#include <cstring>

#include <rdma/fi_tagged.h>

#include "providers/ofi/rma_message.h"
#include "src/base/log.h"

namespace weft::bench {

namespace {

constexpr size_t kBatch = 32;
constexpr uint64_t kAccess = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

// The part of WEFT_PROVIDER that libfabric knows.
std::string providerName(const Config& config) {
  constexpr std::string_view kPrefix = "ofi:";
  const std::string& name = config.provider;
  if (name.empty() || name == "ofi") return {};
  if (name.starts_with(kPrefix)) return name.substr(kPrefix.size());
  die("WEFT_PROVIDER=" + name + " is not libfabric's; the baseline needs ofi or ofi:NAME");
}

}  // namespace

RawEnd::RawEnd(RawStyle style, const Shape& shape, const Companion& companion) : End(shape), style_(style) {
  const Config config = must(readConfigFromEnvironment());
  library_ = must(ofi::Library::open(config.libfabric));
  catalogue_ = must(ofi::discoverNics(*library_, providerName(config), config));
  if (catalogue_.nics.empty()) die("libfabric has no device for WEFT_PROVIDER=" + config.provider);
  info_ = library_->duplicate(catalogue_.nics.front().fabricInfo.get());
  if (style_ == RawStyle::tagged) {
    info_->caps |= FI_TAGGED;
    info_->tx_attr->caps |= FI_TAGGED;
    info_->rx_attr->caps |= FI_TAGGED;
  }
  source_ = must(netdriver::HostBuffer::create(areasFor(outgoing()) * kAreaBytes));
  sink_ = must(netdriver::HostBuffer::create(areasFor(incoming()) * kAreaBytes));
  std::memset(source_.data(), 1, source_.size());  // pages of their own, not the one of zeros
  std::memset(sink_.data(), 2, sink_.size());
  openDomain();
  for (size_t i = 0; i < std::max(outgoing(), incoming()); i++) {
    auto& channel = channels_.emplace_back(std::make_unique<Channel>());
    for (size_t n = 0; n < kMostInFlight; n++) {
      channel->sends[n].channel = channel->receives[n].channel = i;
      channel->receives[n].receive = true;
    }
    openChannel(channel.get());
  }
  meet(companion);
}

RawEnd::~RawEnd() {
  channels_.clear();  // before what they are bound to
}

void RawEnd::check(int64_t code, const char* what) const {
  if (code < 0) die(format("%s: %s", what, library_->errorText(code).c_str()));
}

template <class T, class Open>
ofi::FidPtr<T> RawEnd::open(const char* what, Open&& call) const {
  T* raw = nullptr;
  check(call(&raw), what);
  return ofi::FidPtr<T>(raw);
}

void RawEnd::openDomain() {
  check(library_->openFabric(info_->fabric_attr, &fabric_), "fi_fabric");
  domain_ = open<fid_domain>("fi_domain",
                             [&](auto** out) { return fi_domain(fabric_.get(), info_.get(), out, nullptr); });
  fi_cq_attr attributes{};
  attributes.size = 4096;
  attributes.format = FI_CQ_FORMAT_DATA;
  attributes.wait_obj = FI_WAIT_NONE;
  queue_ = open<fid_cq>("fi_cq_open",
                        [&](auto** out) { return fi_cq_open(domain_.get(), &attributes, out, nullptr); });
  const auto registered = [&](const netdriver::HostBuffer& memory, uint64_t key) {
    return open<fid_mr>("fi_mr_reg", [&](auto** out) {
      return fi_mr_reg(domain_.get(), memory.data(), memory.size(), kAccess, 0, key, 0, out, nullptr);
    });
  };
  sourceMemory_ = registered(source_, 1);
  sinkMemory_ = registered(sink_, 2);
}

void RawEnd::openChannel(Channel* channel) {
  fi_av_attr table{};
  table.type = FI_AV_TABLE;
  channel->addresses =
      open<fid_av>("fi_av_open", [&](auto** out) { return fi_av_open(domain_.get(), &table, out, nullptr); });
  channel->endpoint = open<fid_ep>(
      "fi_endpoint", [&](auto** out) { return fi_endpoint(domain_.get(), info_.get(), out, nullptr); });
  check(fi_ep_bind(channel->endpoint.get(), &channel->addresses->fid, 0), "fi_ep_bind");
  check(fi_ep_bind(channel->endpoint.get(), &queue_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
  check(fi_enable(channel->endpoint.get()), "fi_enable");
  // efa-direct gives the endpoint no table of tagged calls, and libfabric's header follows the pointer
  // unseen.
  if (style_ == RawStyle::tagged && !channel->endpoint->tagged) die("the provider has no tagged messages");
}

void RawEnd::meet(const Companion& companion) {
  const bool byAddress = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  const Greeting mine{byAddress ? reinterpret_cast<uintptr_t>(sink_.data()) : 0,
                      fi_mr_key(sinkMemory_.get())};
  companion.put(std::as_bytes(std::span(&mine, 1)));
  for (const auto& channel : channels_) {
    Bytes name(256);
    size_t length = name.size();
    check(fi_getname(&channel->endpoint->fid, name.data(), &length), "fi_getname");
    name.resize(length);
    companion.put(name);
  }
  const Bytes greeting = companion.get();
  if (greeting.size() != sizeof theirs_) die("the other process sent no memory key");
  std::memcpy(&theirs_, greeting.data(), sizeof theirs_);
  for (const auto& channel : channels_) {
    const Bytes name = companion.get();
    if (fi_av_insert(channel->addresses.get(), name.data(), 1, &channel->peer, 0, nullptr) != 1)
      die("fi_av_insert took no address");
  }
}

bool RawEnd::send(size_t index, size_t bytes) {
  const ssize_t code = post(*channels_[index], index, bytes);
  if (code == -FI_EAGAIN) return false;
  check(code, "sending");
  out_[index].started++;
  return true;
}

ssize_t RawEnd::post(Channel& channel, size_t index, size_t bytes) {
  const uint64_t number = out_[index].started;
  const size_t place = placeOf(number, bytes);
  std::byte* data = source_.data() + areaOf(index) + place;
  const uint64_t target = theirs_.base + areaOf(index) + place;
  fid_ep* endpoint = channel.endpoint.get();
  Context& context = channel.sends[number % kMostInFlight];
  void* descriptor = fi_mr_desc(sourceMemory_.get());
  if (style_ == RawStyle::tagged)
    return fi_tsend(endpoint, data, bytes, descriptor, channel.peer, index, &context.fabric);
  if (style_ == RawStyle::inject && bytes <= info_->tx_attr->inject_size) {
    const ssize_t code = fi_inject_writedata(endpoint, data, bytes, index, channel.peer, target, theirs_.key);
    if (code == 0) out_[index].finished++;
    return code;
  }
  return fi_writedata(endpoint, data, bytes, descriptor, index, channel.peer, target, theirs_.key,
                      &context.fabric);
}

// Twice the window, so that no send meets a queue without a receive.
void RawEnd::postReceives(size_t index) {
  Counters& in = in_[index];
  while (in.started < in.expected && in.started - in.finished < std::min(2 * window_, kMostInFlight)) {
    Channel& channel = *channels_[index];
    std::byte* data = sink_.data() + areaOf(index) + placeOf(in.started, in.bytes);
    const ssize_t code =
        fi_trecv(channel.endpoint.get(), data, in.bytes, fi_mr_desc(sinkMemory_.get()), channel.peer, index,
                 0, &channel.receives[in.started % kMostInFlight].fabric);
    if (code == -FI_EAGAIN) return;
    check(code, "fi_trecv");
    in.started++;
  }
}

void RawEnd::poll() {
  if (style_ == RawStyle::tagged)
    for (size_t i = 0; i < std::min(active_, in_.size()); i++) postReceives(i);
  std::array<fi_cq_data_entry, kBatch> entries;
  const ssize_t count = fi_cq_read(queue_.get(), entries.data(), entries.size());
  if (count == -FI_EAGAIN) return;
  if (count == -FI_EAVAIL) readError();
  check(count, "fi_cq_read");
  for (const fi_cq_data_entry& entry : std::span(entries).first(static_cast<size_t>(count))) {
    if (entry.flags & FI_REMOTE_CQ_DATA) {
      in_[entry.data].finished++;
      continue;
    }
    const auto* context = static_cast<const Context*>(entry.op_context);
    (context->receive ? in_ : out_)[context->channel].finished++;
  }
}

void RawEnd::readError() {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(queue_.get(), &entry, 0) > 0)
    die("a completion failed: " + library_->errorText(entry.err));
}

std::string RawEnd::describe() const {
  const ofi::Nic& nic = catalogue_.nics.front();
  return format("%s, %s on %s (%s)", library_->versionText().c_str(), nic.info.provider.c_str(),
                nic.info.name.c_str(), nic.info.address.c_str());
}

}  // namespace weft::bench
