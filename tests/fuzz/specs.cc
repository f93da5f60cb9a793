// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <string>
#include <string_view>

#include "providers/fault/options.h"
#include "providers/loop/device.h"
#include "providers/loop/options.h"
#include "src/base/config.h"
#include "tests/fuzz/target.h"

// What people type into WEFT_PROVIDER, and the memory a peer on the loop provider offers.
using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto check = [](const auto& parsed) {
    if (!parsed) fuzz::demand(!parsed.error().message().empty(), "a refusal says why");
  };
  switch (data[0] % 3) {
    case 0:
      check(fault::parseOptions(text));
      break;
    case 1:
      check(loop::parseOptions(text, Config()));
      break;
    default:
      check(loop::readBlob(fuzz::bytesOf(data, size).subspan(1)));
  }
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  std::vector<Input> inputs;
  for (const std::string_view text :
       {"seed=1,fault=drop,p=0.5,fault=delay,polls=3", "rails=4,seed=7", "fault=kill,nth=9,rail=1"}) {
    inputs.push_back(choose(0, std::as_bytes(std::span(text))));
    inputs.push_back(choose(1, std::as_bytes(std::span(text))));
  }
  inputs.push_back(choose(2, Input(28, std::byte{1})));
  return inputs;
}
