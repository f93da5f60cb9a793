// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/join.h"

#include <cerrno>
#include <sys/socket.h>

#include "src/base/log.h"
#include "src/base/secret_file.h"

// The talk by which a member joins. Layout of the messages: docs/collectives.md.
namespace weft::coll {

namespace {

// The kinds of message; their numbers do not meet those of Word in wire.h.
constexpr uint8_t kGreeting = 32, kRequest = 33, kAnswer = 34, kStatus = 35;
constexpr size_t kHeadBytes = 8;  // magic, version, kind and a zero byte
constexpr const char* kOperation = "joining an aggregation daemon";

Error broken(const std::string& why, Code code = Code::remote) {
  return Error(code, kOperation, why);
}

// An error of the sockets becomes one of joining.
Error broken(const Error& error) {
  return Error(error.code() == Code::unavailable ? Code::remote : error.code(), kOperation, error.detail(),
               error.errnum());
}

// The error with the daemon in front, where it does not begin with that.
Error of(const std::string& daemon, const Error& error) {
  const bool named = error.detail().starts_with(daemon);
  return Error(error.code(), kOperation, named ? error.detail() : daemon + ": " + error.detail(),
               error.errnum());
}

ByteWriter begin(uint8_t word) {
  ByteWriter out;
  out.put(kMagic).put(kVersion).put(word).put(uint8_t{0});
  return out;
}

// The version is read only where the rest is a message of ours: other bytes come from a stranger and have no
// version.
Status readHead(ByteReader* in, uint8_t word) {
  const auto magic = in->get<uint32_t>();
  const auto version = in->get<uint16_t>();
  const auto said = in->get<uint8_t>();
  in->get<uint8_t>();
  if (in->failed() || magic != kMagic || said != word)
    return broken("what came is no message of weft's aggregation");
  if (version != kVersion)
    return broken(
        format("the other end speaks version %u and this one version %u: install one release everywhere",
               version, kVersion));
  return {};
}

Status readEnd(const ByteReader& in) {
  return in.done() ? Status() : Status(broken("a message is cut off, or longer than it should be"));
}

// The bytes that a proof covers: the other side's nonce and the message.
ByteWriter provenBy(const Nonce& nonce, std::span<const std::byte> body) {
  ByteWriter said;
  said.raw(nonce).raw(body);
  return said;
}

// The message and the proof behind it: its sender knows the key and has seen the nonce.
Bytes sealed(ByteWriter body, const Key128& key, const Nonce& nonce) {
  const Tag128 tag = proofOf(key, provenBy(nonce, body.bytes()));
  return body.raw(tag).take();
}

// The message without its proof; an error where the proof is wrong. equalSecret takes the same time for every
// input.
Result<std::span<const std::byte>> unsealed(std::span<const std::byte> bytes, const Key128& key,
                                            const Nonce& nonce) {
  Tag128 tag{};
  if (bytes.size() < kHeadBytes + tag.size()) return broken("a message is cut off");
  const auto body = bytes.first(bytes.size() - tag.size());
  std::memcpy(tag.data(), bytes.data() + body.size(), tag.size());
  if (equalSecret(proofOf(key, provenBy(nonce, body)), tag)) return body;
  return broken("the other end has another secret; WEFT_AGGD_SECRET must be the daemon's", Code::config);
}

}  // namespace

Bytes Greeting::encode() const {
  return begin(kGreeting).raw(nonce).take();
}

Bytes JoinRequest::encode(const Key128& key, const Nonce& greeting) const {
  ByteWriter out = begin(kRequest);
  out.raw(nonce).put(group).put(ranks).put(rank).put(chunkBytes).put(waitMs);
  out.text(name.substr(0, 200)).raw(handle);
  return sealed(std::move(out), key, greeting);
}

Bytes JoinAnswer::encode(const Key128& key, const Nonce& request) const {
  ByteWriter out = begin(kAnswer);
  out.put(uint8_t{accepted}).text(reason.substr(0, kReasonBytes)).raw(handle);
  return sealed(std::move(out), key, request);
}

Bytes encodeStatusRequest(uint8_t format, const Key128& key, const Nonce& greeting) {
  return sealed(std::move(begin(kStatus).put(format)), key, greeting);
}

Result<uint8_t> decodeStatusRequest(std::span<const std::byte> bytes, const Key128& key,
                                    const Nonce& greeting) {
  ByteReader head(bytes);
  TRY(readHead(&head, kStatus));
  TRY(const auto body, unsealed(bytes, key, greeting));
  ByteReader in(body.subspan(kHeadBytes));
  const auto format = in.get<uint8_t>();
  TRY(readEnd(in));
  return format;
}

Result<std::string> askStatus(const std::string& daemon, const std::string& secret, uint8_t format,
                              const Clock& clock, Milliseconds timeout) {
  constexpr size_t kMost = size_t{16} << 20;
  const Patience patience(clock, timeout);
  TRY(const std::string known, readSecret(secret));
  TRY(const Fd link, dialDaemon(daemon, patience));
  TRY(const Bytes greeted, readFrame(link, patience));
  TRY(const Greeting greeting, decodeGreeting(greeted));
  TRY(writeFrame(link, encodeStatusRequest(format, keyOf(known), greeting.nonce), patience));
  TRY(const Bytes said, readFrame(link, patience, kMost));
  if (ByteReader(said).get<uint32_t>() == kMagic)  // the answer to a question without the right proof
    return broken("the daemon has another secret; WEFT_AGGD_SECRET must be the same", Code::config);
  return std::string(reinterpret_cast<const char*>(said.data()), said.size());
}

Key128 keyOf(const std::string& secret) {
  constexpr Key128 kFixed{};  // not a secret: here the key is fixed and the hashed text is the secret
  return sipHash128(kFixed, std::as_bytes(std::span(secret.data(), secret.size())));
}

Result<std::string> readSecret(const std::string& setting) {
  return readSecretSetting(setting);
}

Result<Greeting> decodeGreeting(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  TRY(readHead(&in, kGreeting));
  Greeting greeting;
  in.fill(greeting.nonce);
  TRY(readEnd(in));
  return greeting;
}

// The proof is checked before anything else of the body is read, and every number before it is used.
Result<JoinRequest> decodeJoinRequest(std::span<const std::byte> bytes, const Key128& key,
                                      const Nonce& greeting) {
  ByteReader head(bytes);
  TRY(readHead(&head, kRequest));
  TRY(const auto body, unsealed(bytes, key, greeting));
  ByteReader in(body.subspan(kHeadBytes));
  JoinRequest request;
  in.fill(request.nonce);
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
  if (!possible) return broken("a request to join has numbers that cannot be");
  return request;
}

Result<JoinAnswer> decodeJoinAnswer(std::span<const std::byte> bytes, const Key128& key,
                                    const Nonce& request) {
  ByteReader head(bytes);
  TRY(readHead(&head, kAnswer));
  TRY(const auto body, unsealed(bytes, key, request));
  ByteReader in(body.subspan(kHeadBytes));
  JoinAnswer answer;
  answer.accepted = in.get<uint8_t>() != 0;
  answer.reason = in.text();
  in.fill(answer.handle);
  TRY(readEnd(in));
  return answer;
}

Bytes framed(const Bytes& message) {
  return ByteWriter().put(static_cast<uint32_t>(message.size())).raw(message).take();
}

Result<size_t> frameLength(std::span<const std::byte> bytes, size_t most) {
  const auto length = ByteReader(bytes).get<uint32_t>();
  if (length > most) return broken(format("a message of %u bytes is too long to be one", length));
  return size_t{length};
}

Status writeFrame(const Fd& fd, const Bytes& message, const Patience& patience) {
  const Status sent = sendAll(fd.get(), framed(message), patience.deadline());
  return sent ? Status() : Status(broken(sent.error()));
}

Result<Bytes> readFrame(const Fd& fd, const Patience& patience, size_t most) {
  ExactReader reader;
  reader.expect(kLengthBytes);
  Status got = receiveAll(fd.get(), reader, patience.deadline());
  if (!got) return broken(got.error());
  TRY(const size_t length, frameLength(reader.bytes(), most));
  reader.expect(length);
  got = receiveAll(fd.get(), reader, patience.deadline());
  if (!got) return broken(got.error());
  return Bytes(reader.bytes().begin(), reader.bytes().end());
}

Result<Fd> dialDaemon(const std::string& address, const Patience& patience) {
  const auto addresses = resolve(address, Resolving::toDial);
  if (!addresses) return broken(addresses.error());
  auto fd = connectToOne(*addresses, patience.deadline());
  if (fd) return fd;
  return broken(of(address, fd.error()));
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
    if (patience.over()) return broken("no connection over the fabric with " + name, Code::timeout);
    if (!send || !receive) patience.pause();
  }
  return Pipe::create(std::move(send), std::move(receive), std::move(name));
}

