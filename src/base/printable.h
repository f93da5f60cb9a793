// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Text that others chose, made fit for a terminal, a log or a document. Names of hosts, reasons of failures
// and files of other processes may hold escape sequences that move a cursor or type into a terminal, line
// breaks that forge a line of a log, and bytes that are no UTF-8, which documents refuse as a whole. Pure;
// any thread.
namespace weft {

enum class Breaks : uint8_t { escaped, kept };  // of lines; blanks of a table (tab) go with them

// Control characters (C0, C1 and DEL), marks that turn the direction of writing or break lines, and bytes
// that are no UTF-8 become \xNN, a byte each. All else stays as it is, so a text that was made printable once
// is not changed again.
std::string printable(std::string_view text, Breaks breaks = Breaks::escaped);

// The text as a word of a shell (POSIX): as it is where no letter of it has a meaning there, else in quotes.
std::string shellQuoted(std::string_view word);

}  // namespace weft
