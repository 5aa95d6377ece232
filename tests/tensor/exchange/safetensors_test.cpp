#include <gantry/tensor/safetensors.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/tensor/exchange/mutations.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using testing::all_dtypes;
using testing::all_places;
using testing::content_of;
using testing::elements;
using ::testing::ElementsAre;
using testing::file_values;
using testing::Layout;
using testing::patterned;

constexpr Layout kLayouts[] = {Layout::contiguous, Layout::transposed, Layout::sliced,
                               Layout::offset,     Layout::expanded,   Layout::zero_dim,
                               Layout::empty};

fs::path data(const std::string& name) { return fs::path(GANTRY_TEST_DATA_DIR) / name; }

std::string with_length(const std::string& header, const std::string& elements = "") {
  std::string text;
  for (unsigned i = 0; i < 8; ++i) {
    text += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i) & 0xff);
  }
  return text + header + elements;
}

TEST(SafetensorsTest, ReadsAFileOfTheReference) {
  for (const Device place : all_places()) {
    const auto [tensors, metadata] = load_safetensors(data("all.safetensors"), place);
    EXPECT_EQ(tensors.size(), 13U);
    for (const DType dtype : testing::computing_dtypes()) {
      SCOPED_TRACE(name(dtype));
      const Tensor& tensor = tensors.find(name(dtype))->second;
      EXPECT_EQ(tensor.device(), place);
      EXPECT_EQ(tensor.dtype(), dtype);
      EXPECT_EQ(tensor.sizes(), (Shape{2, 3}));
      EXPECT_EQ(elements(tensor), file_values(6, dtype));
    }
    EXPECT_EQ(tensors.at("scalar").sizes(), Shape{});
    EXPECT_EQ(tensors.at("scalar").item<float>(), -2);
    EXPECT_EQ(tensors.at("empty").sizes(), (Shape{3, 0, 2}));
    EXPECT_EQ(elements(tensors.at("größe \"1\"\n")), file_values(4, i32));
    EXPECT_EQ(metadata, (SafetensorsMetadata{{"format", "pt"}}));
  }
}

// The file of the reference implementation, byte by byte.
TEST(SafetensorsTest, WritesWhatTheReferenceWrites) {
  const testing::TemporaryFolder folder;
  for (const Device place : all_places()) {
    const auto [tensors, metadata] = load_safetensors(data("all.safetensors"), place);
    save_safetensors(folder / "all.safetensors", tensors, metadata);
    EXPECT_EQ(content_of(folder / "all.safetensors"), content_of(data("all.safetensors")));
  }
  save_safetensors(folder / "none.safetensors", {});
  EXPECT_EQ(content_of(folder / "none.safetensors"), content_of(data("none.safetensors")));
  EXPECT_TRUE(load_safetensors(folder / "none.safetensors").tensors.empty());
}

TEST(SafetensorsTest, EveryDtypeAndLayoutComesBack) {
  const testing::TemporaryFolder folder;
  NamedTensors tensors;
  for (const Device place : all_places()) {
    for (const DType dtype : all_dtypes()) {
      for (const Layout layout : kLayouts) {
        const std::string label = place.str() + "." + std::string(name(dtype)) + "." +
                                  std::to_string(static_cast<int>(layout));
        tensors.emplace(label, patterned(layout, dtype, place));
      }
    }
  }
  save_safetensors(folder / "t", tensors, {{"a", "1"}, {"größe", "\"\n"}});
  for (const Device place : all_places()) {
    const auto [back, metadata] = load_safetensors(folder / "t", place);
    ASSERT_EQ(back.size(), tensors.size());
    for (const auto& [label, tensor] : tensors) {
      EXPECT_EQ(back.at(label).sizes(), tensor.sizes());
      EXPECT_EQ(back.at(label).dtype(), tensor.dtype());
      EXPECT_EQ(elements(back.at(label)), elements(tensor)) << label;
    }
    EXPECT_EQ(metadata, (SafetensorsMetadata{{"a", "1"}, {"größe", "\"\n"}}));
  }
}