namespace {

// The member's side of the talk. The last message, the verdict, comes when all members of the group are
// there.
Result<Membership> join(JoinOptions& options, Patience& patience) {
  TRY(const std::string secret, readSecret(options.secret));
  const Key128 key = keyOf(secret);
  Membership made;
  made.daemon = options.daemon;
  TRY(const Fd link, dialDaemon(options.daemon, patience));
  TRY(const Bytes greeted, readFrame(link, patience));
  TRY(const Greeting greeting, decodeGreeting(greeted));
  TRY(auto listener, options.context->net().listen(options.context, options.device, options.request.handle));
  options.request.nonce = freshNonce();
  options.request.waitMs = static_cast<uint32_t>(patience.left().count());
  TRY(writeFrame(link, options.request.encode(key, greeting.nonce), patience));
  TRY(const Bytes answered, readFrame(link, patience));
  TRY(const JoinAnswer answer, decodeJoinAnswer(answered, key, options.request.nonce));
  if (!answer.accepted) return broken("it refuses: " + answer.reason, Code::unavailable);
  TRY(made.pipe, openPipe(options.context, options.device, *listener, answer.handle,
                          "the aggregation daemon " + options.daemon, patience));
  TRY(const Bytes formed, readFrame(link, patience));
  TRY(const Verdict verdict, decodeVerdict(formed));
  if (!verdict.formed) return broken("it refuses: " + verdict.reason, Code::unavailable);
  return made;
}

}  // namespace

Result<Membership> joinDaemon(JoinOptions options) {
  if (options.daemon.empty())
    return Error(Code::config, kOperation, "WEFT_AGGD names none; give it HOST:PORT of a weft-aggd");
  Patience patience(options.context->net().clock(), options.timeout);
  auto made = join(options, patience);
  if (made) return made;
  return of(options.daemon, made.error());
}

}  // namespace weft::coll
