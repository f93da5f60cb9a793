// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/result.h"

// Where results go: the standard output and files. A result that does not arrive there is an error, not a
// silence. Any thread.
namespace weft {

// To the standard output, at once.
Status show(std::string_view text);

// To a file; "-" is the standard output.
Status writeDocument(const std::string& path, const std::string& text);

struct Document {
  std::string path;  // empty: nobody wants it
  std::string text;
};
// All of them, though one fails; the error names each that did.
Status writeDocuments(const std::vector<Document>& documents);

// The exit code of a command that failed: 2 where the command line or a file that it names does not fit,
// else 1.
int exitCodeOf(const Error& error);

// True where that would work, as far as can be seen without touching what is there. "" and "-" are no files.
Status canWrite(const std::string& path);

// A descriptor 0, 1 or 2 that came closed would become the next socket, and results would go there.
void occupyStandardFiles();

}  // namespace weft
