// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/pickle.h"

#include <span>
#include <string>
#include <string_view>

#include "tests/fuzz/target.h"

// A dump of PyTorch that nobody vouches for. A pickle that is taken has a root, and all that its root holds
// can be looked at.
using namespace weft;

namespace {

size_t countOf(const counted::Pickled& value, int depth) {
  if (depth == 0) return 1;
  size_t count = 1;
  if (const auto* list = value.list())
    for (size_t i = 0; i < std::min<size_t>(list->size(), 8); i++) count += countOf(*(*list)[i], depth - 1);
  return count + value.text().size() + (value.at("entries") ? 1 : 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto pickle = counted::readPickle({reinterpret_cast<const char*>(data), size});
  if (!pickle) {
    fuzz::demand(!pickle.error().message().empty(), "a refusal says why");
    return 0;
  }
  fuzz::demand(pickle->root != nullptr && countOf(*pickle->root, 4) > 0, "a pickle has a root");
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  std::vector<Input> inputs;
  using namespace std::string_literals;
  for (const std::string& text : {"\x80\x04\x95\0\0\0\0\0\0\0\0}\x94\x8c\x07"
                                  "entries\x94]\x94(K\x01K\x02h\x02"
                                  "es."s,
                                  "\x80\x02]q\x01(h\x01K\x01G?\xf0\0\0\0\0\0\0N\x88"
                                  "e."s}) {
    const auto bytes = std::as_bytes(std::span(text));
    inputs.emplace_back(bytes.begin(), bytes.end());
  }
  return inputs;
}
