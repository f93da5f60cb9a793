// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/netdriver/library.h"
#include "tools/perf/options.h"
#include "tools/perf/pair_probe.h"

// The part of one rank in a round of `weft perf --check-cluster`, and the messages in which rank 0 asks it
// to: listen for some peers, connect to them, measure those that both ends have reached. Nothing here fails
// the run: what does not work is an answer. Used by one thread.
namespace weft::perf {

enum class Ask : uint32_t { listen = 1, connect = 2, measure = 3, leave = 4 };

// Rank 0 to a rank: what, and for which peers. With `connect` each peer's handle is there.
struct Question {
  Ask ask = Ask::leave;
  struct Peer {
    int32_t rank = 0;
    int32_t begins = 0;  // of the two it is the one that begins
    netdriver::Handle handle{};
  };
  std::vector<Peer> peers;
};
std::vector<std::byte> encode(const Question& question);
Result<Question> decodeQuestion(std::span<const std::byte> bytes);
size_t mostOfQuestion(int ranks);  // bytes: about every other rank

using Words = std::array<char, 200>;
Words cutWords(const std::string& text);

// A rank's answer, one of these for each peer, in the order of the question.
struct PeerAnswer {
  int32_t well = 0;   // it listens; or both directions are connected; or it was measured
  int32_t sends = 0;  // connect: our connection to it is there
  int32_t small = 0;  // measure: small messages went to and fro
  int32_t unused = 0;
  double latency = 0;    // microseconds, from the peer to us
  double bandwidth = 0;  // GB/s, likewise
  EndCosts costs;        // of our end; measured for --fit alone
  netdriver::Handle handle{};
  Words why{};  // what the plugin said, where it is not well
};
std::vector<std::byte> encode(const std::vector<PeerAnswer>& answers);
Result<std::vector<PeerAnswer>> decodeAnswers(std::span<const std::byte> bytes);
size_t mostOfAnswers(int ranks);

class ClusterRank {
 public:
  static Result<ClusterRank> open(const Options& options, int rank);

  std::vector<PeerAnswer> answer(const Question& question);

  const std::string& plugin() const { return library_->path(); }
  int devices() const { return devices_; }

 private:
  // A peer of the round at hand.
  struct Link {
    int rank = 0;
    netdriver::Listener listener;
    void* send = nullptr;
    void* recv = nullptr;
    std::string failed;
  };

  std::vector<PeerAnswer> listen(const Question& question);
  std::vector<PeerAnswer> connect(const Question& question);
  std::vector<PeerAnswer> measure(const Question& question);
  void step(Link& link, netdriver::Handle& handle);
  PeerAnswer measure(Link& link, bool begins);
  void closeAll();

  Options options_;
  int rank_ = 0;
  int devices_ = 0;
  int device_ = 0;
  std::unique_ptr<netdriver::Library> library_;
  std::optional<netdriver::Context> context_;
  std::vector<Link> links_;
};

}  // namespace weft::perf
