// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>
#include <cstdio>
#include <ostream>
#include <streambuf>

#include "tests/order/models.h"

// Each model holds as it is, and not without any of its orders.
using namespace weft::order;

namespace {

constexpr int kIterations = 20'000;

int wrong = 0;

// What Relacy prints, up to a length. It replaces operator new, so a string is no place for it.
class Words : public std::streambuf {
 public:
  Words() { setp(text_.data(), text_.data() + text_.size()); }
  int length() const { return static_cast<int>(pptr() - pbase()); }
  const char* text() const { return text_.data(); }

 private:
  std::array<char, 16384> text_{};
};

template <class Model>
bool holds(Words* words) {
  std::ostream out(words);
  rl::test_params params;
  params.iteration_count = kIterations;
  params.output_stream = &out;
  params.progress_stream = &out;
  return rl::simulate<Model>(params);
}

template <class Model>
void mustHold(const char* name) {
  Words words;
  if (holds<Model>(&words)) return (void)std::printf("%s: holds\n", name);
  std::printf("FAILED: %s\n%.*s\n", name, words.length(), words.text());
  wrong++;
}

template <class Model>
void mustFail(const char* name, const char* without) {
  Words words;
  if (!holds<Model>(&words)) return (void)std::printf("%s without %s: found\n", name, without);
  std::printf("FAILED: %s holds without %s, so the model shows nothing, or the order is not needed\n", name,
              without);
  wrong++;
}

}  // namespace

int main() {
  mustHold<Frames<FrameOrder::none>>("frames");
  mustFail<Frames<FrameOrder::number>>("frames", "release of the number");
  mustFail<Frames<FrameOrder::taken>>("frames", "acquire of the number");
  mustFail<Frames<FrameOrder::consumed>>("frames", "release of what was consumed");
  mustFail<Frames<FrameOrder::room>>("frames", "acquire of what was consumed");

  mustHold<Fence<FenceOrder::none>>("a fence");
  mustFail<Fence<FenceOrder::landing>>("a fence", "the order of landing");
  mustFail<Fence<FenceOrder::look>>("a fence", "the order of the look at it");
  mustFail<Fence<FenceOrder::fence>>("a fence", "its own order");
  mustFail<Fence<FenceOrder::ask>>("a fence", "the order of the look at landing");
  mustFail<Fence<FenceOrder::end>>("a fence", "release at the end of landing");

  mustHold<Records<RecordOrder::none>>("records");
  mustFail<Records<RecordOrder::begin>>("records", "the fence behind the 0");
  mustFail<Records<RecordOrder::end>>("records", "release of the number");
  mustFail<Records<RecordOrder::done>>("records", "release of done");
  mustFail<Records<RecordOrder::first>>("records", "the fence before the words");
  mustFail<Records<RecordOrder::second>>("records", "the fence before the size");
  mustFail<Records<RecordOrder::third>>("records", "the fence behind the words");

  mustHold<Door<DoorOrder::none>>("the door");
  mustFail<Door<DoorOrder::enter>>("the door", "acquire on entering");
  mustFail<Door<DoorOrder::leave>>("the door", "release on leaving");
  mustFail<Door<DoorOrder::mail>>("the door", "the word that mail waits");

  mustHold<Pins<PinOrder::none>>("pins");
  mustFail<Pins<PinOrder::use>>("pins", "acquire of a pin");
  mustFail<Pins<PinOrder::unpin>>("pins", "release of a pin");
  mustFail<Pins<PinOrder::wait>>("pins", "acquire of the last pin's end");
  return wrong == 0 ? 0 : 1;
}
