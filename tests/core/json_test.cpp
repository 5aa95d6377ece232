#include "core/text/json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <sstream>
#include <string>

namespace gantry {
namespace {

std::string error_of(const Json& root, void (*read)(const Json&)) {
  try {
    read_json(root, read);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

// Random values of every kind, nested up to `depth`.
class RandomJson {
 public:
  explicit RandomJson(std::uint64_t seed) : engine_(seed) {}

  Json value(int depth) {
    switch (pick(depth > 0 ? 8 : 6)) {
      case 0:
        return {};
      case 1:
        return pick(2) == 1;
      case 2:
        return static_cast<std::int64_t>(engine_());
      case 3:
        return engine_();
      case 4: {
        const double real =
            std::ldexp(static_cast<double>(engine_()), static_cast<int>(pick(1900)) - 1000);
        return pick(2) == 1 ? real : -real;
      }
      case 5:
        return text();
      case 6: {
        Json array = Json::array();
        for (std::uint64_t i = pick(5); i > 0; --i) array.push_back(value(depth - 1));
        return array;
      }
      default: {
        Json object = Json::object();
        for (std::uint64_t i = pick(5); i > 0; --i) object.set(text(), value(depth - 1));
        return object;
      }
    }
  }

  std::string text() {
    std::string result;
    for (std::uint64_t i = pick(9); i > 0; --i) {
      static constexpr const char* kPieces[] = {"a",  "Z",  " ", "\"", "\\", "/",
                                                "\n", "\t", "é", "…",  "😀"};
      const std::uint64_t chosen = pick(std::size(kPieces) + 1);
      if (chosen < std::size(kPieces)) {
        result += kPieces[chosen];
      } else {
        result += static_cast<char>(pick(0x20));  // control characters, zero too
      }
    }
    return result;
  }

 private:
  std::uint64_t pick(std::uint64_t below) { return engine_() % below; }
  std::mt19937_64 engine_;
};

TEST(JsonTest, RandomDocumentsMakeTheRoundTrip) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    const Json json = RandomJson(seed).value(5);
    for (const int indent : {-1, 0, 2}) {
      const std::string text = json.dump(indent);
      const Json again = Json::parse(text);
      EXPECT_EQ(again, json) << text;
      EXPECT_EQ(again.dump(indent), text);
    }
  }
}

TEST(JsonTest, WritesCompactAndIndentedText) {
  const Json json = Json::object({{"a", Json::array({1, -2, 2.5, 3.0, true, nullptr})},
                                  {"empty", Json::object()},
                                  {"none", Json::array()},
                                  {"b", Json::object({{"text", "x\"y"}})}});
  EXPECT_EQ(json.dump(),
            R"({"a":[1,-2,2.5,3.0,true,null],"empty":{},"none":[],"b":{"text":"x\"y"}})");
  EXPECT_EQ(json.dump(1), R"({
 "a": [
  1,
  -2,
  2.5,
  3.0,
  true,
  null
 ],
 "empty": {},
 "none": [],
 "b": {
  "text": "x\"y"
 }
})");
  std::ostringstream out;
  out << Json::array({"é"});
  EXPECT_EQ(out.str(), "[\"é\"]");
}

TEST(JsonTest, EveryByteIsWritten) {
  for (int first = 0; first < 256; ++first) {
    for (const int second : {0, 0x22, 0x61, 0x80, 0xBF, 0xC3, 0xFF}) {
      const std::string bytes = {static_cast<char>(first), static_cast<char>(second)};
      const Json back = Json::parse(Json(bytes).dump());
      EXPECT_EQ(back, valid_utf8(bytes)) << first << ' ' << second;
      const bool is_ascii = first < 0x80 && second < 0x80;
      EXPECT_EQ(back.as<std::string>() == bytes, is_ascii || valid_utf8(bytes) == bytes);
      EXPECT_EQ(Json::parse(Json::object({{bytes, 1}}).dump()).members()[0].first,
                valid_utf8(bytes));
    }
  }
  EXPECT_EQ(valid_utf8("a\xff…\xe2\x80"), "a\uFFFD…\uFFFD");
}

