// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/agg/errands.h"

#include <exception>

#include "src/base/log.h"

// The list of errands, behind its lock.
namespace weft::agg {

bool Errands::start(const char* name, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  Errand& errand = errands_.emplace_back();
  auto thread = threads_.start(name, [&errand, work = std::move(work)] {
    try {
      work();
    } catch (const std::exception& error) {
      WEFT_LOG(warn, "weft-aggd: an errand ended: %s", error.what());
    }
    errand.done = true;
  });
  if (thread)
    errand.thread = thread.take();
  else
    errands_.pop_back();
  return static_cast<bool>(thread);
}

// A thread that is done has finished its work, so joining it takes only as long as its end.
void Errands::reap() {
  const std::lock_guard lock(mutex_);
  for (auto errand = errands_.begin(); errand != errands_.end();) {
    if (errand->done) errand->thread->join();
    errand = errand->done ? errands_.erase(errand) : std::next(errand);
  }
}

void Errands::finish() {
  std::list<Errand> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(errands_);
  }
  for (Errand& errand : all) errand.thread->join();
}

size_t Errands::count() const {
  const std::lock_guard lock(mutex_);
  return errands_.size();
}

}  // namespace weft::agg
