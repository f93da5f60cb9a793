// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "tools/output/page/page.h"
#include "tools/report/run.h"

// A report in sections, of which each has a table and may have charts. Text and page show the same cells, so
// they cannot differ. Pure functions; any thread.
namespace weft::report {

struct Cell {
  std::string text;
  double shade = 0;  // 0 to 1: how much colour a page gives it
};

struct Column {
  std::string name;
  bool word = false;  // left-aligned
};

struct Section {
  std::string title;
  std::string remark;  // sentences; empty: none
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // none: the remark says why
  Drawing drawing;
};

// Of one run, in the order in which they are read.
std::vector<Section> sectionsOf(const Run& run);

// The table of profilers of collectives: the rows of one label, up to these sizes; the last has no limit.
struct ClassRow {
  std::string label;
  size_t number = 0;  // of the class
  SizeSum sum;
};
constexpr size_t kClasses = 5;
const char* nameOfClass(size_t number);
std::vector<ClassRow> classRows(const Run& run);

// Of all flows with one label.
struct LabelRow {
  std::string label;
  SizeSum sum;
  Latency latency;
};
std::vector<LabelRow> labelRows(const Run& run);

// Bytes sent from each process to each peer, offload included.
struct PairRow {
  size_t from = 0;
  std::string to;
  double bytes = 0;
};
std::vector<PairRow> pairRows(const Run& run);

// Numbers as they are shown.
std::string shownCount(double value);
std::string shownMegabytes(double bytes);
std::string shownSeconds(double seconds);
std::string shownMicroseconds(double seconds);

}  // namespace weft::report
