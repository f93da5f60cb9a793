// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/torch_dump.h"

#include "tests/support/catch.h"
#include "tools/stats/pickle.h"

// Pickles are read without Python's help, and without what it would run. tests/tools/torch_dump_test.py has
// files that Python wrote.
using namespace weft;
using namespace weft::counted;

namespace {

TorchRank at(int rank, int64_t called, const std::string& call = "nccl:all_reduce of [[8]]") {
  TorchRank made;
  made.rank = rank;
  made.group = "0";
  made.called = called;
  made.finished = called - 1;
  made.call = call;
  return made;
}

}  // namespace

TEST_CASE("plain values are read, also those that come twice") {
  // {'a': [1, -2, 300, 70000, -1 as a long], 'b': the same list, 'c': (True, None, 1.5)}
  const std::string bytes(
      "\x80\x02}q\x00(X\x01\x00\x00\x00"
      "a]q\x01(K\x01J\xfe\xff\xff\xffM\x2c\x01J\x70\x11\x01\x00"
      "\x8a\x01\xff"
      "eX\x01\x00\x00\x00"
      "bh\x01X\x01\x00\x00\x00"
      "c\x88NG\x3f\xf8\x00\x00\x00\x00\x00\x00\x87u.",
      68);
  const auto pickle = readPickle(bytes);
  REQUIRE(pickle);
  const Pickled* list = pickle->root->at("a");
  REQUIRE(list);
  REQUIRE(list->list());
  std::vector<int64_t> numbers;
  for (const Pickled* one : *list->list()) numbers.push_back(one->number(0));
  CHECK(numbers == std::vector<int64_t>{1, -2, 300, 70000, -1});
  CHECK(pickle->root->at("b") == list);
  REQUIRE(pickle->root->at("c")->list());
  CHECK(pickle->root->at("c")->list()->size() == 3);
  CHECK(pickle->root->at("d") == nullptr);
}

TEST_CASE("a pickle that calls something, and one that is cut, are errors") {
  CHECK_FALSE(readPickle("cos\nsystem\n(X\x04\x00\x00\x00truetR."));
  for (const std::string broken : {"", ".", "\x80", "(", "e.", "u.", "a.", "s.", "\x87.", "h\x05.", "q",
                                   "X\xff\xff\xff\x7f", "K\x01K\x02."})
    CHECK_FALSE(readPickle(broken));
  CHECK(readPickle("N."));
}

TEST_CASE("a rank that has called less than others is named, and one that calls something else") {
  CHECK(torchFindings({}).empty());
  CHECK(torchFindings({at(0, 5), at(1, 5), at(2, 5)}).empty());
  const auto behind = torchFindings({at(0, 5), at(1, 4), at(2, 5)});
  REQUIRE(behind.size() == 1);
  CHECK(behind[0] ==
        "PyTorch: rank 1 has not called collective 5 of group 0, nccl:all_reduce of [[8]], that others are "
        "in; its last "
        "one was 4, nccl:all_reduce of [[8]]");
  const auto other = torchFindings({at(0, 5), at(1, 5), at(2, 5, "nccl:broadcast of [[8]]")});
  REQUIRE(other.size() == 1);
  CHECK(other[0] ==
        "PyTorch: rank 2 has called nccl:broadcast of [[8]] as collective 5 of group 0, and others "
        "nccl:all_reduce of "
        "[[8]]");
}
