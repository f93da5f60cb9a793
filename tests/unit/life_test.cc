// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/life.h"

#include <initializer_list>

#include "tests/support/catch.h"

// The table of stages, one event at a time.
using namespace weft::core;

namespace {

Life after(std::initializer_list<Event> events) {
  Life life("a life");
  for (const Event event : events) life.apply(event);
  return life;
}

}  // namespace

TEST_CASE("a peering opens, pauses and is open again, and ends once") {
  Life life = after({Event::halfHere, Event::lanesUp});
  CHECK(life.is(Stage::open));
  CHECK(life.apply(Event::lanesDown) == Action::none);
  CHECK(life.is(Stage::paused));
  life.apply(Event::lanesUp);
  CHECK(life.is(Stage::open));
  life.apply(Event::peerLeft);
  CHECK(life.is(Stage::left));
  CHECK(life.apply(Event::failed) == Action::end);
  CHECK(life.apply(Event::failed) == Action::none);
  CHECK(life.is(Stage::ended));
  CHECK(life.apply(Event::lanesUp) == Action::none);
  CHECK(life.is(Stage::ended));
  CHECK(life.apply(Event::cut) == Action::cut);
  CHECK(life.apply(Event::cut) == Action::none);
}

TEST_CASE("a comm that is closed asks the other end, and says goodbye when it has the answer") {
  Life life = after({Event::joined, Event::close});
  CHECK(life.is(Stage::draining));
  CHECK(life.apply(Event::failed) == Action::none);  // whoever closes it does not ask any more
  CHECK(life.apply(Event::drained) == Action::ask);
  CHECK(life.is(Stage::told));
  CHECK(life.apply(Event::settled) == Action::sayClosed);
  CHECK(life.is(Stage::over));
}

TEST_CASE("what a close waits for in vain is cut off, and nothing but a word is not waited for") {
  CHECK(after({Event::joined, Event::close, Event::late}).is(Stage::cutting));
  CHECK(after({Event::joined, Event::close, Event::drained, Event::late}).is(Stage::cutting));
  CHECK(after({Event::joined, Event::close, Event::drained, Event::unanswered}).is(Stage::over));
  Life life = after({Event::joined, Event::close, Event::late});
  CHECK(life.apply(Event::settled) == Action::sayClosed);
}

TEST_CASE("a comm can be closed in every stage of its life, and all ends are reached") {
  CHECK(after({Event::close}).is(Stage::draining));
  CHECK(after({Event::joined, Event::withdrawn, Event::close}).is(Stage::draining));
  CHECK(after({Event::otherClosed, Event::close}).is(Stage::draining));
  CHECK(after({Event::joined, Event::failed, Event::close}).is(Stage::draining));
  CHECK(after({Event::joined, Event::otherClosed, Event::withdrawn}).is(Stage::stopped));
}

TEST_CASE("every stage and event has a name of its own") {
  for (int i = 0; i <= static_cast<int>(Stage::over); i++)
    for (int j = 0; j < i; j++)
      CHECK(std::string(nameOf(static_cast<Stage>(i))) != nameOf(static_cast<Stage>(j)));
}