TEST(JsonTest, NothingThatATerminalActsOnIsWritten) {
  for (const char* const text : {"\u202egpu", "\u009b31m", "a\x7f", "\x1b[31m", "é\u2066"}) {
    const std::string written = Json::object({{text, text}}).dump();
    EXPECT_EQ(written.find(text), std::string::npos) << written;
    EXPECT_EQ(Json::parse(written).members()[0].first, text);
    EXPECT_EQ(Json::parse(written).members()[0].second, text);
  }
  EXPECT_EQ(Json("\u202e").dump(), R"("\u202e")");
}

TEST(JsonTest, NumbersAtTheirLimits) {
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(Json::parse("-9223372036854775808").as<std::int64_t>(), kMin);
  EXPECT_EQ(Json::parse("18446744073709551615").as<std::uint64_t>(), kMax);
  EXPECT_EQ(Json(kMin).dump(), "-9223372036854775808");
  EXPECT_EQ(Json(kMax).dump(), "18446744073709551615");
  EXPECT_FALSE(Json::parse("18446744073709551616").is_integer());
  EXPECT_EQ(Json(7U), Json(std::int64_t{7}));
  EXPECT_EQ(Json(7), 7.0);
  EXPECT_NE(Json(kMax), -1);
  EXPECT_NE(Json(true), 1);
  EXPECT_EQ(Json(255).as<std::uint8_t>(), 255);
  EXPECT_EQ(Json(3).as<double>(), 3.0);
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(HUGE_VAL).dump(), "null");
  EXPECT_EQ(Json(1e300).dump(), "1e+300");
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_THROW((void)Json(256).as<std::uint8_t>(), JsonError);
  EXPECT_THROW((void)Json(-1).as<std::uint64_t>(), JsonError);
  EXPECT_THROW((void)Json(kMax).as<std::int64_t>(), JsonError);
  EXPECT_THROW((void)Json(3.5).as<int>(), JsonError);
}

TEST(JsonTest, ContainersOfTheLibraryAreValues) {
  const std::map<std::string, std::vector<int>> lists = {{"a", {1, 2}}, {"b", {}}};
  const Json json = Json::object(
      {{"lists", lists}, {"none", std::optional<int>()}, {"some", std::optional<int>(3)}});
  EXPECT_EQ(json.dump(), R"({"lists":{"a":[1,2],"b":[]},"none":null,"some":3})");
  EXPECT_EQ((json.at("lists").as<std::map<std::string, std::vector<int>>>()), lists);
  EXPECT_EQ((json.at("lists").at("a").as<std::pair<int, int>>()), std::pair(1, 2));
  EXPECT_EQ(json.value_or("some", 0), 3);
  EXPECT_EQ(json.value_or("other", 9), 9);
}

TEST(JsonTest, MembersKeepTheirPlacesAndTheLastOfANameCounts) {
  Json json = Json::object({{"b", 1}, {"a", 2}});
  json.set("b", 3).set("c", Json::array({4}));
  EXPECT_EQ(json.dump(), R"({"b":3,"a":2,"c":[4]})");
  EXPECT_EQ(Json::parse(R"({"a": 1, "a": 2})").at("a"), 2);
  Json made;
  made.set("x", Json().push_back(1).push_back("two"));
  EXPECT_EQ(made.dump(), R"({"x":[1,"two"]})");
}

