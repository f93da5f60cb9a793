// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/reserve.h"
#include "src/core/send_comm.h"

// Sums of bytes, when the message has left: the caller changes nothing before he is told that it is sent.
namespace weft::core {

void SendCommImpl::sum(const Send& send, uint32_t k, uint8_t lane) {
  if (!canSum(send.memory)) return;
  PayloadSum sum = PayloadSum::of(send.tag, k, {static_cast<const std::byte*>(send.data), send.bytes});
  sum.segmentCount = 1;
  sum.segments[0] = {lane, static_cast<uint32_t>(send.bytes)};
  addSum(sum);
}

void SendCommImpl::sum(const Request& request) {
  if (!canSum(request.memory)) return;
  PayloadSum sum = PayloadSum::of(static_cast<uint32_t>(request.tags[0]), request.sequence[0],
                                  {static_cast<const std::byte*>(request.transfer.data), request.bytes});
  sum.segmentCount = request.segmentCount;
  for (size_t i = 0; i < request.segmentCount; i++)
    sum.segments[i] = {request.segments[i].lane, request.segments[i].bytes};
  addSum(sum);
}

// They are told by whoever looks after the comms now and then, as telling costs more than a message: where
// only some are summed those that are too many are left out.
void SendCommImpl::addSum(const PayloadSum& sum) {
  if (sum.bytes == 0 || toGpu_.load(std::memory_order_relaxed)) return;
  const MustNotFail first;  // their memory
  if (sumsToTell_.full() && !sums_.concernsAll()) return;
  sumsToTell_.add(sum);
  if (sumsToTell_.full() && sums_.concernsAll()) tellSums();
}

void SendCommImpl::tellSums() {
  if (sumsToTell_.empty()) return;
  peering().tell(MessageType::checksums, SumsMessage{remoteNumber_, sumsToTell_.sums()});
  sumsToTell_.clear();
}

}  // namespace weft::core
