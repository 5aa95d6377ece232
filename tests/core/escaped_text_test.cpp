// Text of other processes, made fit for a terminal.
#include "core/text/escaped_text.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace gantry {
namespace {

TEST(EscapedTextTest, LeavesTextAsItIs) {
  for (const char* text :
       {"", "rank 3: all_reduce sum f32[10]", "C:\\temp", "Zürich", "模型", "\xf0\x9f\x98\x80"}) {
    EXPECT_EQ(escape_control_characters(text), text);
  }
}

TEST(EscapedTextTest, ShowsWhatATerminalWouldActOn) {
  EXPECT_EQ(escape_control_characters("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(escape_control_characters(std::string_view("a\0b\x7f", 4)), "a\\x00b\\x7f");
  EXPECT_EQ(escape_control_characters("one\r\ntwo\t"), "one\\x0d\\x0atwo\\x09");
  EXPECT_EQ(escape_control_characters("\xc2\x9b"
                                      "31m"),
            "\\x9b31m")
      << "a C1 control";
  EXPECT_EQ(escape_control_characters("\xe2\x80\xae"
                                      "abc"),
            "\\u202eabc")
      << "right to left";
  EXPECT_EQ(escape_control_characters("\xe2\x80\xa8"), "\\u2028") << "a line end";
}

TEST(EscapedTextTest, RangesOfControlsEndWhereUnicodeEndsThem) {
  const std::pair<const char*, const char*> controls[] = {
      {"\x1f", "\\x1f"},     {"\x7f", "\\x7f"},     {"\u0080", "\\x80"},   {"\u009f", "\\x9f"},
      {"\u061c", "\\u061c"}, {"\u200e", "\\u200e"}, {"\u200f", "\\u200f"}, {"\u2028", "\\u2028"},
      {"\u202e", "\\u202e"}, {"\u2066", "\\u2066"}, {"\u2069", "\\u2069"}};
  for (const auto& [text, escaped] : controls) {
    EXPECT_EQ(escape_control_characters(text), escaped);
    EXPECT_EQ(has_hidden_controls(text), *text != '\x1f') << escaped << ": JSON escapes C0";
  }
  for (const char* const text : {" ", "~", "\u00a0", "\u061b", "\u061d", "\u200d", "\u2010",
                                 "\u2027", "\u202f", "\u2065", "\u206a"}) {
    EXPECT_EQ(escape_control_characters(text), text);
    EXPECT_FALSE(has_hidden_controls(text)) << text;
  }
}

TEST(EscapedTextTest, ShowsBytesThatAreNoText) {
  EXPECT_EQ(escape_control_characters("\x9b"
                                      "31m"),
            "\\x9b31m")
      << "C1 as one byte";
  EXPECT_EQ(escape_control_characters("\xc0\x9b"), "\\xc0\\x9b") << "overlong";
  EXPECT_EQ(escape_control_characters("\xe2\x80"), "\\xe2\\x80") << "cut off";
  EXPECT_EQ(escape_control_characters("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair";
  EXPECT_EQ(escape_control_characters("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
}

TEST(EscapedTextTest, KeepsLinesWhereTheyAreMeant) {
  EXPECT_EQ(escape_control_characters("a\n\tb\r\x1b", LineEnds::keep), "a\n\tb\\x0d\\x1b");
}

TEST(EscapedTextTest, NothingOfAnyByteGetsThrough) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text{static_cast<char>(first), static_cast<char>(second)};
      for (const char c : escape_control_characters(text)) {
        const auto byte = static_cast<unsigned char>(c);
        EXPECT_TRUE(byte >= 0x20 && byte != 0x7f) << first << ' ' << second;
      }
    }
  }
}

TEST(EscapedTextTest, AFieldEndsAtItsZeroOrItsEnd) {
  const char field[4] = {'a', '\x1b', '\0', 'b'};
  EXPECT_EQ(escaped_field(field), "a\\x1b");
  const char full[3] = {'a', 'b', 'c'};
  EXPECT_EQ(escaped_field(full), "abc");
}

TEST(EscapedTextTest, XmlHasNoMarkupAndNoControlCharacters) {
  EXPECT_EQ(escape_xml("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
  EXPECT_EQ(escape_xml(std::string_view("\x1b[1m\0\n\t", 7)), " [1m \n\t");
  EXPECT_EQ(escape_xml("größer"), "größer");
  EXPECT_EQ(escape_xml("a\u202e\u009b\x7f\xff"), "a\\u202e\\x9b\\x7f\\xff");
}

TEST(EscapedTextTest, HiddenControlsAreThoseThatJsonLeaves) {
  for (const char* const text : {"\x7f", "\u009b", "a\u202eb", "\u2069", "\xff\u200e"}) {
    EXPECT_TRUE(has_hidden_controls(text)) << text;
  }
  for (const char* const text : {"", "plain", "größer", "\x1b[1m\n", "\xff\xc2"}) {
    EXPECT_FALSE(has_hidden_controls(text)) << text;
  }
}

}  // namespace
}  // namespace gantry
