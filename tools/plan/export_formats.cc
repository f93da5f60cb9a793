// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "tools/plan/export.h"

namespace weft::plan {

namespace {

// The wire format of Protocol Buffers as far as it is needed: varints and texts. Fields and numbers are those
// of Chakra's schema (mlcommons/chakra, schema/protobuf/et_def.proto).
class Proto {
 public:
  void number(unsigned field, uint64_t value) {
    varint(field << 3);
    varint(value);
  }
  void text(unsigned field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    bytes_ += value;
  }
  const std::string& bytes() const { return bytes_; }
  // After its length, as messages follow each other in a file.
  std::string delimited() const {
    Proto length;
    length.varint(bytes_.size());
    return length.bytes_ + bytes_;
  }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// Of AttributeProto.
constexpr unsigned kInt64Value = 9;
constexpr unsigned kBoolValue = 27;
constexpr const char* kSchemaVersion = "0.0.4";

std::string attribute(const char* name, unsigned field, uint64_t value) {
  Proto proto;
  proto.text(1, name);
  proto.number(field, value);
  return proto.bytes();
}

// NodeType of the schema.
uint64_t chakraType(const Activity& activity) {
  constexpr uint64_t kTypes[] = {4, 7, 5, 6};
  return kTypes[static_cast<size_t>(activity.kind)];
}

// CollectiveCommType of the schema.
uint64_t chakraCollective(Collective collective) {
  constexpr uint64_t kTypes[] = {0, 2, 7, 6};
  return kTypes[static_cast<size_t>(collective)];
}

uint64_t whole(double value) {
  return static_cast<uint64_t>(std::llround(value));
}

std::string chakraNode(const Activity& activity, size_t number, size_t rank) {
  constexpr unsigned kId = 1, kName = 2, kType = 3, kDataDeps = 5, kDuration = 7, kAttr = 10;
  Proto node;
  node.number(kId, number);
  node.text(kName, activity.name);
  node.number(kType, chakraType(activity));
  for (const size_t before : activity.after) node.number(kDataDeps, before);
  if (activity.kind == Activity::Kind::compute) node.number(kDuration, whole(activity.us));
  node.text(kAttr, attribute("is_cpu_op", kBoolValue, 0));
  if (activity.kind == Activity::Kind::compute) return node.delimited();
  node.text(kAttr, attribute("comm_size", kInt64Value, whole(activity.bytes)));
  if (activity.kind == Activity::Kind::collective) {
    node.text(kAttr, attribute("comm_type", kInt64Value, chakraCollective(activity.collective)));
    return node.delimited();
  }
  const bool sends = activity.kind == Activity::Kind::send;
  node.text(kAttr, attribute("comm_src", kInt64Value, sends ? rank : activity.peer));
  node.text(kAttr, attribute("comm_dst", kInt64Value, sends ? activity.peer : rank));
  node.text(kAttr, attribute("comm_tag", kInt64Value, activity.tag));
  return node.delimited();
}

std::string goalLine(const Activity& activity, size_t number) {
  const uint64_t bytes = std::max<uint64_t>(1, whole(activity.bytes));
  switch (activity.kind) {
    case Activity::Kind::compute:
      return fmt::format("l{}: calc {}\n", number, whole(activity.us * 1e3));
    case Activity::Kind::send:
      return fmt::format("l{}: send {}b to {} tag {}\n", number, bytes, activity.peer, activity.tag);
    default:
      return fmt::format("l{}: recv {}b from {} tag {}\n", number, bytes, activity.peer, activity.tag);
  }
}

}  // namespace

std::string chakraOf(const std::vector<Activity>& activities, size_t rank) {
  Proto head;
  head.text(1, kSchemaVersion);
  std::string bytes = head.delimited();
  for (size_t i = 0; i < activities.size(); ++i) bytes += chakraNode(activities[i], i, rank);
  return bytes;
}

std::string goalOf(const std::vector<std::vector<Activity>>& ranks) {
  std::string text = fmt::format("num_ranks {}\n", ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    text += fmt::format("\nrank {} {{\n", rank);
    for (size_t i = 0; i < ranks[rank].size(); ++i) {
      text += goalLine(ranks[rank][i], i + 1);
      for (const size_t before : ranks[rank][i].after)
        text += fmt::format("l{} requires l{}\n", i + 1, before + 1);
    }
    text += "}\n";
  }
  return text;
}

}  // namespace weft::plan
