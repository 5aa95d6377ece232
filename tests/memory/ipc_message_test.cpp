#include "memory/ipc/message.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include <gantry/core/error.hpp>

namespace gantry::memory {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

IpcMessage example() {
  IpcMessage message;
  message.kind = IpcKind::chunks;
  message.exporter = {.process = {4711, 0x123456789abcdef0u},
                      .machine = 5,
                      .pid_namespace = 6,
                      .net_namespace = 7,
                      .user = 8};
  message.device_uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef";
  message.nonce = 0xfedcba9876543210u;
  message.slot = 12;
  message.generation = 13;
  message.extent_id = 14;
  message.extent_bytes = 0x2000000000000000u;
  message.segment.bytes.fill(std::byte{7});
  message.offset = 0x1122334455667788u;
  message.bytes = 99;
  message.event.emplace().bytes.fill(std::byte{9});
  return message;
}

void expect_refused(const IpcHandle& handle, const char* why) {
  EXPECT_THAT(
      [&] { static_cast<void>(decode(handle)); },
      ThrowsMessage<InvalidArgument>(HasSubstr(
          std::string("import_ipc: the bytes of an IpcHandle were expected, but got ") + why)));
}

TEST(IpcMessageTest, SurvivesTheJourney) {
  IpcMessage message = example();
  const IpcHandle handle = encode(message);
  EXPECT_EQ(handle.bytes[0], std::byte{'G'});
  EXPECT_EQ(handle.bytes[4], std::byte{2}) << "little-endian version";
  const IpcMessage read = decode(handle);
  EXPECT_EQ(read.kind, message.kind);
  EXPECT_EQ(read.exporter, message.exporter);
  EXPECT_EQ(read.device_uuid, message.device_uuid);
  EXPECT_EQ(read.nonce, message.nonce);
  EXPECT_EQ(read.slot, message.slot);
  EXPECT_EQ(read.generation, message.generation);
  EXPECT_EQ(read.extent_id, message.extent_id);
  EXPECT_EQ(read.extent_bytes, message.extent_bytes);
  EXPECT_EQ(read.segment.bytes, message.segment.bytes);
  EXPECT_EQ(read.offset, message.offset);
  EXPECT_EQ(read.bytes, message.bytes);
  ASSERT_TRUE(read.event.has_value());
  EXPECT_EQ(read.event->bytes, message.event->bytes);
  message.event.reset();
  EXPECT_FALSE(decode(encode(message)).event.has_value());
}

TEST(IpcMessageTest, EqualMessagesHaveEqualBytes) {
  EXPECT_EQ(encode(example()), encode(example()));
}

TEST(IpcMessageTest, RefusesDamagedBytes) {
  const IpcHandle good = encode(example());
  expect_refused({}, "0 bytes instead of");
  IpcHandle bad = good;
  bad.bytes.pop_back();
  expect_refused(bad, "");
  bad = good;
  bad.bytes[0] = std::byte{'X'};
  expect_refused(bad, "bytes without its magic");
  for (std::size_t i = 8; i < good.bytes.size(); ++i) {
    bad = good;
    bad.bytes[i] ^= std::byte{64};
    expect_refused(bad, "damaged ones");
  }
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    IpcHandle noise;
    noise.bytes.resize(random() % 500);
    for (std::byte& byte : noise.bytes) byte = static_cast<std::byte>(random());
    expect_refused(noise, "");
  }
}

TEST(IpcMessageTest, RefusesOtherVersionsOfAnyLength) {
  IpcHandle other = encode(example());
  other.bytes[4] = std::byte{1};
  expect_refused(other, "version 1 instead of 2; both processes need the same gantry");
  other.bytes.resize(200);
  expect_refused(other, "version 1 instead of 2");
  other.bytes[4] = std::byte{3};
  expect_refused(other, "version 3 instead of 2");
}

TEST(IpcMessageTest, RefusesFieldsThatMakeNoSense) {
  IpcMessage overflow = example();
  overflow.offset = ~std::uint64_t{0};
  expect_refused(encode(overflow), "fields out of range");
  IpcMessage outside = example();
  outside.bytes = outside.extent_bytes - outside.offset + 1;
  expect_refused(encode(outside), "fields out of range");
  IpcMessage nothing = example();
  nothing.kind = IpcKind::empty;
  expect_refused(encode(nothing), "fields out of range");
  IpcMessage empty = example();
  empty.bytes = 0;
  expect_refused(encode(empty), "fields out of range");
  IpcMessage kind = example();
  kind.kind = static_cast<IpcKind>(3);
  expect_refused(encode(kind), "fields out of range");
}

}  // namespace
}  // namespace gantry::memory
