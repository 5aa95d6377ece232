#include <gantry/core/env.hpp>

#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <set>

#include <gantry/core/error.hpp>
#include <gantry/extend/parse_number.hpp>

namespace gantry {
namespace {

constexpr const char* kName = "GANTRY_TEST_VALUE";

/// Sets the variable for a scope.
class Value {
 public:
  explicit Value(const char* value) { setenv(kName, value, 1); }
  ~Value() { unsetenv(kName); }
};

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(EnvTest, UnsetAndEmptyAreNone) {
  unsetenv(kName);
  EXPECT_EQ(env::get(kName), std::nullopt);
  EXPECT_EQ(env::get_int(kName, 0, 9), std::nullopt);
  EXPECT_EQ(env::get_bytes(kName), std::nullopt);
  EXPECT_TRUE(env::get_bool(kName, true));
  const Value empty("");
  EXPECT_EQ(env::get(kName), "");
  EXPECT_EQ(env::get_int(kName, 0, 9), std::nullopt);
  EXPECT_EQ(env::get_bytes(kName), std::nullopt);
  EXPECT_FALSE(env::get_bool(kName, false));
}

TEST(EnvTest, ReadsTheEnvironmentAnewEachTime) {
  {
    const Value one("1");
    EXPECT_EQ(env::get_int(kName, 0, 9), 1);
  }
  const Value two("2");
  EXPECT_EQ(env::get_int(kName, 0, 9), 2);
}

TEST(EnvTest, WholeNumbersInRange) {
  EXPECT_EQ(env::parse_int("0", "n", 0, 9), 0);
  EXPECT_EQ(env::parse_int("9", "n", 0, 9), 9);
  EXPECT_EQ(env::parse_int("-5", "n", -5, 9), -5);
  EXPECT_EQ(env::parse_int("007", "n", 0, 9), 7);
}

TEST(EnvTest, AnythingElseIsAnErrorThatNamesIt) {
  for (const char* text :
       {"", "10", "-1", " 1", "1 ", "1.5", "0x1", "one", "+1", "99999999999999999999", "1e0"}) {
    EXPECT_EQ(
        error_of([&] { (void)env::parse_int(text, "the count", 0, 9); }),
        "the count: expected a whole number from 0 to 9, but got '" + std::string(text) + "'");
  }
  const Value bad("many");
  EXPECT_EQ(error_of([] { (void)env::get_int(kName, 1, 64); }),
            "GANTRY_TEST_VALUE: expected a whole number from 1 to 64, but got 'many'");
}

struct BytesCase {
  const char* text;
  std::size_t bytes;
};

TEST(EnvTest, ByteCountsTakeSuffixes) {
  constexpr std::size_t kKiB = 1024;
  for (const BytesCase& c :
       {BytesCase{"0", 0}, BytesCase{"123", 123}, BytesCase{"123B", 123}, BytesCase{"2K", 2 * kKiB},
        BytesCase{"2k", 2 * kKiB}, BytesCase{"2KB", 2 * kKiB}, BytesCase{"2KiB", 2 * kKiB},
        BytesCase{"512M", 512 * kKiB * kKiB}, BytesCase{"1g", kKiB * kKiB * kKiB},
        BytesCase{"3GiB", 3 * kKiB * kKiB * kKiB},
        BytesCase{"18446744073709551615", 18446744073709551615ull}}) {
    EXPECT_EQ(env::parse_bytes(c.text, "size"), c.bytes) << c.text;
  }
}

TEST(EnvTest, MalformedByteCountsAreErrors) {
  for (const char* text : {"", "K", "-1", "1.5G", "1X", "1 K", "1KK", "1Ki", "1iB", "1BB",
                           "18446744073709551616", "17179869184G"}) {
    EXPECT_EQ(
        error_of([&] { (void)env::parse_bytes(text, "size"); }),
        "size: expected a byte count such as 512M or 2GiB, but got '" + std::string(text) + "'");
  }
  const Value bad("lots");
  EXPECT_EQ(error_of([] { (void)env::get_bytes(kName); }),
            "GANTRY_TEST_VALUE: expected a byte count such as 512M or 2GiB, but got 'lots'");
}

TEST(EnvTest, BooleansHaveFourSpellings) {
  for (const char* text : {"1", "true", "on", "yes"}) {
    const Value value(text);
    EXPECT_TRUE(env::get_bool(kName, false)) << text;
  }
  for (const char* text : {"0", "false", "off", "no"}) {
    const Value value(text);
    EXPECT_FALSE(env::get_bool(kName, true)) << text;
  }
  const Value bad("TRUE");
  EXPECT_EQ(error_of([] { (void)env::get_bool(kName, false); }),
            "GANTRY_TEST_VALUE: expected 1/0, true/false, on/off or yes/no, but got 'TRUE'");
}

TEST(EnvTest, EveryVariableIsDescribedOnce) {
  std::set<std::string_view> names;
  for (const env::Variable& variable : env::variables()) {
    EXPECT_TRUE(variable.name.starts_with("GANTRY_") || variable.name.starts_with("CUDA_"))
        << variable.name;
    EXPECT_FALSE(variable.values.empty()) << variable.name;
    EXPECT_FALSE(variable.meaning.empty()) << variable.name;
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name << " is listed twice";
  }
  EXPECT_TRUE(names.contains("GANTRY_SIM_DEVICES"));
}

}  // namespace
}  // namespace gantry
