// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/messages.h"

#include <cstring>

namespace weft::core {

namespace {

void encodeBlobs(ByteWriter* out, const std::vector<Bytes>& blobs) {
  out->put(static_cast<uint16_t>(blobs.size()));
  for (const Bytes& blob : blobs) out->blob(blob);
}

constexpr uint16_t kMaxBlobs = 17;  // rails or lanes of one peering, and shared memory

std::vector<Bytes> decodeBlobs(ByteReader* in) {
  std::vector<Bytes> blobs;
  const auto count = in->get<uint16_t>();
  for (uint16_t i = 0; i < count && !in->failed(); i++) {
    const auto blob = in->blob();
    if (i < kMaxBlobs) blobs.emplace_back(blob.begin(), blob.end());
  }
  return blobs;
}

template <class T>
Result<T> checked(const ByteReader& in, T value, const char* what) {
  if (in.done()) return value;
  return Error(Code::remote, "decoding a message", std::string(what) + " from the peer has the wrong length");
}

}  // namespace

void MemoryNotice::encode(ByteWriter* out) const {
  out->put(id);
  encodeBlobs(out, railBlobs);
}

MemoryNotice MemoryNotice::decode(ByteReader* in) {
  MemoryNotice notice;
  notice.id = in->get<uint32_t>();
  notice.railBlobs = decodeBlobs(in);
  return notice;
}

void PeeringInfo::encode(ByteWriter* out) const {
  out->put(engine).put(peering).put(life).put(rails).text(deviceName);
  encodeBlobs(out, laneAddresses);
  out->blob(localAddress);
  memory.encode(out);
  out->put(eagerOffset).put(eagerSlots).put(eagerSlotBytes).put(eagerFirstSlot).put(creditOffset);
}

PeeringInfo PeeringInfo::decode(ByteReader* in) {
  PeeringInfo info;
  info.engine = in->get<uint32_t>();
  info.peering = in->get<uint32_t>();
  info.life = in->get<uint32_t>();
  info.rails = in->get<uint16_t>();
  info.deviceName = in->text();
  info.laneAddresses = decodeBlobs(in);
  const auto local = in->blob();
  info.localAddress.assign(local.begin(), local.end());
  info.memory = MemoryNotice::decode(in);
  info.eagerOffset = in->get<uint64_t>();
  info.eagerSlots = in->get<uint32_t>();
  info.eagerSlotBytes = in->get<uint32_t>();
  info.eagerFirstSlot = in->get<uint32_t>();
  info.creditOffset = in->get<uint64_t>();
  return info;
}

Bytes ConnectRequest::encode() const {
  ByteWriter out;
  out.put(engine).put(rails).text(refusal);
  return out.take();
}

Result<ConnectRequest> ConnectRequest::decode(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  ConnectRequest request;
  request.engine = in.get<uint32_t>();
  request.rails = in.get<uint16_t>();
  request.refusal = in.text();
  return checked(in, std::move(request), "a connect request");
}

Bytes ConnectReply::encode() const {
  ByteWriter out;
  out.put(comm).put(window);
  half.encode(&out);
  return out.take();
}

Result<ConnectReply> ConnectReply::decode(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  ConnectReply reply;
  reply.comm = in.get<uint32_t>();
  reply.window = in.get<uint32_t>();
  reply.half = PeeringInfo::decode(&in);
  return checked(in, std::move(reply), "a connect reply");
}

void encodeBody(ByteWriter* out, const OpenMessage& message) {
  out->put(message.comm).put(message.sender);
  message.half.encode(out);
  message.ringMemory.encode(out);
  out->put(message.ringOffset);
}

bool decodeBody(ByteReader* in, OpenMessage* message) {
  message->comm = in->get<uint32_t>();
  message->sender = in->get<uint32_t>();
  message->half = PeeringInfo::decode(in);
  message->ringMemory = MemoryNotice::decode(in);
  message->ringOffset = in->get<uint64_t>();
  return in->done();
}

void encodeBody(ByteWriter* out, const CommMessage& message) {
  out->put(message.comm).put(message.number);
}

bool decodeBody(ByteReader* in, CommMessage* message) {
  message->comm = in->get<uint32_t>();
  message->number = in->get<uint64_t>();
  return in->done();
}

void encodeBody(ByteWriter* out, const FailedMessage& message) {
  out->put(message.comm).text(message.reason);
}

bool decodeBody(ByteReader* in, FailedMessage* message) {
  message->comm = in->get<uint32_t>();
  message->reason = in->text();
  return in->done();
}

void encodeBody(ByteWriter* out, const ProbeMessage& m) {
  out->put(m.comm).put(m.tag).put(m.k).put(m.ctsSequence).put(m.slot).put(m.generation).put(m.state);
}

bool decodeBody(ByteReader* in, ProbeMessage* m) {
  for (uint32_t* field : {&m->comm, &m->tag, &m->k, &m->ctsSequence, &m->slot, &m->generation})
    *field = in->get<uint32_t>();
  m->state = in->get<ProbeState>();
  return in->done();
}

void encodeBody(ByteWriter* out, const LaneMessage& message) {
  out->put(message.lane).put(message.incarnation).text(message.reason).blob(message.address);
}

bool decodeBody(ByteReader* in, LaneMessage* message) {
  message->lane = in->get<uint8_t>();
  message->incarnation = in->get<uint32_t>();
  message->reason = in->text();
  const auto address = in->blob();
  message->address.assign(address.begin(), address.end());
  return in->done();
}

void encodeBody(ByteWriter* out, const RetiredMessage& message) {
  out->put(message.lane).put(message.incarnation).put(uint8_t{message.more});
  out->put(static_cast<uint16_t>(message.suspects.size()));
  for (const Suspect& one : message.suspects)
    out->put(one.comm).put(one.slot).put(one.tag).put(one.k).put(one.segments);
}

bool decodeBody(ByteReader* in, RetiredMessage* message) {
  message->lane = in->get<uint8_t>();
  message->incarnation = in->get<uint32_t>();
  message->more = in->get<uint8_t>() != 0;
  const auto count = in->get<uint16_t>();
  for (uint16_t i = 0; i < count && !in->failed(); i++) {
    Suspect& one = message->suspects.emplace_back();
    for (uint32_t* field : {&one.comm, &one.slot, &one.tag, &one.k}) *field = in->get<uint32_t>();
    one.segments = in->get<uint16_t>();
  }
  return in->done();
}

void encodeBody(ByteWriter* out, const MissingMessage& message) {
  out->put(message.lane).put(message.incarnation).put(message.first);
  out->put(static_cast<uint16_t>(message.segments.size()));
  for (const uint16_t segments : message.segments) out->put(segments);
}

bool decodeBody(ByteReader* in, MissingMessage* message) {
  message->lane = in->get<uint8_t>();
  message->incarnation = in->get<uint32_t>();
  message->first = in->get<uint32_t>();
  const auto count = in->get<uint16_t>();
  for (uint16_t i = 0; i < count && !in->failed(); i++) message->segments.push_back(in->get<uint16_t>());
  return in->done();
}

void encodeBody(ByteWriter* out, const CtsMessage& message) {
  out->put(message.comm).put(static_cast<uint16_t>(message.cts.size()));
  for (const auto& placed : message.cts)
    out->put(placed.position).raw(std::as_bytes(std::span(&placed.cts, 1)));
}

bool decodeBody(ByteReader* in, CtsMessage* message) {
  message->comm = in->get<uint32_t>();
  const auto count = in->get<uint16_t>();
  for (uint16_t i = 0; i < count && !in->failed(); i++) {
    auto& placed = message->cts.emplace_back();
    placed.position = in->get<uint16_t>();
    const auto cts = in->raw(sizeof placed.cts);
    if (!cts.empty()) std::memcpy(&placed.cts, cts.data(), sizeof placed.cts);
  }
  return in->done();
}

void encodeBody(ByteWriter* out, const SumsMessage& message) {
  out->put(message.comm).put(static_cast<uint16_t>(message.sums.size()));
  for (const PayloadSum& sum : message.sums) {
    out->put(sum.tag).put(sum.k).put(sum.bytes).put(sum.segmentCount);
    for (size_t i = 0; i < sum.segmentCount; i++) out->put(sum.segments[i].lane).put(sum.segments[i].bytes);
    for (size_t i = 0; i < partsOf(sum.bytes); i++) out->put(sum.parts[i]);
  }
}

bool decodeBody(ByteReader* in, SumsMessage* message) {
  message->comm = in->get<uint32_t>();
  const auto count = in->get<uint16_t>();
  for (uint16_t n = 0; n < count && !in->failed(); n++) {
    PayloadSum& sum = message->sums.emplace_back();
    sum.tag = in->get<uint32_t>();
    sum.k = in->get<uint32_t>();
    sum.bytes = in->get<uint64_t>();
    sum.segmentCount = in->get<uint8_t>();
    if (sum.segmentCount > kMostSummedSegments || sum.bytes > kMostSummedBytes) return false;
    for (size_t i = 0; i < sum.segmentCount; i++) {
      sum.segments[i].lane = in->get<uint8_t>();
      sum.segments[i].bytes = in->get<uint32_t>();
    }
    for (size_t i = 0; i < partsOf(sum.bytes); i++) sum.parts[i] = in->get<uint32_t>();
  }
  return in->done();
}

void encodeBody(ByteWriter* out, const OpenMemoryMessage& m) {
  out->put(m.comm).put(m.number).put(m.memory).put(m.offset).put(m.length);
}

bool decodeBody(ByteReader* in, OpenMemoryMessage* m) {
  for (uint32_t* field : {&m->comm, &m->number, &m->memory}) *field = in->get<uint32_t>();
  for (uint64_t* field : {&m->offset, &m->length}) *field = in->get<uint64_t>();
  return in->done();
}

void encodeBody(ByteWriter* out, const ShutMemoryMessage& m) {
  out->put(m.comm).put(m.number).put(m.tag).put(m.k);
}

bool decodeBody(ByteReader* in, ShutMemoryMessage* m) {
  for (uint32_t* field : {&m->comm, &m->number, &m->tag, &m->k}) *field = in->get<uint32_t>();
  return in->done();
}

void encodeBody(ByteWriter* out, const MemoryNotice& message) {
  message.encode(out);
}

bool decodeBody(ByteReader* in, MemoryNotice* message) {
  *message = MemoryNotice::decode(in);
  return in->done();
}

}  // namespace weft::core
