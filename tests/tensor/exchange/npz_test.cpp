#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/npy.hpp>

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
using testing::file_values;
using testing::Layout;
using testing::patterned;

fs::path data(const std::string& name) { return fs::path(GANTRY_TEST_DATA_DIR) / name; }

TEST(NpzTest, ReadsAnArchiveOfNumpy) {
  for (const Device place : all_places()) {
    const NamedTensors arrays = load_npz(data("arrays.npz"), place);
    EXPECT_EQ(arrays.size(), 8U);
    for (const auto& [name, dtype] :
         {std::pair("f2", f16), {"f4", f32}, {"f8", f64}, {"big", i16}}) {
      SCOPED_TRACE(name);
      const Tensor& array = arrays.find(name)->second;
      EXPECT_EQ(array.device(), place);
      EXPECT_EQ(array.dtype(), dtype);
      EXPECT_EQ(array.sizes(), (Shape{2, 3}));
      EXPECT_EQ(elements(array), file_values(6, dtype));
    }
    EXPECT_EQ(arrays.at("fortran").strides(), (Dims{1, 2, 6}));
    EXPECT_EQ(elements(arrays.at("fortran")), file_values(24, i32));
    EXPECT_EQ(arrays.at("scalar").sizes(), Shape{});
    EXPECT_EQ(arrays.at("empty").sizes(), (Shape{3, 0, 2}));
    EXPECT_EQ(elements(arrays.at("größe/1")), file_values(4, i32));
  }
  EXPECT_TRUE(load_npz(data("none.npz")).empty());
  EXPECT_EQ(load_npz(data("arrays.npz"), {.dtype = f64}).at("big").dtype(), f64);
}

TEST(NpzTest, EveryDtypeAndLayoutComesBack) {
  const testing::TemporaryFolder folder;
  NamedTensors tensors;
  for (const Device place : all_places()) {
    for (const DType dtype : all_dtypes()) {
      if (dtype == bf16 || dtype == f8e4m3 || dtype == f8e5m2) continue;
      for (const Layout layout : {Layout::contiguous, Layout::transposed, Layout::sliced,
                                  Layout::expanded, Layout::zero_dim, Layout::empty}) {
        tensors["t " + std::to_string(tensors.size())] = patterned(layout, dtype, place);
      }
    }
  }
  save_npz(folder / "t.npz", tensors);
  for (const Device place : {Device::cpu(), all_places().back()}) {
    const NamedTensors back = load_npz(folder / "t.npz", place);
    ASSERT_EQ(back.size(), tensors.size());
    for (const auto& [name, tensor] : tensors) {
      SCOPED_TRACE(name);
      const Tensor& array = back.at(name);
      EXPECT_EQ(array.device(), place);
      EXPECT_EQ(array.dtype(), tensor.dtype());
      EXPECT_EQ(array.sizes(), tensor.sizes());
      EXPECT_EQ(elements(array), elements(tensor));
    }
  }
}

// Each entry is the file that save_npy() writes, and its neighbours are what the format says.
TEST(NpzTest, WritesStoredEntries) {
  const testing::TemporaryFolder folder;
  const Tensor t = arange(3, i32);
  save_npz(folder / "t.npz", {{"a", t}, {"ä", t}});
  save_npy(folder / "t.npy", t);
  const std::string array = content_of(folder / "t.npy");
  const auto number = [](std::uint64_t value, std::size_t bytes) {
    std::string text;
    for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
    return text;
  };
  // By Python's zlib.crc32().
  const std::string about =
      number(0x21, 2) + number(0xa9bdec02, 4) + number(array.size(), 4) + number(array.size(), 4);
  const auto local = [&](const std::string& name, std::uint64_t flags) {
    return "PK\3\4" + number(20, 2) + number(flags, 2) + number(0, 2) + number(0, 2) + about +
           number(name.size(), 2) + number(0, 2) + name + array;
  };
  const auto listed = [&](const std::string& name, std::uint64_t flags, std::uint64_t offset) {
    return "PK\1\2" + number(20, 2) + number(20, 2) + number(flags, 2) + number(0, 2) +
           number(0, 2) + about + number(name.size(), 2) + number(0, 12) + number(offset, 4) + name;
  };
  const std::string first = local("a.npy", 0), second = local("ä.npy", 1 << 11);
  const std::string directory = listed("a.npy", 0, 0) + listed("ä.npy", 1 << 11, first.size());
  EXPECT_EQ(content_of(folder / "t.npz"),
            first + second + directory + "PK\5\6" + number(0, 4) + number(2, 2) + number(2, 2) +
                number(directory.size(), 4) + number(first.size() + second.size(), 4) +
                number(0, 2));
}

