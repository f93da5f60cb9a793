// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "src/core/lane.h"
#include "src/core/wire.h"

// The lanes to one peer engine: chooses one for a message or cuts it over several, watches them, and tries
// lost ones again. `enter` is the one function that moves a lane's state, by the table in docs/design.md,
// "Fail-over". Knows nothing of comms, nor of what two ends say to each other: it reports to its owner, who
// does the talking. Used only by who has entered the engine.
namespace weft::core {

// How long a lane's end is taken for that of its peer, whose goodbye comes by another way.
constexpr Milliseconds kSuspicion{500};

// Whoever owns a set. What it hears, it hears after the state was entered, and it may call back.
class LaneOwner {
 public:
  virtual TimePoint now() = 0;
  virtual Result<std::unique_ptr<Endpoint>> openEndpoint(size_t rail) = 0;
  virtual void laneUp(Lane& lane) = 0;
  // Our end stands. True: the peer was told so, and the lane is up once the peer has said the same.
  virtual bool awaitsPeer(Lane& lane) = 0;
  // Ask the peer whether it is still there, and call LaneSet::answered with this time when it says so.
  virtual void askPeer(TimePoint now) = 0;
  virtual CardRetries retriesOf(size_t rail) const = 0;
  virtual void laneSuspected(Lane& lane) = 0;
  virtual void laneLost(Lane& lane) = 0;      // that is the verdict; why is in lane.cause()
  virtual void laneFenced(Lane& lane) = 0;    // account for it, then call LaneSet::accounted
  virtual void laneReopened(Lane& lane) = 0;  // connect its next incarnation
  virtual void laneStuck(Lane& lane) = 0;     // nobody accounts for it in time

 protected:
  ~LaneOwner() = default;
};

class LaneSet {
 public:
  static constexpr size_t kMaxLanes = 16;

  // `loopback`: both ends are this engine, which always answers.
  LaneSet(LaneOwner& owner, const Config& config, bool loopback = false)
      : owner_(owner), config_(config), loopback_(loopback) {}

  // Before any is used; `of` will there be.
  void add(uint8_t rail, std::string railName, std::unique_ptr<Endpoint> endpoint, size_t of);

  void clear();  // nothing was ever given to any
  // A lane that carries everything while it is up; those there are get the numbers behind it, and carry what
  // it cannot. Nothing was ever given to any.
  void addPreferred(uint8_t rail, std::string railName, std::unique_ptr<Endpoint> endpoint);
  bool prefersFirst() const { return prefersFirst_; }

  size_t size() const { return count_; }
  Lane& at(size_t i) { return *lanes_[i]; }
  const Lane& at(size_t i) const { return *lanes_[i]; }
  Lane* find(size_t i) const {  // null: there are not so many
    if (i == 0) [[likely]]
      return lanes_.front().get();
    return i < lanes_.size() ? lanes_[i].get() : nullptr;
  }
  Lane* find(const Endpoint* endpoint) const;  // null: it is none of ours

  // States:
  bool enter(Lane& lane, LaneState to, const std::string& why = {});  // false: not from the one it is in
  void connected(Lane& lane, bool ok, const std::string& why);
  void peerStands(Lane& lane);  // the peer has said that its end does
  // Nothing passes for now, though the card goes on trying; empty: that is over.
  void faltering(Lane& lane, const std::string& why);
  void suspect(Lane& lane, const std::string& why);
  void lose(Lane& lane, const std::string& why = {});  // the peer has said so itself, or answered
  void answered(TimePoint asked);                      // the peer was there when it heard our question
  void fenced(Lane& lane);
  void accounted(Lane& lane) { enter(lane, LaneState::accounted); }
  void skip(Lane& lane) {
    lane.standing.incarnation++;
  }  // an incarnation that the peer gave up before we had it
  void reopen(Lane& lane);
  void fence();  // all of them, for ever

  // `settled`: the peer's process answers, and has for a while. `mayReopen`: it is there for more.
  void watch(TimePoint now, bool settled, bool mayReopen);

  size_t up() const { return up_; }
  // Those that have been up or have failed. The others are on their first way, so nothing is wrong with them.
  size_t tried() const { return size() - connectingFirst_; }
  bool connectingFirst() const { return connectingFirst_ > 0 && !firstCarriesAll(); }
  bool anyLeft() const { return up_ + connectingFirst_ + suspected_ > 0; }
  bool onlySuspected() const { return suspected_ > 0 && up_ + connectingFirst_ == 0; }
  bool isLeaving() const;          // some lane is lost and not accounted for, or may be
  bool isFenced() const;           // nothing of this side's can land any more
  TimePoint fencingSince() const;  // of the lane that was lost last and is not fenced; never: all are
  bool upOn(size_t rail) const;
  bool upWithout(size_t rail) const;  // on another one
  bool tickBusy();                    // asked by the control thread, once a tick
  std::string causes() const;         // of every lane that is not up, for an error
  std::string railNames() const;
  // How long works may stay without effect on the lane that is most patient.
  Nanoseconds patience() const;
  float rate() const { return fastest_; }  // bytes per microsecond of the quickest lane; 0: not known

  // Choosing:
  bool several() const { return !only_; }
  Lane& quickest(uint64_t bytes) {
    if (only_) [[likely]]
      return *only_;
    return quickestOfSeveral(bytes);
  }
  bool mayBeSplit(uint64_t bytes) const { return bytes >= splitFrom_; }  // else it goes by one lane
  size_t split(uint64_t bytes, std::array<Segment, kMaxSegments>* out);  // one segment at least
  bool hasQueued() const;
  bool flush(TimePoint now);  // true: the fabrics took not all of what is queued
  // Whether what came in through `from` can be of this peer: another one may know our numbers as well. Null:
  // the fabric does not say who wrote.
  bool mayNotify(const Endpoint* from) {
    if (!lanes_.front()->isAt(from)) {
      if (from && !find(from)) return false;
      othersNotified_ = true;
    }
    return lanes_.front()->notePeerSeen();
  }
  // Nothing of this peer ever came in by another lane than the first one.
  bool onlyFirstNotified() const { return !othersNotified_; }

 private:
  bool firstCarriesAll() const { return prefersFirst_ && lanes_.front()->up(); }
  void leave(Lane& lane);
  void weigh();
  bool hasSteadyBeside(const Lane& lane) const;
  void planNext(Lane& lane, LaneState from, TimePoint now) const;
  void watchConnecting(Lane& lane, TimePoint now);
  void watchFaltering(Lane& lane, TimePoint now);
  void watchSilence(Lane& lane, TimePoint now, bool settled);
  void watchFencing(Lane& lane, TimePoint now, bool settled);
  uint32_t nextTurn();
  void endRound();
  [[gnu::noinline]] Lane& quickestOfSeveral(uint64_t bytes);
  [[gnu::noinline]] Lane& quickestByLoad(uint64_t bytes, uint32_t turn);

  LaneOwner& owner_;
  const Config& config_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  Lane* only_ = nullptr;             // where there are no others
  uint64_t splitFrom_ = UINT64_MAX;  // bytes
  uint32_t count_ = 0;               // for who counts with every message
  uint32_t turn_ = 0;                // the lane that comes first among equal ones
  float fastest_ = 0;                // rate of any lane, at the end of the last round; 0: not known
  size_t up_ = 0, connectingFirst_ = 0, suspected_ = 0;
  TimePoint peerPolledAt_{};  // the peer's engine answered a question of this time
  bool prefersFirst_ = false;
  bool othersNotified_ = false;
  const bool loopback_;
};

}  // namespace weft::core