TEST(SafetensorsTest, AReaderLoadsWhatIsAskedFor) {
  const SafetensorsReader reader(data("all.safetensors"));
  EXPECT_THAT(reader.names(), ElementsAre("i64", "f64", "empty", "f32", "scalar", "größe \"1\"\n",
                                          "i32", "bf16", "f16", "i16", "i8", "u8", "bool"));
  EXPECT_TRUE(reader.contains("f32"));
  EXPECT_FALSE(reader.contains("__metadata__"));
  EXPECT_EQ(reader.entry("bf16").dtype_name, "BF16");
  EXPECT_EQ(reader.entry("bf16").dtype, bf16);
  EXPECT_THAT(reader.entry("bf16").sizes, ElementsAre(2, 3));
  EXPECT_EQ(reader.entry("bf16").bytes, 12U);
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  EXPECT_EQ(elements(reader.load("i16")), file_values(6, i16));
  EXPECT_EQ(reader.load("i16", f64).dtype(), f64);
  EXPECT_ERROR(reader.load("i17"), InvalidArgument,
               "all.safetensors': expected the name of a tensor, but got 'i17'");
  EXPECT_ERROR(reader.entry("i17"), InvalidArgument, "but got 'i17'");
  EXPECT_ERROR(load_safetensors(data("all.safetensors"), {.device = Device::cuda(1000)}), Error,
               "");
  GANTRY_REQUIRE_DEVICES(1);
  EXPECT_EQ(reader.load("bf16", "cuda:0").device(), Device::cuda(0));
  EXPECT_ERROR(reader.load("bf16", {.device = "cuda:0", .pinned = true}), InvalidArgument,
               "load_safetensors: expected a CPU tensor for pinned memory");
}

// A file with two elements of a type that gantry does not have.
void write_float4(const testing::TemporaryFolder& folder) {
  constexpr const char* kHeader = R"({"f4":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}  )";
  testing::write_file(folder / "f4", with_length(kHeader, "x"));
}

TEST(SafetensorsTest, LoadsEightBitFloatsAndListsOtherTypes) {
  const SafetensorsReader reader(data("float8.safetensors"));
  EXPECT_EQ(reader.entry("f8").dtype_name, "F8_E4M3");
  EXPECT_EQ(reader.entry("f8").dtype, f8e4m3);
  EXPECT_EQ(elements(reader.load("f32")), (std::vector<double>{-2, -1}));
  EXPECT_EQ(reader.load("f8").view(u8).to_vector<int>(), reader.load_bytes("f8").to_vector<int>());
  const testing::TemporaryFolder folder;
  write_float4(folder);
  const SafetensorsReader other(folder / "f4");
  EXPECT_EQ(other.entry("f4").dtype, std::nullopt);
  EXPECT_ERROR(other.load("f4"), DTypeError,
               "expected a dtype of gantry for 'f4', but got F4; SafetensorsReader::load_bytes");
}

// Everything in a file, to write it again.
std::vector<SafetensorsBytes> all_bytes(const SafetensorsReader& reader, Device place) {
  std::vector<SafetensorsBytes> result;
  for (const std::string& name : reader.names()) {
    const SafetensorsEntry& entry = reader.entry(name);
    result.push_back({name, entry.dtype_name, entry.sizes, reader.load_bytes(name, place)});
  }
  return result;
}

