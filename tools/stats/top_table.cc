// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/top_table.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace weft::counted {

namespace {

struct Column {
  const char* head;
  size_t width;
  bool left;       // aligned
  int importance;  // those with less give way first
  std::string (*text)(const TopRow& row);
};

constexpr int kAlways = 9;
constexpr std::array<Column, 11> kColumns{{
    {"PROCESS", 20, true, kAlways, [](const TopRow& row) { return row.place; }},
    {"DIR", 4, true, kAlways, [](const TopRow& row) { return std::string(row.sends ? "send" : "recv"); }},
    {"MB/s", 10, false, 8, [](const TopRow& row) { return fmt::format("{:.1f}", row.bytes * 1e-6); }},
    {"MSG/s", 10, false, 2, [](const TopRow& row) { return fmt::format("{:.0f}", row.messages); }},
    {"BUSY%", 6, false, 5, [](const TopRow& row) { return fmt::format("{:.1f}", row.busy * 100); }},
    {"WAITS s", 8, false, 7, [](const TopRow& row) { return fmt::format("{:.1f}", row.waits); }},
    {"FLIGHT", 6, false, 3, [](const TopRow& row) { return fmt::format("{}", row.inFlight); }},
    {"P99 us", 10, false, 4,
     [](const TopRow& row) { return fmt::format("{:.1f}", static_cast<double>(row.p99) * 1e-3); }},
    {"BAD/SUMS", 11, false, 1,
     [](const TopRow& row) { return row.sends ? "-" : fmt::format("{}/{}", row.corrupt, row.checked); }},
    {"DEVICE", 12, true, 6, [](const TopRow& row) { return row.device; }},
    {"PEER", 0, true, kAlways, [](const TopRow& row) { return row.peer; }},
}};
constexpr size_t kPeerWidth = 20;  // that it should have before others have any
constexpr size_t kGap = 1;

using Chosen = std::array<bool, kColumns.size()>;

size_t widthOf(const Chosen& chosen) {
  size_t width = kPeerWidth;
  for (size_t i = 0; i < kColumns.size(); i++) width += chosen[i] ? kColumns[i].width + kGap : 0;
  return width - kGap;
}

// Some message was spoilt: that goes before all else.
Chosen choose(const std::vector<TopRow>& rows, size_t width) {
  const bool spoilt =
      std::any_of(rows.begin(), rows.end(), [](const TopRow& row) { return row.corrupt > 0; });
  const auto importance = [&](const Column& column) {
    return spoilt && column.head == std::string_view("BAD/SUMS") ? kAlways - 1 : column.importance;
  };
  Chosen chosen;
  chosen.fill(true);
  while (width > 0 && widthOf(chosen) > width) {
    size_t least = kColumns.size();
    for (size_t i = 0; i < kColumns.size(); i++) {
      if (!chosen[i] || importance(kColumns[i]) >= kAlways) continue;
      if (least == kColumns.size() || importance(kColumns[i]) < importance(kColumns[least])) least = i;
    }
    if (least == kColumns.size()) break;
    chosen[least] = false;
  }
  return chosen;
}

template <class TextOf>
std::string lineOf(const Chosen& chosen, size_t width, const TextOf& textOf) {
  std::string line;
  for (size_t i = 0; i < kColumns.size(); i++) {
    if (!chosen[i]) continue;
    const Column& column = kColumns[i];
    std::string text = textOf(column);
    if (!line.empty()) line.append(kGap, ' ');
    if (column.width == 0)
      line += text;
    else if (column.left)
      line += fmt::format("{:<{}.{}}", text, column.width, column.width);
    else
      line += fmt::format("{:>{}}", text, column.width);
  }
  if (width > 0 && line.size() > width) line.resize(width);
  return line + "\n";
}

}  // namespace

std::string topTable(const std::vector<TopRow>& rows, size_t most, size_t width) {
  const Chosen chosen = choose(rows, width);
  std::string text = lineOf(chosen, width, [](const Column& column) { return std::string(column.head); });
  for (size_t i = 0; i < std::min(most, rows.size()); i++)
    text += lineOf(chosen, width, [&](const Column& column) { return column.text(rows[i]); });
  if (rows.size() > most) {
    std::string more = fmt::format("and {} more", rows.size() - most);
    if (width > 0 && more.size() > width) more.resize(width);
    text += more + "\n";
  }
  return text;
}

}  // namespace weft::counted
