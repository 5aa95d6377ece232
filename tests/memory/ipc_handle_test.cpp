#include "memory/ipc/handle.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include <gantry/core/error.hpp>

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

TEST(IpcHandleTest, RefusesDamagedBytes) {
  const IpcHandle good = encode(example());
  expect_refused({}, "0 bytes instead of");
  IpcHandle bad = good;
  bad.bytes.pop_back();
  expect_refused(bad, "");
  bad = good;
  bad.bytes[0] = std::byte{'X'};
  expect_refused(bad, "bytes without the magic");
  for (std::size_t i = 8; i < good.bytes.size(); ++i) {
    bad = good;
    bad.bytes[i] ^= std::byte{64};
    expect_refused(bad, "damaged bytes");
  }
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    IpcHandle noise;
    noise.bytes.resize(random() % 500);
    for (std::byte& byte : noise.bytes) byte = static_cast<std::byte>(random());
    expect_refused(noise, "");
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
