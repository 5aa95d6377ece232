#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/safetensors.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/tensor/exchange/mutations.hpp"

namespace gantry {
namespace {

namespace fs = std::filesystem;

std::string with_length(const std::string& header, const std::string& elements = "") {
  std::string text;
  for (unsigned i = 0; i < 8; ++i) {
    text += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i) & 0xff);
  }
  return text + header + elements;
}

// As the reference implementation does, whatever the unknown fields hold.
TEST(SafetensorsSchemaTest, LeavesOutUnknownFields) {
  const testing::TemporaryFolder folder;
  const fs::path path = folder / "t.safetensors";
  const std::string known = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  for (const std::string value :
       {"1", "-1", "1.5", "18446744073709551615", "null", "true", "\"F16\"", "[]", "{}", "[[1],[]]",
        R"({"dtype":"F16","shape":[null,{"data_offsets":[1,2,3]}]})"}) {
    const std::string unknown = "\"x\":" + value;
    for (const std::string& fields :
         {unknown + "," + known, known + "," + unknown, unknown + "," + known + "," + unknown}) {
      SCOPED_TRACE(fields);
      testing::write_file(path, with_length("{\"a\":{" + fields + "}}", "\1\2\3\4"));
      const SafetensorsReader reader(path);
      EXPECT_EQ(reader.names(), (std::vector<std::string>{"a"}));
      EXPECT_EQ(reader.entry("a").dtype, f32);
      EXPECT_EQ(reader.load_bytes("a").to_vector<int>(), (std::vector<int>{1, 2, 3, 4}));
    }
  }
  testing::write_file(path, with_length(R"({"__metadata__":null})"));
  EXPECT_TRUE(load_safetensors(path).metadata.empty());
}

TEST(SafetensorsSchemaTest, UnknownFieldsReplaceNoOthers) {
  const testing::TemporaryFolder folder;
  const fs::path path = folder / "t.safetensors";
  const auto refuses = [&](const std::string& header, const std::string& text) {
    testing::write_file(path, with_length(header, "abcd"));
    EXPECT_ERROR(SafetensorsReader{path}, Error, text);
  };
  refuses(R"({"a":{"x":{"dtype":"F32","shape":[1]},"data_offsets":[0,4]}})", "but one is missing");
  refuses(R"({"a":{"x":[[],"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "parse error");
  refuses(R"({"a":{"x":1,"dtype":"F32","dtype":"F32"}})", "but got 'dtype' twice");
  refuses(R"({"a":1})", "but got a number in 'a'");
  refuses(R"({"a":null})", "but got null in 'a'");
  refuses(R"({"__metadata__":null,"__metadata__":null})", "'__metadata__' twice");
  refuses(R"({"__metadata__":{"a":null}})", "but got null in '__metadata__'");
}

}  // namespace
}  // namespace gantry
