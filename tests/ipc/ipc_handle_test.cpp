#include "ipc/handle.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>

#include <gantry/core/error.hpp>

#include "core/bytes.hpp"

namespace gantry::memory {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

IpcHandleFields example() {
  IpcHandleFields fields;
  fields.kind = IpcKind::chunks;
  fields.exporter = {.process = {4711, 0x123456789abcdef0u},
                     .machine = 5,
                     .pid_namespace = 6,
                     .net_namespace = 7,
                     .user = 8};
  fields.device_uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef";
  fields.nonce = 0xfedcba9876543210u;
  fields.slot = 12;
  fields.generation = 13;
  fields.extent_id = 14;
  fields.extent_bytes = 0x2000000000000000u;
  fields.segment.bytes.fill(std::byte{7});
  fields.offset = 0x1122334455667788u;
  fields.bytes = 99;
  fields.event.emplace().bytes.fill(std::byte{9});
  return fields;
}

void expect_refused(const IpcHandle& handle, const char* actual) {
  EXPECT_THAT(
      [&] { static_cast<void>(decode(handle)); },
      ThrowsMessage<InvalidArgument>(HasSubstr(
          std::string("import_ipc: expected the bytes of an IpcHandle, but got ") + actual)));
}

TEST(IpcHandleTest, DecodesWhatWasEncoded) {
  IpcHandleFields fields = example();
  const IpcHandle handle = encode(fields);
  EXPECT_EQ(handle.bytes[0], std::byte{'G'});
  EXPECT_EQ(handle.bytes[4], std::byte{2}) << "little-endian version";
  const IpcHandleFields read = decode(handle);
  EXPECT_EQ(read.kind, fields.kind);
  EXPECT_EQ(read.exporter, fields.exporter);
  EXPECT_EQ(read.device_uuid, fields.device_uuid);
  EXPECT_EQ(read.nonce, fields.nonce);
  EXPECT_EQ(read.slot, fields.slot);
  EXPECT_EQ(read.generation, fields.generation);
  EXPECT_EQ(read.extent_id, fields.extent_id);
  EXPECT_EQ(read.extent_bytes, fields.extent_bytes);
  EXPECT_EQ(read.segment.bytes, fields.segment.bytes);
  EXPECT_EQ(read.offset, fields.offset);
  EXPECT_EQ(read.bytes, fields.bytes);
  ASSERT_TRUE(read.event.has_value());
  EXPECT_EQ(read.event->bytes, fields.event->bytes);
  fields.event.reset();
  EXPECT_FALSE(decode(encode(fields)).event.has_value());
}

TEST(IpcHandleTest, EqualFieldsHaveEqualBytes) { EXPECT_EQ(encode(example()), encode(example())); }

TEST(IpcHandleTest, RefusesTruncatedBytes) {
  IpcHandle handle = encode(example());
  const std::string bytes = std::to_string(handle.bytes.size());
  while (!handle.bytes.empty()) {
    handle.bytes.pop_back();
    expect_refused(handle,
                   (std::to_string(handle.bytes.size()) + " bytes instead of " + bytes).c_str());
  }
  handle = encode(example());
  handle.bytes.push_back({});
  expect_refused(handle, "");
}

TEST(IpcHandleTest, RefusesDamagedBytes) {
  const IpcHandle good = encode(example());
  for (std::size_t i = 0; i < good.bytes.size(); ++i) {
    IpcHandle bad = good;
    bad.bytes[i] ^= std::byte{64};
    expect_refused(bad, i < 4 ? "bytes without the magic" : i < 8 ? "version" : "damaged bytes");
  }
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    IpcHandle noise;
    noise.bytes.resize(random() % 500);
    for (std::byte& byte : noise.bytes) byte = static_cast<std::byte>(random());
    expect_refused(noise, "");
  }
}

// Bytes that differ from a handle but carry the right checksum: an error, or fields in range.
TEST(IpcHandleTest, ForgedBytesStayInRange) {
  const IpcHandle good = encode(example());
  const std::size_t body = good.bytes.size() - 8;
  for (std::size_t bit = 0; bit < 8 * body; ++bit) {
    IpcHandle forged = good;
    forged.bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    ByteWriter checksum;
    checksum.number(fnv1a(std::span(forged.bytes).first(body)));
    std::ranges::copy(checksum.bytes(), forged.bytes.begin() + static_cast<std::ptrdiff_t>(body));
    try {
      const IpcHandleFields fields = decode(forged);
      EXPECT_LE(fields.offset, fields.extent_bytes) << bit;
      EXPECT_LE(fields.bytes, fields.extent_bytes - fields.offset) << bit;
      EXPECT_LE(fields.kind, IpcKind::segment) << bit;
    } catch (const InvalidArgument&) {
    }
  }
}

TEST(IpcHandleTest, RefusesOtherVersionsOfAnyLength) {
  IpcHandle other = encode(example());
  other.bytes[4] = std::byte{1};
  expect_refused(other, "version 1 instead of 2; both processes need the same version of gantry");
  other.bytes.resize(200);
  expect_refused(other, "version 1 instead of 2");
  other.bytes[4] = std::byte{3};
  expect_refused(other, "version 3 instead of 2");
}

TEST(IpcHandleTest, RefusesFieldsOutOfRange) {
  IpcHandleFields overflow = example();
  overflow.offset = ~std::uint64_t{0};
  expect_refused(encode(overflow), "fields out of range");
  IpcHandleFields outside = example();
  outside.bytes = outside.extent_bytes - outside.offset + 1;
  expect_refused(encode(outside), "fields out of range");
  IpcHandleFields nothing = example();
  nothing.kind = IpcKind::empty;
  expect_refused(encode(nothing), "fields out of range");
  IpcHandleFields empty = example();
  empty.bytes = 0;
  expect_refused(encode(empty), "fields out of range");
  IpcHandleFields kind = example();
  kind.kind = static_cast<IpcKind>(3);
  expect_refused(encode(kind), "fields out of range");
}

}  // namespace
}  // namespace gantry::memory
