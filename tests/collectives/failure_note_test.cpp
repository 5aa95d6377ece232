// glaunch reads the content of a rank's error file unchanged, for any bytes.
#include "collectives/bootstrap/failure_note.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "launcher/run/failures/error_note.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

using launcher::ErrorNote;
using launcher::FailureCause;
using launcher::parse_error_note;

const std::pair<FailureKind, FailureCause> kKinds[] = {
    {FailureKind::error, FailureCause::itself},
    {FailureKind::peer_lost, FailureCause::peer_lost},
    {FailureKind::timed_out, FailureCause::timed_out},
    {FailureKind::mismatch, FailureCause::mismatch}};

// As UTF-8; no half of a surrogate pair.
std::string encoded(char32_t code) {
  std::string text;
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | (code >> 6));
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | (code >> 12));
    text += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | (code >> 18));
    text += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    text += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  }
  return text;
}

std::string ascii_of(const std::string& text) {
  std::string ascii;
  std::copy_if(text.begin(), text.end(), std::back_inserter(ascii),
               [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  return ascii;
}

TEST(FailureNoteTest, EveryTextComesBack) {
  std::mt19937 random(1);
  const std::string special = "\"\\/{}[]:,\n\t\b\r\f\x01\x1b\x7f";
  for (int i = 0; i < 20'000; ++i) {
    std::string message = "begin ";
    for (auto length = random() % 40; length > 0; --length) {
      switch (random() % 3) {
        case 0:
          message += special[random() % special.size()];
          break;
        case 1:
          message += static_cast<char>(random() % 0x80);
          break;
        default: {
          const auto code = static_cast<char32_t>(random() % 0x110000);
          message += encoded(code >= 0xD800 && code < 0xE000 ? U'x' : code);
        }
      }
    }
    message += " end";
    const auto& [kind, cause] = kKinds[random() % 4];
    const std::vector<int> ranks(random() % 3, static_cast<int>(random() % 4096));
    const ErrorNote note =
        parse_error_note(to_json({.kind = kind, .message = message, .ranks = ranks}));
    ASSERT_EQ(note.message, message);
    ASSERT_EQ(note.cause, cause);
    ASSERT_EQ(note.ranks, ranks);
  }
}

TEST(FailureNoteTest, BytesThatAreNoTextSpoilNothingElse) {
  std::mt19937 random(2);
  for (int i = 0; i < 20'000; ++i) {
    std::string message = "begin";
    for (auto length = random() % 40; length > 0; --length) message += static_cast<char>(random());
    message += "end";
    const auto& [kind, cause] = kKinds[random() % 4];
    const ErrorNote note = parse_error_note(to_json({.kind = kind, .message = message}));
    ASSERT_EQ(ascii_of(note.message), ascii_of(message));
    ASSERT_EQ(note.cause, cause);
  }
}

TEST(FailureNoteTest, ALongTextIsCutWhereTheLauncherStillReadsIt) {
  for (const std::string& unit : {std::string("\x01"), std::string("é"), std::string("\xff"),
                                  std::string("\U0001F600"), std::string("x")}) {
    std::string message;
    while (message.size() < (1 << 20)) message += unit;
    const std::string json =
        to_json({.kind = FailureKind::timed_out, .message = message, .ranks = {3}});
    EXPECT_LT(json.size(), 64U << 10);
    const ErrorNote note = parse_error_note(json);
    EXPECT_EQ(note.cause, FailureCause::timed_out);
    EXPECT_EQ(note.ranks, std::vector<int>{3});
    EXPECT_TRUE(note.message.ends_with("…"));
  }
}

TEST(FailureNoteTest, AnyBytesAreRead) {
  std::mt19937 random(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes;
    for (auto length = random() % 60; length > 0; --length) bytes += static_cast<char>(random());
    const std::string text = i % 2 == 0 ? bytes : R"({"kind": "peer_lost", "message": ")" + bytes;
    EXPECT_NO_THROW((void)parse_error_note(text));
  }
  EXPECT_EQ(parse_error_note("plain \xff text\n").message, "plain \xff text");
  EXPECT_EQ(parse_error_note("").message, "");
  EXPECT_EQ(parse_error_note(std::string(60'000, '[')).cause, FailureCause::itself);
  // A program that writes JSON by hand.
  const ErrorNote broken = parse_error_note("{\"kind\": \"peer_lost\", \"message\": \"a \xff b\"}");
  EXPECT_EQ(broken.cause, FailureCause::peer_lost);
  EXPECT_EQ(broken.message, "a \xEF\xBF\xBD b");
}

TEST(FailureNoteTest, NoFileOfAnotherUserIsWrittenOrRemoved) {
  const testing::TemporaryFolder folder;
  const std::string note = folder / "rank0.error";
  std::ofstream(folder / "precious") << "precious";
  std::filesystem::create_symlink("precious", note);
  setenv("GANTRY_ERROR_FILE", note.c_str(), 1);
  const FailureNote failure{.kind = FailureKind::error, .message = "out of memory", .ranks = {}};
  if (lchown(note.c_str(), 12345, gid_t(-1)) == 0) {
    report_to_launcher(failure);
    EXPECT_EQ(testing::content_of(folder / "precious"), "precious");
  }
  // Its own link does what the user wants.
  std::filesystem::remove(note);
  std::filesystem::create_symlink("precious", note);
  report_to_launcher(failure);
  EXPECT_EQ(parse_error_note(testing::content_of(folder / "precious")).message, "out of memory");
  withdraw_note();
  EXPECT_FALSE(std::filesystem::exists(note));
  EXPECT_TRUE(std::filesystem::exists(folder / "precious"));
  unsetenv("GANTRY_ERROR_FILE");
}

TEST(FailureNoteTest, TheFormOfTorchDistributedIsRead) {
  const ErrorNote note = parse_error_note(
      R"({"message": {"message": "ValueError: \"x\"\nis bad", "extraInfo": {"timestamp": "1"}}})");
  EXPECT_EQ(note.message, "ValueError: \"x\"\nis bad");
  EXPECT_EQ(note.cause, FailureCause::itself);
}

}  // namespace
}  // namespace gantry
