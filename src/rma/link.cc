// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/rma/link.h"

#include "src/base/log.h"

// A link's steps and its end.
namespace weft::rma {

Result<std::unique_ptr<Link>> Link::create(uint32_t rank, uint32_t self, coll::Pipe& pipe,
                                           const OwnMemory& memory) {
  auto link = std::make_unique<Link>(rank, pipe);
  TRY(link->sender_, Sender::create(pipe.sending(), rank, memory));
  TRY(link->receiver_, Receiver::create(pipe.receiving(), rank, self, memory));
  return link;
}

// What came is taken before a comm's failure counts: a peer that says why it goes is heard.
bool Link::advance(Desk& desk) {
  if (state_ == State::lost) return false;
  const Status heard = receiver_->advance(desk);
  if (state_ == State::lost) return false;
  if (!heard) {
    giveUp(heard.error());
  } else if (!sender_->advance()) {
    if (const auto& fault = sender_->fault())
      giveUp(*fault);
    else
      loseBy(pipe_.sending());
  } else if (receiver_->broken() && state_ == State::open) {
    loseBy(pipe_.receiving());
  }
  return state_ != State::lost;
}

void Link::leave() {
  saidGoodbye_ = true;
  enter(State::left);
}

void Link::loseBy(const core::Comm& comm) {
  lose(Error(Code::remote, "one-sided operations",
             format("rank %u: %s", rank_, comm.error().message().c_str())));
}

void Link::giveUp(const Error& why) {
  alarm(why.detail());
  lose(why);
}

void Link::lose(Error why) {
  if (state_ == State::lost) return;
  error_ = std::move(why);
  enter(State::lost);
  sender_->drop();
  receiver_->drop();
}

void Link::alarm(const std::string& why) {
  const std::string text = why.substr(0, kInlineBytes);
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  Sender::Message message;
  message.head.kind = Kind::alarm;
  message.head.inlined = static_cast<uint16_t>(bytes.size());
  message.owned.assign(bytes.begin(), bytes.end());
  (void)sender_->post(std::move(message));
  (void)sender_->advance();
}

void Link::sayGoodbye() {
  if (state_ == State::lost) return;
  for (size_t i = 0; i < kHeadsAtOnce; i++) {
    Sender::Message message;
    message.head.kind = Kind::goodbye;
    (void)sender_->post(std::move(message));
  }
}

}  // namespace weft::rma
