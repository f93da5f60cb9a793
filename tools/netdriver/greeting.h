// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>

#include "tools/netdriver/token.h"

// The first bytes of a connection between ranks, in the order of this page. The caller proves itself first: a
// stranger who dials gets nothing that was made with the token, so nothing to try tokens on. Values; any
// thread.
namespace weft::netdriver {

constexpr uint64_t kGreetingMagic =
    0x776566747065726b;  // "weftperk": changes with what ranks tell each other

// By the end that listens, at once.
struct Opening {
  uint64_t magic = kGreetingMagic;
  Nonce nonce{};
};

// Which rank it is. The text may be anything until it is proven, and is made printable where it is shown.
struct Hello {
  uint64_t magic = kGreetingMagic;
  int32_t rank = 0;
  int32_t size = 0;
  int32_t pid = 0;
  char host[64] = "";
  int32_t unused = 0;
  Nonce nonce{};
};
Hello helloOf(int rank, int size);       // of this process, with a fresh nonce
std::string nameOf(const Hello& hello);  // "rank 2 on node7 (pid 4711)"

// By the end that dials.
struct Introduction {
  Hello hello;
  Tag128 proof{};
};
Introduction introduce(const TokenKey& key, const Hello& hello, const Opening& opening);
bool isProven(const TokenKey& key, const Introduction& introduction, const Opening& opening);

// By the end that listens; `size` is that of its run. Only a stranger's has no proof.
enum class Verdict : int32_t { welcome, otherSize, taken, stranger };
struct Answer {
  Hello from;
  Verdict verdict = Verdict::welcome;
  int32_t unused = 0;
  Tag128 proof{};
};
Answer answer(const TokenKey& key, const Hello& from, Verdict verdict, const Hello& to);
bool isProven(const TokenKey& key, const Answer& answer, const Hello& to);

}  // namespace weft::netdriver
