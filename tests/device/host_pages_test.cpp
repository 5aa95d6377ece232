#include "device/host_pages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

using gantry::testing::FaultDriver;

bool is_pinned(const void* data) { return driver().pointer_info(data).kind == PointerKind::pinned; }

class HostPagesTest : public gantry::testing::DeviceTest {};

constexpr HostPlacement kRegistered{.source = HostSource::registered, .node = 0};

TEST_F(HostPagesTest, RegisteredPagesArePinned) {
  // More than one part, so that several threads fault them in.
  const HostPages pages = allocate_host_pages((40u << 20) + 1, kRegistered);
  ASSERT_NE(pages.data, nullptr);
  EXPECT_EQ(pages.bytes, (40u << 20) + 4096);
  EXPECT_TRUE(is_pinned(pages.data));
  EXPECT_TRUE(is_pinned(pages.data + pages.bytes - 1));
  std::memset(pages.data, 5, pages.bytes);
  release_host_pages(pages);
  EXPECT_FALSE(is_pinned(pages.data));
}

TEST_F(HostPagesTest, DriverPagesArePinned) {
  const HostPages pages = allocate_host_pages(8192, {.source = HostSource::driver});
  ASSERT_NE(pages.data, nullptr);
  EXPECT_TRUE(is_pinned(pages.data));
  release_host_pages(pages);
  EXPECT_FALSE(is_pinned(pages.data));
}

TEST_F(HostPagesTest, OrdinaryMemoryIsNot) {
  const HostPages pages = allocate_host_pages(8192, {.source = HostSource::ordinary});
  ASSERT_NE(pages.data, nullptr);
  EXPECT_FALSE(is_pinned(pages.data));
  release_host_pages(pages);
}

TEST_F(HostPagesTest, ImpossibleSizesGiveNothing) {
  for (const HostSource source :
       {HostSource::ordinary, HostSource::driver, HostSource::registered}) {
    for (const std::size_t bytes : {std::size_t{1} << 60, ~std::size_t{0} & ~std::size_t{4095}}) {
      EXPECT_EQ(allocate_host_pages(bytes, {.source = source}).data, nullptr);
    }
  }
}

TEST_F(HostPagesTest, FailedRegistrationsLeaveNothingBehind) {
  FaultDriver driver;
  driver.fail_on("register_host", 1, gantry::testing::kOutOfMemory);
  EXPECT_EQ(allocate_host_pages(8192, kRegistered).data, nullptr);
  driver.fail_on("register_host", 1);
  EXPECT_THROW(static_cast<void>(allocate_host_pages(8192, kRegistered)), CudaError);
  const HostPages pages = allocate_host_pages(8192, kRegistered);
  driver.fail_on("unregister_host", 1);
  EXPECT_THROW(release_host_pages(pages), CudaError);
  EXPECT_TRUE(is_pinned(pages.data)) << "the pages went although the call failed";
  release_host_pages(pages);
}

TEST_F(HostPagesTest, AForkDoesNotMoveRegisteredPages) {
  const HostPages pages = allocate_host_pages(4096, kRegistered);
  ASSERT_NE(pages.data, nullptr);
  std::memset(pages.data, 1, 4096);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    pages.data[0] = std::byte{2};
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(pages.data[0], std::byte{2}) << "the child has pages of its own";
  release_host_pages(pages);
}

}  // namespace
}  // namespace gantry
