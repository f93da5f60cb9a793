// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/frame_seal.h"

#include <cstring>

// Records of frames.
namespace weft::control {

void FrameSeal::append(const FrameHeader& header, std::span<const std::byte> body, Bytes& out) {
  const size_t at = out.size();
  encodeFrame(header, body, out);
  if (inClear_) return;
  const size_t end = out.size();
  out.resize(end + kSealBytes);
  const std::span<std::byte> record(out.data() + at, out.size() - at);
  out_.close(record.first(kLengthBytes), record.subspan(kLengthBytes, end - at - kLengthBytes),
             std::span<std::byte, kSealBytes>(record.last(kSealBytes)));
}

std::optional<std::span<std::byte>> FrameSeal::open(std::span<std::byte> record) {
  if (inClear_) return record;
  if (record.size() < kFrameHeaderBytes + kSealBytes) return std::nullopt;
  const std::span<std::byte> frame = record.first(record.size() - kSealBytes);
  const std::span<const std::byte, kSealBytes> tag(record.data() + frame.size(), kSealBytes);
  if (!in_.open(frame.first(kLengthBytes), frame.subspan(kLengthBytes), tag)) return std::nullopt;
  return frame;
}

std::optional<uint32_t> bodyLengthOf(std::span<const std::byte> first) {
  uint32_t length = 0;
  std::memcpy(&length, first.data(), sizeof length);
  return length <= kMaxFrameBody ? std::optional(length) : std::nullopt;
}

bool SealedSocket::send(const FrameHeader& header, std::span<const std::byte> body) {
  Bytes bytes;
  seal.append(header, body, bytes);
  return sendSome(fd.get(), bytes).bytes == bytes.size();
}

}  // namespace weft::control