TEST(NpzTest, RefusesWhatItCannotWrite) {
  const testing::TemporaryFolder folder;
  const fs::path path = folder / "t.npz";
  save_npz(path, {{"old", ones({1})}});
  const std::string before = content_of(path);
  const Tensor good = ones({2});
  EXPECT_ERROR(save_npz(path, {{"a", good}, {"b", Tensor()}}), InvalidArgument, "argument 'b'");
  EXPECT_ERROR(save_npz(path, {{"a", good}, {"b", ones({2}, bf16)}}), DTypeError,
               "save_npz: expected a dtype of NumPy, but got bf16");
  EXPECT_ERROR(save_npz(path, {{"\xff", good}}), InvalidArgument, "in UTF-8 without zeros");
  EXPECT_ERROR(save_npz(path, {{std::string("a\0b", 3), good}}), InvalidArgument, "without zeros");
  EXPECT_ERROR(save_npz(path, {{std::string(65532, 'a'), good}}), InvalidArgument, "65531 bytes");
  EXPECT_EQ(content_of(path), before);
  save_npz(path, {{std::string(65531, 'a'), good}});
  EXPECT_EQ(load_npz(path).begin()->first.size(), 65531U);
}

TEST(NpzTest, RefusesMalformedArchives) {
  const testing::TemporaryFolder folder;
  const fs::path path = folder / "bad.npz";
  save_npz(path, {{"a", arange(3, i32)}, {"b", arange(3, i32)}});
  const std::string good = content_of(path);
  const std::size_t end = good.rfind("PK\5\6"), listed = good.find("PK\1\2");
  const std::size_t listed_b = good.rfind("PK\1\2"), local_b = good.find("PK\3\4", 4);
  // `good` with `bytes` at `at`.
  const auto put = [&](std::size_t at, const std::string& bytes) {
    return std::string(good).replace(at, bytes.size(), bytes);
  };
  const std::string zero4(4, '\0');
  struct Bad {
    std::string content, text;
  };
  const std::vector<Bad> files{
      {"", "expected a zip archive, but its end record is missing"},
      {good.substr(0, end), "its end record is missing"},
      {good.substr(0, good.size() - 1), "its end record is missing"},
      {good + "x", "its end record is missing"},
      {put(end + 4, "\1"), "it is split into several files"},
      {put(end + 10, "\3"), "its directory is malformed"},
      {put(end + 10, "\1"), "its directory is malformed"},
      {put(end + 12, "\1"), "its directory is not the 1 bytes at offset"},
      {put(end + 16, zero4), "bytes at offset 0"},
      {put(end + 10, "\xff\xff"), "its zip64 record is missing"},
      {put(end + 16, "\xff\xff\xff\xff"), "its zip64 record is missing"},
      {"x" + good, "its directory is not the"},
      {put(listed, "XK"), "its directory is malformed"},
      {put(listed + 8, "\1"), "expected an entry without encryption, but got 'a.npy'"},
      {put(listed + 10, "\x08"),
       "expected entries without compression, but 'a.npy' is compressed with method 8; write the "
       "archive with numpy.savez or save_npz"},
      {put(listed + 16, "\1\2\3\4"), "'a.npy' of '" + path.string() +
                                         "': expected the checksum "
                                         "04030201"},
      {put(listed + 20, zero4), "'a.npy' has two sizes, 0 and 140"},
      {put(listed + 28, "\xff\xff"), "its directory is malformed"},
      {put(listed + 42, "\1"), "the header of 'a.npy' is malformed"},
      {put(listed + 42, "\xfe\xff\xff\xff"), "the header of 'a.npy' is malformed"},
      {put(4 + 22, "\6"), "the header of 'a.npy' is malformed"},
      {put(30, "c"), "the header of 'a.npy' is malformed"},
      {put(listed_b + 46, "a"), "'a.npy' is there twice"},
      {put(listed_b + 20, std::string("\xf0\0\0\0\xf0", 5)), "the 240 bytes of 'b.npy' exceed it"},
      {put(4 + 24, "\xff\x7f"), "the header of 'a.npy' is malformed"},
      {put(local_b - 1, "x"), "expected the checksum"},
      {put(35, "X"), "'a.npy' of '"},
  };
  for (const Bad& file : files) {
    SCOPED_TRACE(file.text);
    testing::write_file(path, file.content);
    EXPECT_ERROR(load_npz(path), Error, file.text);
    EXPECT_ERROR(load_npz(path), Error, "load_npz: failed to read '");
  }
  // A comment behind the end, and an entry without the suffix, are nothing bad.
  testing::write_file(path, good.substr(0, good.size() - 2) + std::string("\3\0abc", 5));
  EXPECT_EQ(load_npz(path).size(), 2U);
  std::string bare = good;
  for (std::size_t at = 0; (at = bare.find("a.npy", at)) != std::string::npos;) {
    bare.replace(at, 5, "a.bin");
  }
  testing::write_file(path, bare);
  EXPECT_EQ(load_npz(path).count("a.bin"), 1U);
  EXPECT_ERROR(load_npz(data("compressed.npz")), Error, "'zeros.npy' is compressed with method 8");
  EXPECT_ERROR(load_npz(data("f4.npy")), Error, "expected a zip archive");
  EXPECT_ERROR(load_npz(folder / "none.npz"), Error, "No such file");
}

