// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <string>

#include "src/base/net/address.h"
#include "src/base/printable.h"
#include "tests/support/catch.h"

using namespace weft;

TEST_CASE("escape sequences, forged lines and marks of direction do not reach a terminal") {
  CHECK(printable("node\x1b]52;c;ZXZpbA==\a") == "node\\x1b]52;c;ZXZpbA==\\x07");
  CHECK(printable("fine\n[12] WARN forged") == "fine\\x0a[12] WARN forged");
  CHECK(printable("gone\r here\x7f") == "gone\\x0d here\\x7f");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\xc2\\x9b31m");  // U+009B, the control sequence introducer
  CHECK(printable("a\xe2\x80\xae"
                  "b") ==
        "a\\xe2\\x80\\xae"
        "b");  // U+202E turns what follows around
  CHECK(printable(std::string_view("a\0b", 3)) == "a\\x00b");
}

TEST_CASE("bytes that are no UTF-8 become visible, and letters stay") {
  CHECK(printable("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\xa7\xb5") ==
        "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\xa7\xb5");
  CHECK(printable("\xff") == "\\xff");
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");                    // an overlong slash
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // a surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond the last letter
  CHECK(printable("cut \xe2\x82") == "cut \\xe2\\x82");
}

TEST_CASE("a text that was made printable stays as it is") {
  const std::string once = printable("\x1b[2J\xff\n");
  CHECK(printable(once) == once);
}

TEST_CASE("a page of several lines keeps its lines and nothing else") {
  CHECK(printable("a\tb\nc\x1b[H\n", Breaks::kept) == "a\tb\nc\\x1b[H\n");
}

TEST_CASE("a word of a shell is one word whatever it holds") {
  CHECK(shellQuoted("eth0") == "eth0");
  CHECK(shellQuoted("").size() == 2);
  CHECK(shellQuoted("x;reboot") == "'x;reboot'");
  CHECK(shellQuoted("$(id)") == "'$(id)'");
  CHECK(shellQuoted("it's") == "'it'\\''s'");
  CHECK(shellQuoted("~root") == "'~root'");
}

TEST_CASE("an address of another is a number, and no name that a server would be asked for") {
  CHECK(isIpText("192.0.2.7"));
  CHECK(isIpText("2001:db8::1"));
  CHECK_FALSE(isIpText("metadata.internal"));
  CHECK_FALSE(isIpText("192.0.2.7 "));
  CHECK_FALSE(isIpText(std::string("192.0.2.7\0x", 11)));
}
