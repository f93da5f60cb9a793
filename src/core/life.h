// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

// The lives of peerings and of comms: one table says what an event makes of a stage, and what has to be done
// then. `Life::apply` is the one place that moves a stage, and logs each change (trace level). A peering is
// shared by comms, so it has the stages of its lanes; a comm has those of being closed as well.
//
// A Life belongs to its peering or comm and is changed only inside the engine. The owner does what the action
// says; nothing here knows a lane or a message.
namespace weft::core {

enum class Stage : uint8_t {
  opening,   // the other half is not here
  joining,   // a peering's lanes come up
  open,      // messages may begin
  paused,    // no lane of the peering is up, and the peer has not said whether it closed: calls say "later"
  stopped,   // nothing more begins on the comm; its next call ends it
  left,      // the peer's engine is closed: what it let us write is there, and nothing more is written
  ended,     // for the reason in the Ending: every call says it
  draining,  // the comm is being closed: what was posted has to leave
  told,      // the other end was told so, and has to answer
  cutting,   // something did not end in its time: the lanes are being fenced
  over,      // nothing of it is under way any more
};

// How much a comm's other end has said of itself; each is said after the one before, or in its place.
enum class OtherEnd : uint8_t {
  open,
  settled,  // a sender's: its total, and it begins nothing more; a receiver's: it has as many as it was told
  closed,
};

enum class Event : uint8_t {
  halfHere,     // the other half of a peering has come
  joined,       // a comm knows of its other end all that it needs
  lanesUp,      // all lanes have been tried, and one is up
  lanesDown,    // none is up, and it is not known why
  withdrawn,    // memory was taken away under receives
  otherClosed,  // the other end of the comm is closed
  peerLeft,     // the peer's engine is closed
  failed,       // this end, the other one, or what is between them
  close,        // NCCL has no use for the comm any more
  drained,      // what was posted has left, and the other end has to say something
  settled,      // there is nothing to be said, or it has been said
  unanswered,   // the other end lets us wait, and nothing can be lost by that
  late,         // this took longer than WEFT_CLOSE_TIMEOUT, and memory depends on it
  cut,          // the ended peering's lanes have to be fenced
  fenced,       // they are, or will not say so in time
};

enum class Action : uint8_t {
  none,
  end,        // say why, to whoever has to hear of it
  ask,        // tell the other end that nothing more begins, so that it answers
  cut,        // fence the lanes
  sayClosed,  // say goodbye, and forget the comm's number
};

struct Change {
  Stage from;
  Event event;
  Stage to;
  Action action = Action::none;
};

// What is not here changes nothing.
inline constexpr Change kLives[] = {
    // Peerings:
    {Stage::opening, Event::halfHere, Stage::joining},
    {Stage::joining, Event::lanesUp, Stage::open},
    {Stage::paused, Event::lanesUp, Stage::open},
    {Stage::open, Event::lanesDown, Stage::paused},
    {Stage::opening, Event::peerLeft, Stage::left},
    {Stage::joining, Event::peerLeft, Stage::left},
    {Stage::open, Event::peerLeft, Stage::left},
    {Stage::paused, Event::peerLeft, Stage::left},
    {Stage::joining, Event::failed, Stage::ended, Action::end},
    {Stage::paused, Event::failed, Stage::ended, Action::end},
    {Stage::left, Event::failed, Stage::ended, Action::end},
    {Stage::ended, Event::cut, Stage::cutting, Action::cut},
    {Stage::cutting, Event::fenced, Stage::over},
    // Comms, and peerings where they are opening or open:
    {Stage::opening, Event::joined, Stage::open},
    {Stage::opening, Event::withdrawn, Stage::stopped},
    {Stage::open, Event::withdrawn, Stage::stopped},
    {Stage::opening, Event::otherClosed, Stage::stopped},
    {Stage::open, Event::otherClosed, Stage::stopped},
    {Stage::opening, Event::failed, Stage::ended, Action::end},
    {Stage::open, Event::failed, Stage::ended, Action::end},
    {Stage::stopped, Event::failed, Stage::ended, Action::end},
    // A comm is closed:
    {Stage::opening, Event::close, Stage::draining},
    {Stage::open, Event::close, Stage::draining},
    {Stage::stopped, Event::close, Stage::draining},
    {Stage::ended, Event::close, Stage::draining},
    {Stage::draining, Event::drained, Stage::told, Action::ask},
    {Stage::draining, Event::settled, Stage::over, Action::sayClosed},
    {Stage::draining, Event::late, Stage::cutting, Action::cut},
    {Stage::told, Event::settled, Stage::over, Action::sayClosed},
    {Stage::told, Event::unanswered, Stage::over, Action::sayClosed},
    {Stage::told, Event::late, Stage::cutting, Action::cut},
    {Stage::cutting, Event::settled, Stage::over, Action::sayClosed},
};

const char* nameOf(Stage stage);
const char* nameOf(Event event);

class Life {
 public:
  Life() = default;
  explicit Life(std::string name) : name_(std::move(name)) {}
  void name(std::string name) { name_ = std::move(name); }

  Stage stage() const { return stage_; }
  bool is(Stage stage) const { return stage_ == stage; }

  // Moves on as the table says, and returns what has to be done for it. `why` is for the log.
  [[gnu::cold]] Action apply(Event event, std::string_view why = {});

 private:
  Stage stage_ = Stage::opening;
  std::string name_;  // "peering 3 with node7 pid 4711"
};

}  // namespace weft::core