TEST(SafetensorsTest, BytesOfAnyTypeAreReadAndWritten) {
  const testing::TemporaryFolder folder;
  std::string header = "{";
  std::string elements;
  for (const char* type : {"U64", "C64", "U32", "U16", "F8_E8M0", "F8_E4M3", "F8_E5M2",
                           "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E3M2", "F6_E2M3", "F4"}) {
    const bool is_sub_byte = std::string(type).find("F6") == 0 || std::string(type) == "F4";
    const std::size_t width = is_sub_byte                         ? (type[1] == '6' ? 3 : 2)
                              : std::string(type).ends_with("64") ? 8 * 4
                              : std::string(type) == "U32"        ? 4 * 4
                              : std::string(type) == "U16"        ? 2 * 4
                                                                  : 4;
    const std::size_t begin = elements.size();
    for (std::size_t i = 0; i < width; ++i) elements += static_cast<char>(elements.size());
    header += std::string(header == "{" ? "" : ",") + "\"" + type + "\":{\"dtype\":\"" + type +
              "\",\"shape\":[2,2],\"data_offsets\":[" + std::to_string(begin) + "," +
              std::to_string(elements.size()) + "]}";
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  testing::write_file(folder / "t", with_length(header, elements));
  const SafetensorsReader reader(folder / "t");
  for (const Device place : all_places()) {
    save_safetensors(folder / "again", {}, {}, all_bytes(reader, place));
    EXPECT_EQ(content_of(folder / "again"), content_of(folder / "t"));
    for (const char* file : {"all.safetensors", "float8.safetensors"}) {
      const SafetensorsReader known(data(file));
      save_safetensors(folder / "again", {}, known.metadata(), all_bytes(known, place));
      EXPECT_EQ(content_of(folder / "again"), content_of(data(file))) << file;
    }
  }
  const Tensor bytes = reader.load_bytes("U16");
  EXPECT_EQ(bytes.dtype(), u8);
  EXPECT_EQ(bytes.sizes(), (Shape{8}));
  EXPECT_EQ(bytes.to_vector<int>().front(), 80);
  EXPECT_EQ(reader.load_bytes("U16", u8).numel(), 8);
  EXPECT_ERROR(reader.load_bytes("U16", f32), DTypeError,
               "load_bytes: expected dtype u8 for bytes, but got f32");
  EXPECT_ERROR(reader.load_bytes("none"), InvalidArgument, "expected the name of a tensor");
}

TEST(SafetensorsTest, TensorsAndBytesShareAFile) {
  const testing::TemporaryFolder folder;
  const SafetensorsReader float8(data("float8.safetensors"));
  const std::vector<SafetensorsBytes> bytes{
      {"weight", "F8_E4M3", float8.entry("f8").sizes, float8.load_bytes("f8")},
      {"none", "F4", {0, 3}, zeros({0}, u8)}};
  save_safetensors(folder / "t", {{"scale", ones({2})}}, {{"k", "v"}}, bytes);
  const SafetensorsReader reader(folder / "t");
  EXPECT_THAT(reader.names(), ElementsAre("scale", "weight", "none"));
  EXPECT_EQ(elements(reader.load("scale")), (std::vector<double>{1, 1}));
  EXPECT_TRUE(reader.load_bytes("weight").equal(float8.load_bytes("f8")));
  EXPECT_EQ(reader.load_bytes("none").numel(), 0);
  EXPECT_EQ(reader.metadata().at("k"), "v");
}

TEST(SafetensorsTest, RefusesBadBytes) {
  const testing::TemporaryFolder folder;
  const Tensor two = zeros({2}, u8);
  const auto save = [&](const NamedTensors& tensors, std::vector<SafetensorsBytes> bytes) {
    save_safetensors(folder / "t", tensors, {}, bytes);
  };
  EXPECT_ERROR(save({}, {{"a", "F8", {2}, two}}), InvalidArgument,
               "save_safetensors: expected a type of the format for 'a', but got 'F8'");
  EXPECT_ERROR(save({}, {{"a", "U16", {2}, two}}), ShapeError,
               "expected 4 bytes for 'a' by its type and shape, but got 2");
  EXPECT_ERROR(save({}, {{"a", "F4", {3}, two}}), ShapeError, "expected a number of whole bytes");
  EXPECT_ERROR(save({}, {{"a", "U16", {-1}, two}}), ShapeError, "that are not negative");
  EXPECT_ERROR(save({}, {{"a", "U16", {1}, zeros({2}, i8)}}), DTypeError,
               "expected bytes of dtype u8 for 'a', but got i8");
  EXPECT_ERROR(save({}, {{"a", "U16", {1}, Tensor()}}), InvalidArgument, "argument 'a'");
  EXPECT_ERROR(save({}, {{"__metadata__", "U16", {1}, two}}), InvalidArgument, "another name");
  EXPECT_ERROR(save({}, {{"a\xff", "U16", {1}, two}}), InvalidArgument, "in UTF-8");
  EXPECT_ERROR(save({{"a", two}}, {{"a", "U16", {1}, two}}), InvalidArgument,
               "expected each name once, but got 'a' twice");
  EXPECT_ERROR(save({}, {{"a", "U16", {1}, two}, {"a", "U16", {1}, two}}), InvalidArgument,
               "but got 'a' twice");
  EXPECT_EQ(testing::files_in(folder.path()), 0U);
}

TEST(SafetensorsTest, MapsAndListsOfAnyKindAreSaved) {
  const testing::TemporaryFolder folder;
  const NamedTensors named{{"a", zeros({2})}, {"b", ones({3})}};
  const SafetensorsMetadata texts{{"k", "v"}};
  save_safetensors(folder / "t", named, texts);
  const std::string expected = content_of(folder / "t");
  const auto expect_same = [&](const auto& tensors, const auto& metadata) {
    save_safetensors(folder / "u", tensors, metadata);
    EXPECT_EQ(content_of(folder / "u"), expected);
  };
  const std::map<std::string, Tensor> plain(named.begin(), named.end());
  const std::unordered_map<std::string, Tensor> hashed(named.begin(), named.end());
  const std::vector<std::pair<std::string, Tensor>> list(named.begin(), named.end());
  const std::map<std::string, std::string> plain_texts(texts.begin(), texts.end());
  expect_same(plain, texts);
  expect_same(hashed, plain_texts);
  expect_same(list, plain_texts);
  expect_same(named, plain_texts);
  save_safetensors(folder / "u", plain, {{"k", "v"}});
  EXPECT_EQ(content_of(folder / "u"), expected);
  save_safetensors(folder / "u", {{"a", zeros({2})}, {"b", ones({3})}}, plain_texts);
  EXPECT_EQ(content_of(folder / "u"), expected);
  save_safetensors(folder / "u", plain);
  EXPECT_EQ(load_safetensors(folder / "u").tensors.size(), 2U);
  const std::vector<std::pair<std::string, Tensor>> twice{{"a", ones({1})}, {"a", ones({1})}};
  EXPECT_ERROR(save_safetensors(folder / "u", twice), InvalidArgument,
               "expected each name once, but got 'a' twice");
}

TEST(SafetensorsTest, LoadsMisalignedTensorsAndTensorsOfManyDims) {
  const testing::TemporaryFolder folder;
  testing::write_file(
      folder / "t",
      with_length(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                  R"("a":{"dtype":"I32","shape":[2],"data_offsets":[1,9]},)"
                  R"("m":{"dtype":"I8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[9,10]},)"
                  R"("e":{"dtype":"I64","shape":[9223372036854775807,0],"data_offsets":[9,9]},)"
                  R"("f4":{"dtype":"F4","shape":[3,2],"data_offsets":[10,13]}}   )",
                  std::string("\x05\x01\x00\x00\x00\x02\x00\x00\x00\x07", 10) + "abc"));
  const SafetensorsReader reader(folder / "t");
  EXPECT_THAT(reader.names(), ElementsAre("b", "a", "e", "m", "f4"));
  EXPECT_EQ(elements(reader.load("b")), (std::vector<double>{5}));
  for (const Device place : all_places()) {
    EXPECT_EQ(elements(reader.load("a", place)), (std::vector<double>{1, 2}));
  }
  EXPECT_EQ(reader.load("e").numel(), 0);
  EXPECT_ERROR(reader.load("m"), ShapeError, "expected at most 8 dims for 'm', but got 9");
}

