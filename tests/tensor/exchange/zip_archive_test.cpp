#include "tensor/exchange/zip_archive.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/error.hpp>

#include "tensor/exchange/crc32.hpp"
#include "tests/support/expect_error.hpp"

namespace gantry::detail {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// An archive whose contents are zeros: only what a ZipWriter writes is kept.
class SparseArchive final : public ByteSource {
 public:
  SparseArchive() : ByteSource("test", "the archive") {}

  void add(const std::string& name, std::uint64_t bytes) {
    writer_.begin(name, bytes, 0);
    keep();
    size_ += bytes;
  }
  void finish() {
    writer_.finish();
    keep();
  }
  void read(std::uint64_t offset, void* out, std::size_t bytes) const override {
    std::memset(out, 0, bytes);
    for (const auto& [at, text] : texts_) {
      const std::uint64_t first = std::max(at, offset);
      const std::uint64_t last = std::min(at + text.size(), offset + bytes);
      if (first >= last) continue;
      std::memcpy(static_cast<char*>(out) + (first - offset), text.data() + (first - at),
                  last - first);
    }
  }

 private:
  void keep() {
    const std::string text = stream_.str();
    stream_.str("");
    texts_[size_] = text;
    size_ += text.size();
  }

  std::ostringstream stream_;
  ZipWriter writer_{stream_};
  std::map<std::uint64_t, std::string> texts_;
};

TEST(ZipArchiveTest, SizesAndOffsetsMayExceedFourGib) {
  const std::vector<std::uint64_t> border{0xFFFFFFFE, 0xFFFFFFFF, 0x100000000};
  for (const std::uint64_t first : {std::uint64_t{3}, border[0], border[1], border[2], 9 * kGiB}) {
    for (const std::uint64_t second : {std::uint64_t{0}, border[1], 5 * kGiB}) {
      SparseArchive archive;
      archive.add("a", first);
      archive.add("b", second);
      archive.add("c", 7);
      archive.finish();
      const std::vector<ZipEntry> entries = read_zip_directory(archive);
      ASSERT_EQ(entries.size(), 3U);
      std::uint64_t end = 0;
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(entries[i].name, std::string_view("abc").substr(i, 1));
        EXPECT_EQ(entries[i].size, (std::vector{first, second, std::uint64_t{7}}[i]));
        EXPECT_GE(entries[i].offset, end + 31);
        EXPECT_LE(entries[i].offset, end + 31 + 20);
        end = entries[i].offset + entries[i].size;
      }
    }
  }
}

TEST(ZipArchiveTest, MayHaveMoreThan65535Entries) {
  for (const int count : {0, 1, 65534, 65535, 65536}) {
    std::ostringstream out;
    ZipWriter writer(out);
    for (int i = 0; i < count; ++i) writer.begin(std::to_string(i), 0, 0);
    writer.finish();
    const std::string content = out.str();
    const MemorySource source("test", std::as_bytes(std::span(content)));
    const std::vector<ZipEntry> entries = read_zip_directory(source);
    ASSERT_EQ(entries.size(), static_cast<std::size_t>(count));
    if (count > 0) {
      EXPECT_EQ(entries.back().name, std::to_string(count - 1));
    }
  }
}

TEST(ZipArchiveTest, RefusesDamaged64BitRecords) {
  SparseArchive archive;
  archive.add("a", 5 * kGiB);
  archive.finish();
  const std::uint64_t end = archive.size();
  // The record of 56 bytes, its locator of 20 and the end of 22.
  const std::string tail = archive.text(end - 98, 98);
  ASSERT_EQ(tail.substr(0, 4), "PK\6\6");
  ASSERT_EQ(tail.substr(56, 4), "PK\6\7");
  const auto refuses = [](std::string content, std::size_t at, char byte, std::string_view text) {
    content[at] = byte;
    const MemorySource source("test", std::as_bytes(std::span(content)));
    EXPECT_ERROR(read_zip_directory(source), Error, std::string(text));
  };
  refuses(tail, 0, 'X', "its zip64 record is missing");
  refuses(tail, 56, 'X', "its zip64 record is missing");
  refuses(tail, 60, '\1', "its zip64 record is missing");    // its disk
  refuses(tail, 71, '\x7f', "its zip64 record is missing");  // its offset
  refuses(tail.substr(76), 0, 'P', "its zip64 record is missing");
}

TEST(Crc32Test, IsThatOfTheBitwiseDivision) {
  const auto expected = [](std::span<const std::byte> bytes) {
    std::uint32_t state = 0xFFFFFFFF;
    for (const std::byte byte : bytes) {
      state ^= std::to_integer<std::uint32_t>(byte);
      for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ ((state & 1) != 0 ? 0xEDB88320 : 0);
    }
    return ~state;
  };
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> bytes(random() % 100);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    Crc32 crc;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t count = std::min<std::size_t>(bytes.size() - at, random() % 30);
      crc.add(std::span(bytes).subspan(at, count));
      at += count;
    }
    EXPECT_EQ(crc.value(), expected(bytes));
  }
  Crc32 digits;  // the check value of the polynomial
  digits.add(std::as_bytes(std::span(std::string_view("123456789"))));
  EXPECT_EQ(digits.value(), 0xCBF43926);
}

}  // namespace
}  // namespace gantry::detail
