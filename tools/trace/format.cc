// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/trace/format.h"

namespace weft::trace {

namespace {

constexpr Coding plain = Coding::plain;
constexpr Coding delta = Coding::delta;
constexpr Coding zigzag = Coding::zigzag;
constexpr Coding fixed = Coding::fixed;

struct Row {
  const char* name;
  std::initializer_list<Field> fields;
  Parts parts = Parts::none;
  bool text = false;
};

// In the order of Kind. A row that changes makes a new version of the format.
constexpr Row kRows[] = {
    {"thread", {{"tid", plain}}, Parts::none, true},
    {"table", {{"abi", plain}}, Parts::none, true},
    {"init", {{"context", plain}, {"comm_id", fixed}, {"traffic_class", zigzag}}},
    {"finalize", {{"context", plain}}},
    {"devices", {{"count", zigzag}}},
    {"getProperties",
     {{"device", plain},
      {"ptr_support", plain},
      {"reg_is_global", plain},
      {"force_flush", plain},
      {"speed", plain},
      {"port", plain},
      {"max_comms", plain},
      {"max_recvs", plain},
      {"max_p2p_bytes", plain},
      {"max_coll_bytes", plain}},
     Parts::none,
     true},
    {"makeVDevice", {{"device", zigzag}}, Parts::sizes},
    {"listen", {{"context", plain}, {"device", plain}, {"comm", plain}, {"handle", fixed}}},
    {"connect",
     {{"context", plain},
      {"device", plain},
      {"handle", fixed},
      {"comm", plain},
      {"not_now", plain},
      {"waited", plain}}},
    {"accept", {{"listen", plain}, {"comm", plain}, {"not_now", plain}, {"waited", plain}}},
    {"closeSend", {{"comm", plain}, {"not_now", plain}}},
    {"closeRecv", {{"comm", plain}, {"not_now", plain}}},
    {"closeListen", {{"comm", plain}}},
    {"regMr", {{"comm", plain}, {"memory", delta}, {"address", delta}, {"bytes", plain}, {"type", plain}}},
    {"regMrDmaBuf",
     {{"comm", plain},
      {"memory", delta},
      {"address", delta},
      {"bytes", plain},
      {"type", plain},
      {"offset", plain}}},
    {"deregMr", {{"comm", plain}, {"memory", delta}}},
    {"isend", {{"comm", plain}, {"request", delta}, {"not_now", plain}, {"waited", plain}}, Parts::messages},
    {"irecv",
     {{"comm", plain}, {"request", delta}, {"not_now", plain}, {"waited", plain}, {"flags", plain}},
     Parts::messages},
    {"iflush", {{"comm", plain}, {"request", delta}}, Parts::messages},
    {"test", {{"comm", plain}, {"request", delta}, {"tests", plain}}, Parts::sizes},
    {"setNetAttr",
     {{"context", plain},
      {"send_max_peers", zigzag},
      {"send_min_peers", zigzag},
      {"send_max_flows", zigzag},
      {"send_min_flows", zigzag},
      {"recv_max_peers", zigzag},
      {"recv_min_peers", zigzag},
      {"recv_max_flows", zigzag},
      {"recv_min_flows", zigzag},
      {"op", plain},
      {"algo", plain},
      {"proto", plain}}},
    {"lost", {{"events", plain}}, Parts::none, true},
    {"collInit", {{"context", plain}, {"comm_id", fixed}}},
    {"collFinalize", {{"context", plain}}},
    {"collListen", {{"context", plain}, {"device", plain}, {"comm", plain}, {"handle", fixed}}},
    {"collConnect",
     {{"listen", plain}, {"comm", plain}, {"rank", plain}, {"ranks", plain}, {"group", fixed}}},
    {"closeColl", {{"comm", plain}, {"not_now", plain}}},
    {"iallreduce",
     {{"comm", plain},
      {"request", delta},
      {"not_now", plain},
      {"waited", plain},
      {"type", plain},
      {"op", plain}},
     Parts::messages},
    {"iallgather",
     {{"comm", plain},
      {"request", delta},
      {"not_now", plain},
      {"waited", plain},
      {"bytes_per_rank", plain},
      {"window_begin", plain},
      {"window_bytes", plain}},
     Parts::messages},
    {"ireducescatter",
     {{"comm", plain},
      {"request", delta},
      {"not_now", plain},
      {"waited", plain},
      {"type", plain},
      {"op", plain},
      {"bytes_per_rank", plain},
      {"window_begin", plain},
      {"window_bytes", plain}},
     Parts::messages},
    {"rmaInit", {{"context", plain}, {"comm_id", fixed}, {"abi", plain}}},
    {"rmaFinalize", {{"context", plain}}},
    {"rmaListen", {{"context", plain}, {"device", plain}, {"comm", plain}, {"handle", fixed}}},
    {"rmaConnect", {{"listen", plain}, {"comm", plain}, {"rank", plain}, {"ranks", plain}, {"group", fixed}}},
    {"createContext", {{"comm", plain}, {"context", plain}, {"contexts", plain}}},
    {"destroyContext", {{"comm", plain}, {"context", plain}}},
    {"regMrSym",
     {{"comm", plain},
      {"memory", delta},
      {"address", delta},
      {"bytes", plain},
      {"type", plain},
      {"flags", plain},
      {"dmabuf", plain}}},
    {"iput",
     {{"comm", plain}, {"request", delta}, {"context", plain}, {"rank", plain}, {"hints", plain}},
     Parts::messages},
    {"iputSignal",
     {{"comm", plain},
      {"request", delta},
      {"context", plain},
      {"rank", plain},
      {"hints", plain},
      {"signal_memory", plain},
      {"signal_offset", plain},
      {"signal_value", plain},
      {"strong", plain}},
     Parts::messages},
    {"iget",
     {{"comm", plain}, {"request", delta}, {"context", plain}, {"rank", plain}, {"hints", plain}},
     Parts::messages},
    {"iflushRma",
     {{"comm", plain}, {"request", delta}, {"context", plain}, {"rank", plain}, {"hints", plain}},
     Parts::messages},
};
static_assert(std::size(kRows) == kKinds);

constexpr std::array<KindFacts, kKinds> makeFacts() {
  std::array<KindFacts, kKinds> all{};
  for (size_t kind = 0; kind < kKinds; ++kind) {
    KindFacts& facts = all[kind];
    facts.name = kRows[kind].name;
    for (const Field& field : kRows[kind].fields) facts.field[facts.fields++] = field;
    facts.parts = kRows[kind].parts;
    facts.text = kRows[kind].text;
  }
  return all;
}

constexpr std::array<KindFacts, kKinds> kFacts = makeFacts();

}  // namespace

const KindFacts& factsOf(Kind kind) {
  return kFacts[static_cast<size_t>(kind)];
}

// FNV-1a by words of 8 bytes: it is to find damage, not forgery.
uint32_t checksumOf(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t take = bytes.size() < 8 ? bytes.size() : 8;
    for (size_t i = 0; i < take; ++i) word |= static_cast<uint64_t>(bytes[i]) << (8 * i);
    hash = (hash ^ word ^ take) * 0x100000001b3u;
    hash ^= hash >> 29;
    bytes = bytes.subspan(take);
  }
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

}  // namespace weft::trace
