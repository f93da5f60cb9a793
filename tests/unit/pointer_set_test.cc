// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/pointer_set.h"

#include <set>
#include <vector>

#include "src/base/random.h"
#include "tests/support/catch.h"

using namespace weft;

TEST_CASE("a set of pointers holds what was inserted and not erased") {
  std::vector<int> objects(500);
  PointerSet<int> set;
  std::set<int*> model;
  CHECK_FALSE(set.contains(objects.data()));
  set.erase(objects.data());
  SeededRandom random(3);
  for (int step = 0; step < 20000; step++) {
    int* object = &objects[random.below(objects.size())];
    if (random.below(2) == 0) {
      set.insert(object);
      model.insert(object);
    } else {
      set.erase(object);
      model.erase(object);
    }
    if (set.contains(object) != model.contains(object) || set.size() != model.size())
      FAIL("at step " << step);
  }
  std::set<int*> visited;
  for (int* object : set) visited.insert(object);
  CHECK(visited == model);
  for (int& object : objects)
    if (set.contains(&object) != model.contains(&object)) FAIL("wrong about " << &object);
}
