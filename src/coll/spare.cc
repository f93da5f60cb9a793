// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/spare.h"

#include <memory>

#include "src/base/log.h"
#include "src/base/pages.h"

// The question to all ranks, as an all-reduce of two numbers.
namespace weft::coll {

namespace {

constexpr uint64_t kCannot = UINT64_MAX;  // in the place of `after`: this rank cannot begin again

}  // namespace

Status Spare::ask(const Claim& mine) {
  TRY(const auto page, mapPages(sizeof(Question)));
  question_ = std::shared_ptr<Question>(page, std::construct_at(reinterpret_cast<Question*>(page.get())));
  auto& [ours, maxima] = *question_;
  ours = {mine.canBeginAgain ? mine.after : kCannot, ~mine.oldest};
  until_ = backend_->mesh().clock().now() + patience_;
  backend_->keep(question_);
  const MemoryDesc whole{.address = question_.get(), .length = sizeof(Question), .ours = true};
  TRY(mineMemory_, backend_->registerMemory(whole));
  TRY(allMemory_, backend_->registerMemory(whole));
  Operation greatest;
  greatest.type = ElementType::u64;
  greatest.op = ReduceOp::max;
  greatest.send = ours.data();
  greatest.receive = maxima.data();
  greatest.sendMemory = mineMemory_.get();
  greatest.receiveMemory = allMemory_.get();
  greatest.bytes = sizeof ours;
  (void)backend_->begin(0, greatest);  // hear() tells whether it failed
  return {};
}

Spare::Answer Spare::hear() {
  switch (backend_->advance(0)) {
    case Backend::Step::done:
      return decide();
    case Backend::Step::failed:
      return Answer::failed;
    case Backend::Step::going:
      break;
  }
  if (backend_->mesh().clock().now() <= until_) return Answer::waiting;
  why_ = format(
      "some rank, which may have nothing left to do, has not come to an agreement within %lld ms "
      "(WEFT_COLLNET_TIMEOUT)",
      static_cast<long long>(patience_.count()));
  return Answer::no;
}

// All ranks see the same maxima, and so decide alike. Equal numbers mean that no rank has a result that
// another one lacks.
Spare::Answer Spare::decide() {
  const uint64_t youngest = question_->all[0];
  if (youngest == kCannot) {
    why_ = "a rank no longer holds what it sent, or has it in a GPU's memory";
    return Answer::no;
  }
  if (youngest != from()) {
    why_ = "some ranks have results that others lack";
    return Answer::no;
  }
  return Answer::yes;
}

}  // namespace weft::coll