// Two entries of one content would load more than the file holds.
TEST(NpzTest, RefusesEntriesThatOverlap) {
  const testing::TemporaryFolder folder;
  const fs::path path = folder / "bad.npz";
  save_npz(path, {{"a", arange(300, i32)}, {"b", arange(3, i32)}});
  const std::string good = content_of(path);
  // b's header and array within a's: a grows to b's end.
  const std::size_t listed = good.find("PK\1\2"), local_b = good.find("PK\3\4", 4);
  const std::uint64_t grown = listed - 35;
  std::string bad = good;
  for (const std::size_t at : {listed + 20, listed + 24}) {
    for (std::size_t i = 0; i < 4; ++i) bad[at + i] = static_cast<char>(grown >> (8 * i) & 0xff);
  }
  ASSERT_LT(local_b, listed);
  testing::write_file(path, bad);
  EXPECT_ERROR(load_npz(path), Error, "expected a zip archive, but 'a.npy' and 'b.npy' overlap");
}

TEST(NpzTest, DamagedArchivesAreErrors) {
  const testing::TemporaryFolder folder;
  const fs::path path = folder / "bad.npz";
  save_npz(path, {{"a", arange(3, i32)}, {"b", ones({2, 2})}});
  const std::string good = content_of(path);
  const NamedTensors expected = load_npz(path);
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    // The directory is at the end: it is damaged as the header of the reversed file.
    std::string content = good;
    const bool backwards = round % 2 == 0;
    if (backwards) std::reverse(content.begin(), content.end());
    content = testing::mutated(content, random);
    if (backwards) std::reverse(content.begin(), content.end());
    testing::write_file(path, content);
    try {
      for (const auto& [name, tensor] : load_npz(path)) {
        // Nothing that has the right checksum is wrong, but names and headers may differ.
        EXPECT_LE(tensor.nbytes(), good.size());
      }
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1800);
}

}  // namespace
}  // namespace gantry
