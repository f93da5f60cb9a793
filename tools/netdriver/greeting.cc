// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/greeting.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <unistd.h>

#include "src/base/printable.h"
#include "src/base/process.h"

// Proofs over all that both ends have said, each under its own label.
namespace weft::netdriver {

namespace {

template <class T>
std::span<const std::byte> bytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Tag128 tagOfCaller(const TokenKey& key, const Hello& hello, const Opening& opening) {
  ByteWriter said;
  said.text("weft run, caller").raw(bytesOf(opening)).raw(bytesOf(hello));
  return proofOf(key, said);
}

Tag128 tagOfAnswer(const TokenKey& key, const Answer& answer, const Hello& to) {
  ByteWriter said;
  said.text("weft run, answer").raw(bytesOf(answer.from)).put(answer.verdict).raw(bytesOf(to));
  return proofOf(key, said);
}

}  // namespace

Hello helloOf(int rank, int size) {
  Hello hello;
  hello.rank = rank;
  hello.size = size;
  hello.pid = static_cast<int32_t>(::getpid());
  const std::string host = hostName();
  std::copy_n(host.begin(), std::min(host.size(), sizeof(hello.host) - 1), hello.host);
  hello.nonce = freshNonce();
  return hello;
}

std::string nameOf(const Hello& hello) {
  const std::string host(hello.host, ::strnlen(hello.host, sizeof(hello.host)));
  return "rank " + std::to_string(hello.rank) + " on " + printable(host) + " (pid " +
         std::to_string(hello.pid) + ")";
}

Introduction introduce(const TokenKey& key, const Hello& hello, const Opening& opening) {
  return {hello, tagOfCaller(key, hello, opening)};
}

bool isProven(const TokenKey& key, const Introduction& introduction, const Opening& opening) {
  return introduction.hello.magic == kGreetingMagic &&
         equalSecret(introduction.proof, tagOfCaller(key, introduction.hello, opening));
}

Answer answer(const TokenKey& key, const Hello& from, Verdict verdict, const Hello& to) {
  Answer made;
  made.from = from;
  made.verdict = verdict;
  if (verdict != Verdict::stranger) made.proof = tagOfAnswer(key, made, to);
  return made;
}

bool isProven(const TokenKey& key, const Answer& answer, const Hello& to) {
  return equalSecret(answer.proof, tagOfAnswer(key, answer, to));
}

}  // namespace weft::netdriver