TEST(JsonTest, ErrorsNameThePlaceAndTheValue) {
  const Json root = Json::parse(R"({"rows": [{"bytes": 8}, {"bytes": "8"}, {}], "big": 300})");
  EXPECT_EQ(error_of(root,
                     [](const Json& json) {
                       for (const Json& row : json.at("rows").elements())
                         (void)row.at("bytes").as<int>();
                     }),
            "$.rows[1].bytes: expected an integer, but got \"8\"");
  EXPECT_EQ(error_of(root, [](const Json& json) { (void)json.at("rows").at(2).at("bytes"); }),
            "$.rows[2]: expected an object with a member \"bytes\", but got {}");
  EXPECT_EQ(error_of(root, [](const Json& json) { (void)json.at("rows").at(3); }),
            "$.rows: expected an array of more than 3 elements, but got […]");
  EXPECT_EQ(error_of(root, [](const Json& json) { (void)json.at("big").as<std::uint8_t>(); }),
            "$.big: expected an integer from 0 to 255, but got 300");
  EXPECT_EQ(error_of(root, [](const Json& json) { (void)json.elements(); }),
            "$: expected an array, but got {…}");
  EXPECT_EQ(error_of(root, [](const Json& json) { (void)json.at("big").members(); }),
            "$.big: expected an object, but got 300");
  EXPECT_EQ(error_of(root, [](const Json& json) { (void)json.at("big").as<bool>(); }),
            "$.big: expected true or false, but got 300");
  EXPECT_EQ(error_of(root, [](const Json& json) { (void)json.at("big").as<std::string>(); }),
            "$.big: expected a string, but got 300");
  EXPECT_EQ(error_of(root, [](const Json& json) { (void)json.as<double>(); }),
            "$: expected a number, but got {…}");
  EXPECT_EQ(error_of(root, [](const Json&) { (void)Json("else").as<int>(); }),
            "expected an integer, but got \"else\"");
  Json text = "x";
  EXPECT_THROW(text.set("a", 1), JsonError);
  EXPECT_THROW(text.push_back(1), JsonError);
  EXPECT_EQ(text, "x");
}

TEST(JsonTest, WhatIsNoJsonIsRefusedWithItsPosition) {
  const auto problem = [](std::string_view text) {
    EXPECT_EQ(Json::try_parse(text), std::nullopt);
    try {
      (void)Json::parse(text);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_TRUE(problem("").starts_with("parse error at line 1, column 1: "));
  EXPECT_TRUE(problem("{\"a\": 1,\n \"b\": }").starts_with("parse error at line 2, column 7: "));
  EXPECT_TRUE(problem("[1] 2").starts_with("parse error at line 1"));
  EXPECT_TRUE(problem("\"\xff\"").starts_with("parse error at line 1"));
  // A parser that stops at a null character would read only a part of these files.
  using namespace std::string_view_literals;
  EXPECT_EQ(problem("{}\0{\"a\": 1}"sv),
            "parse error at line 1, column 3: expected JSON text, but got a null character");
  EXPECT_EQ(problem("{\n \"a\":\0 1}"sv),
            "parse error at line 2, column 6: expected JSON text, but got a null character");
  for (const std::string_view text : {"\0"sv, "\0{}"sv, "[1]\0"sv, "[1\0]"sv, "[1,\0 2]"sv,
                                      "\"a\0b\""sv, "1\0"sv, "tr\0ue"sv, "{}\0 \xff\xfe ELF"sv}) {
    EXPECT_THAT(problem(text), ::testing::HasSubstr("but got a null character")) << text;
  }
  EXPECT_EQ(Json::parse(R"("\u0000")"), "\0"sv) << "an escape is no null character";
  for (const std::string_view text :
       {"{}{}", "{} x", "[1],", "1 2", "{}\x0b", "\"a\"\"b\"", "{}}"}) {
    EXPECT_TRUE(problem(text).starts_with("parse error")) << text;
  }
  EXPECT_EQ(problem("[1e999]"), "parse error: number overflow parsing '1e999'");
  EXPECT_TRUE(problem(std::string(100'000, '[')).starts_with("parse error"));
}

TEST(JsonTest, AnyDepthIsReadAndDestroyed) {
  constexpr std::size_t kDepth = 1'000'000;
  Json json = Json::parse(std::string(kDepth, '[') + std::string(kDepth, ']'));
  Json objects;
  for (std::size_t i = 0; i < kDepth; ++i) {
    Json outer = Json::object();
    outer.append("a", std::move(objects));
    objects = std::move(outer);
  }
  json = std::move(objects);
  EXPECT_EQ(json.size(), 1U);
}

}  // namespace
}  // namespace gantry
