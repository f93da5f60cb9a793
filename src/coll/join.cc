// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/join.h"

#include "src/base/log.h"
#include "src/base/secret_file.h"

// The talk by which a member joins. Layout of the messages: docs/collectives.md.
namespace weft::coll {

namespace {

// The kinds of message; their numbers meet neither those of Word in wire.h nor those of join_link.cc.
constexpr uint8_t kAnswer = 34, kStatus = 35, kRequest = 36;
constexpr size_t kLeastSecret = 16;  // bytes

// The error with the daemon in front, where it does not begin with that.
Error of(const std::string& daemon, const Error& error) {
  const bool named = error.detail().starts_with(daemon);
  return Error(error.code(), error.operation(), named ? error.detail() : daemon + ": " + error.detail(),
               error.errnum());
}

ByteWriter begin(uint8_t word) {
  ByteWriter out;
  out.put(kMagic).put(kVersion).put(word).put(uint8_t{0});
  return out;
}

Status readHead(ByteReader* in, uint8_t word) {
  const auto magic = in->get<uint32_t>();
  const auto version = in->get<uint16_t>();
  const auto said = in->get<uint8_t>();
  in->get<uint8_t>();
  if (in->failed() || magic != kMagic || version != kVersion || said != word)
    return joinError("what came is no message of joining");
  return {};
}

Status readEnd(const ByteReader& in) {
  return in.done() ? Status() : Status(joinError("a message is cut off, or longer than it should be"));
}

}  // namespace

Bytes JoinRequest::encode() const {
  ByteWriter out = begin(kRequest);
  out.put(group).put(ranks).put(rank).put(chunkBytes).put(waitMs);
  return out.text(name.substr(0, 200)).raw(handle).take();
}

Bytes JoinAnswer::encode() const {
  return begin(kAnswer).put(uint8_t{accepted}).text(reason.substr(0, kReasonBytes)).raw(handle).take();
}

Bytes encodeStatusRequest(uint8_t format) {
  return begin(kStatus).put(format).take();
}

Result<uint8_t> decodeStatusRequest(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  TRY(readHead(&in, kStatus));
  const auto format = in.get<uint8_t>();
  TRY(readEnd(in));
  return format;
}

// Every number is checked before it is used.
Result<JoinRequest> decodeJoinRequest(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  TRY(readHead(&in, kRequest));
  JoinRequest request;
  request.group = in.get<uint64_t>();
  request.ranks = in.get<uint32_t>();
  request.rank = in.get<uint32_t>();
  request.chunkBytes = in.get<uint32_t>();
  request.waitMs = in.get<uint32_t>();
  request.name = in.text();
  in.fill(request.handle);
  TRY(readEnd(in));
  const bool possible = request.ranks >= 1 && request.ranks <= kMaxRanks && request.rank < request.ranks &&
                        request.chunkBytes >= kLeastChunk && request.chunkBytes <= kMostChunk &&
                        request.chunkBytes % kChunkAlign == 0;
  if (!possible) return joinError("a request to join has numbers that cannot be");
  return request;
}

Result<JoinAnswer> decodeJoinAnswer(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  TRY(readHead(&in, kAnswer));
  JoinAnswer answer;
  answer.accepted = in.get<uint8_t>() != 0;
  answer.reason = in.text();
  in.fill(answer.handle);
  TRY(readEnd(in));
  return answer;
}

Result<std::string> readSecret(const std::string& setting) {
  TRY(std::string secret, readSecretSetting(setting));
  if (secret.empty() || secret.size() >= kLeastSecret) return secret;
  return Error(Code::config, "reading the secret",
               format("the secret of WEFT_AGGD_SECRET or weft-aggd --secret has %zu bytes, and %zu are the "
                      "fewest: head -c 32 /dev/urandom | base64 makes one",
                      secret.size(), kLeastSecret));
}

// Connects and accepts in turn, so that the two ends do not wait for each other in a circle.
Result<std::unique_ptr<Pipe>> openPipe(const core::ContextRef& context, int device,
                                       core::ListenComm& listener, HandleBytes peer, std::string name,
                                       Patience& patience) {
  core::Net& net = context->net();
  std::unique_ptr<core::SendComm> send;
  std::unique_ptr<core::RecvComm> receive;
  while (!send || !receive) {
    if (!send) {
      TRY(send, net.connect(context, device, peer));
    }
    if (!receive) {
      TRY(receive, net.accept(listener));
    }
    if (patience.over()) return joinError("no connection over the fabric with " + name, Code::timeout);
    if (!send || !receive) patience.pause();
  }
  return Pipe::create(std::move(send), std::move(receive), std::move(name));
}

namespace {

Result<JoinLink> reach(const std::string& daemon, const std::string& setting, const Protection& protection,
                       const Patience& patience) {
  TRY(const std::string secret, readSecret(setting));
  TRY(Fd fd, dialDaemon(daemon, patience));
  return meetDaemon(std::move(fd), joinKeyOf(protection, secret), patience);
}

Result<std::string> ask(const StatusQuestion& question, const Patience& patience) {
  constexpr size_t kMost = size_t{16} << 20;
  TRY(JoinLink link, reach(question.daemon, question.secret, question.protection, patience));
  TRY(link.say(encodeStatusRequest(question.format), patience));
  TRY(const Bytes said, link.hear(patience, kMost));
  return std::string(reinterpret_cast<const char*>(said.data()), said.size());
}

// The member's side of the talk. The listener is named only to a daemon that has proven itself. The last
// message, the verdict, comes when all members of the group are there.
Result<Membership> join(JoinOptions& options, Patience& patience) {
  core::Net& net = options.context->net();
  TRY(const Protection protection, readProtection(net.config()));
  Membership made;
  made.daemon = options.daemon;
  TRY(JoinLink link, reach(options.daemon, options.secret, protection, patience));
  TRY(auto listener, net.listen(options.context, options.device, options.request.handle));
  options.request.waitMs = static_cast<uint32_t>(patience.left().count());
  TRY(link.say(options.request.encode(), patience));
  TRY(const Bytes answered, link.hear(patience));
  TRY(const JoinAnswer answer, decodeJoinAnswer(answered));
  if (!answer.accepted) return joinError("it refuses: " + answer.reason, Code::unavailable);
  TRY(made.pipe, openPipe(options.context, options.device, *listener, answer.handle,
                          "the aggregation daemon " + options.daemon, patience));
  TRY(const Bytes formed, link.hear(patience));
  TRY(const Verdict verdict, decodeVerdict(formed));
  if (!verdict.formed) return joinError("it refuses: " + verdict.reason, Code::unavailable);
  return made;
}

}  // namespace

Result<std::string> askStatus(const StatusQuestion& question, const Clock& clock) {
  const Patience patience(clock, question.timeout);
  auto said = ask(question, patience);
  if (said) return said;
  return of(question.daemon, said.error());
}

Result<Membership> joinDaemon(JoinOptions options) {
  if (options.daemon.empty())
    return joinError("WEFT_AGGD names none; give it HOST:PORT of a weft-aggd", Code::config);
  Patience patience(options.context->net().clock(), options.timeout);
  auto made = join(options, patience);
  if (made) return made;
  return of(options.daemon, made.error());
}

}  // namespace weft::coll