struct BadFile {
  std::string content;
  std::string text;
};

TEST(SafetensorsTest, RefusesMalformedFiles) {
  const auto one = [](const std::string& members, const std::string& elements = "abcd") {
    return with_length("{\"a\":{" + members + "}}", elements);
  };
  const auto with_offsets = [&](const std::string& offsets) {
    return one(R"("dtype":"F32","shape":[1],"data_offsets":)" + offsets);
  };
  const auto with_shape = [&](const std::string& shape) {
    return one(R"("dtype":"F32","data_offsets":[0,4],"shape":)" + shape);
  };
  const auto two = [](const std::string& a, const std::string& b) {
    return with_length(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
                           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}",
                       "abcd");
  };
  std::string many_sizes = "[1";
  for (int i = 0; i < 64; ++i) many_sizes += ",1";
  many_sizes += "]";
  const std::string f32_one = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::vector<BadFile> files{
      {"", "the file ends before its header"},
      {"1234567", "the file ends before its header"},
      {std::string(8, '\0'), "expected a header that starts with '{'"},
      {std::string(8, '\xff') + "{}",
       "expected a header of at most 100000000 bytes, but got "
       "18446744073709551615"},
      {std::string("\x10\x27\0\0\0\0\0\0{}", 10),
       "expected a header of 10000 bytes, but the file ends after 2"},
      {std::string("\x0a\0\0\0\0\0\0\0{}", 10),
       "expected a header of 10 bytes, but the file ends after 2"},
      {std::string("\x03\0\0\0\0\0\0\0{}", 10),
       "expected a header of 3 bytes, but the file ends after 2"},
      {with_length(" {}"), "expected a header that starts with '{'"},
      {with_length("{"), "parse error"},
      {with_length("{}x"), "parse error"},
      {with_length("{\"a\xff\":{}}"), "parse error"},
      {with_length(std::string("{}\0", 3)), "but got a null character"},
      {with_length(std::string("{}\0 \xff\xfe", 6)), "but got a null character"},
      {with_length("{\"a\":" + f32_one + "}" + '\0' + "{\"b\":" + f32_one + "}", "abcd"),
       "but got a null character"},
      {with_length("{\"a\":" + f32_one + '\0' + "}", "abcd"), "but got a null character"},
      {with_length("{\"a\":" + f32_one + "}{}", "abcd"), "parse error"},
      {with_length("[]"), "expected a header that starts with '{'"},
      {with_length("{}", "a"), "expected 0 bytes of tensors, but the file has 1"},
      {with_length("{\"a\":1}"),
       "expected an object for each tensor in the header, but got a "
       "number in 'a'"},
      {with_length("{\"a\":[]}"), "but got an array in 'a'"},
      {with_length("{\"a\":null}"), "but got null in 'a'"},
      {with_length("{\"a\":{}}"), "\"data_offsets\" of 'a', but one is missing"},
      {one(R"("dtype":"F32","shape":[1])"), "but one is missing"},
      {one(R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])"),
       "but got 'dtype' twice"},
      {one(R"("dtype":1,"shape":[1],"data_offsets":[0,4])"), "but got a number in 'a'"},
      {one(R"("dtype":["F32"],"shape":[1],"data_offsets":[0,4])"), "but got an array"},
      {one(R"("dtype":{"F32":1},"shape":[1],"data_offsets":[0,4])"), "but got an object"},
      {one(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"),
       "expected a type of the format for 'a', but got 'F33'"},
      {one(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])"), "but got 'f32'"},
      {with_length("{\"a\":" + f32_one + ",\"a\":" + f32_one + "}", "abcd"),
       "expected each name once in the header, but got 'a' twice"},
      {with_length(R"({"__metadata__":{},"__metadata__":{}})"), "but got '__metadata__' twice"},
      {with_length(R"({"__metadata__":{"k":"1","k":"2"}})"), "but got 'k' twice"},
      {with_length(R"({"__metadata__":{"k":1}})"),
       "expected strings in \"__metadata__\" in the header, but got a number"},
      {with_length(R"({"__metadata__":"k"})"), "but got a string"},
      {with_shape("1"), "but got a number"},
      {with_shape("\"1\""), "but got a string"},
      {with_shape("[[1]]"), "but got an array"},
      {with_shape("[1.0]"), "but got a number with a fraction"},
      {with_shape("[-1]"), "but got a negative number"},
      {with_shape("[18446744073709551615]"), "but got a number of 2^63 or more"},
      {with_shape("[true]"), "but got a bool"},
      {with_shape("[2]"), "expected 8 bytes for 'a' by its type and shape, but got 4"},
      {with_shape("[]") + "a", "the file has 5"},
      {with_shape("[4294967296,4294967296]"),
       "expected a number of whole bytes for 'a' by its type and shape, but got 4"},
      {with_shape("[9223372036854775807]"), "expected a number of whole bytes"},
      {with_shape(many_sizes), "expected up to 64 sizes in the header, but got more numbers"},
      {one(R"("dtype":"F4","shape":[3],"data_offsets":[0,4])"), "expected a number of whole bytes"},
      {with_offsets("[0]"), "expected two data_offsets in the header, but got one number or none"},
      {with_offsets("[0,2,4]"), "but got more numbers"},
      {with_offsets("[4,0]"), "expected data_offsets in order for 'a', but got [4, 0]"},
      {with_offsets("[0,5]"), "expected 4 bytes for 'a' by its type and shape, but got 5"},
      {with_offsets("[1,5]"), "expected 'a' at offset 0, behind the tensor before it, but got 1"},
      {with_offsets("[9223372036854775803,9223372036854775807]"), "expected 'a' at offset 0"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", "abc"),
       "expected 4 bytes of tensors, but the file has 3"},
      {one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", "abcde"),
       "expected 4 bytes of tensors, but the file has 5"},
      {two("[0,2]", "[0,2]"), "expected 'b' at offset 2, behind the tensor before it, but got 0"},
      {two("[0,2]", "[1,3]"), "expected 'b' at offset 2"},
      {two("[0,2]", "[3,5]"), "expected 'b' at offset 2"},
      {with_length(std::string(100'000, '[')), "expected a header that starts with '{'"},
      {with_length("{\"\\u001b[31m\":1}"), "in '\\x1b[31m'"}};
  const testing::TemporaryFolder folder;
  for (const BadFile& file : files) {
    SCOPED_TRACE(file.text);
    testing::write_file(folder / "bad", file.content);
    EXPECT_ERROR(SafetensorsReader(folder / "bad"), Error, file.text);
    EXPECT_ERROR(load_safetensors(folder / "bad"), Error,
                 "load_safetensors: failed to read '" + (folder / "bad").string() + "': ");
  }
  EXPECT_ERROR(load_safetensors(folder / "none"), Error, "none': No such file or directory");
  EXPECT_ERROR(load_safetensors(folder.path()), Error, "': a directory");
}

TEST(SafetensorsTest, AFileThatShrinksIsAnError) {
  const testing::TemporaryFolder folder;
  save_safetensors(folder / "t", {{"a", zeros({1000})}});
  const SafetensorsReader reader(folder / "t");
  fs::resize_file(folder / "t", 1000);
  for (const Device place : all_places()) {
    EXPECT_ERROR(reader.load("a", place), Error, "the file became shorter while it was read");
  }
}

TEST(SafetensorsTest, RefusesBadArguments) {
  const testing::TemporaryFolder folder;
  EXPECT_ERROR(save_safetensors(folder / "t", {{"a", Tensor()}}), InvalidArgument,
               "save_safetensors: expected a defined tensor for argument 'a'");
  EXPECT_ERROR(save_safetensors(folder / "t", {{"__metadata__", zeros({1})}}), InvalidArgument,
               "expected another name for a tensor, but got '__metadata__'");
  EXPECT_ERROR(save_safetensors(folder / "t", {{"a\xff", zeros({1})}}), InvalidArgument,
               "expected names and metadata in UTF-8, but got 'a\\xff'");
  EXPECT_ERROR(save_safetensors(folder / "t", {}, {{"a\xff", ""}}), InvalidArgument, "in UTF-8");
  EXPECT_ERROR(save_safetensors(folder / "t", {}, {{"a", "\xc3"}}), InvalidArgument, "in UTF-8");
  EXPECT_ERROR(save_safetensors(folder / "t", {}, {{"a", std::string(100'000'001, 'x')}}), Error,
               "expected a header of at most 100000000 bytes");
  EXPECT_EQ(testing::files_in(folder.path()), 0U);
}

TEST(SafetensorsTest, AWriteThatFailsLeavesTheOldFile) {
  const testing::TemporaryFolder folder;
  save_safetensors(folder / "t", {{"a", zeros({2})}});
  const std::string before = content_of(folder / "t");
  EXPECT_ERROR(save_safetensors(folder / "no" / "t", {}), Error,
               "save_safetensors: failed to write '");
  for (const Device place : all_places()) {
    const NamedTensors large{{"a", zeros({1 << 20}, place)}, {"b", ones({1 << 20}, place)}};
    EXPECT_ERROR(save_safetensors("/dev/full", large), Error,
                 "save_safetensors: failed to write '/dev/full': No space left on device");
  }
  EXPECT_EQ(content_of(folder / "t"), before);
  EXPECT_EQ(testing::files_in(folder.path()), 1U);
}

// Every outcome is an error, or the elements at the offsets that the file tells.
TEST(SafetensorsTest, DamagedFilesAreErrorsOrReadAsTheyStand) {
  const testing::TemporaryFolder folder;
  std::mt19937 random(20260102);
  for (const char* file : {"all.safetensors", "float8.safetensors", "none.safetensors"}) {
    const std::string good = content_of(data(file));
    int opened = 0;
    for (int i = 0; i < 3000; ++i) {
      const std::string bad = testing::mutated(good, random);
      testing::write_file(folder / "bad", bad);
      try {
        const SafetensorsReader reader(folder / "bad");
        ++opened;
        std::size_t end = bad.size();
        for (auto name = reader.names().rbegin(); name != reader.names().rend(); ++name) {
          end -= reader.entry(*name).bytes;
          if (!reader.entry(*name).dtype) continue;
          const Tensor tensor = reader.load(*name);
          ASSERT_EQ(tensor.nbytes(), reader.entry(*name).bytes);
          const std::string read(static_cast<const char*>(tensor.data()), tensor.nbytes());
          EXPECT_TRUE(tensor.dtype() == bool_ || read == bad.substr(end, read.size()));
        }
      } catch (const Error&) {
        continue;
      }
    }
    EXPECT_GT(opened, 0) << file;
    EXPECT_LT(opened, 3000) << file;
  }
}

class SafetensorsDeviceTest : public testing::DeviceTest {};

TEST_F(SafetensorsDeviceTest, LargeTensorsMoveBetweenDevices) {
  const testing::TemporaryFolder folder;
  const Device last = Device::cuda(device_count() - 1);
  const Tensor tensor = arange(3'000'001, {.dtype = f64, .device = "cuda:0"});
  save_safetensors(folder / "t", {{"x", tensor}, {"y", tensor.cpu()}});
  const auto [tensors, metadata] = load_safetensors(folder / "t", last);
  EXPECT_EQ(tensors.at("x").device(), last);
  EXPECT_TRUE(tensors.at("x").equal(tensors.at("y")));
  EXPECT_TRUE(tensors.at("x").cpu().equal(tensor.cpu()));
}

TEST_F(SafetensorsDeviceTest, NothingLeaks) {
  const Device device = Device::cuda(0);
  const std::size_t before = memory::allocated(device);
  const testing::TemporaryFolder folder;
  write_float4(folder);
  EXPECT_THROW((void)load_safetensors(folder / "f4", device), DTypeError);
  EXPECT_EQ(load_safetensors(data("all.safetensors"), device).tensors.size(), 13U);
  Stream::current(device).synchronize();
  EXPECT_EQ(memory::allocated(device), before);
}

}  // namespace
}  // namespace gantry
