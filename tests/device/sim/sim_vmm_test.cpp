#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "tests/device/sim/sim_machine.hpp"

namespace gantry::testing {
namespace {

class SimVmmTest : public SimMachineTest {
 protected:
  static constexpr std::size_t kGrain = sim::AddressSpace::kGranularity;

  void give_access(void* address, std::size_t bytes, int device) {
    driver_.set_access(address, bytes, std::array{device});
  }

  NativeStream stream_ = driver_.create_stream(0, 0);
};

TEST_F(SimVmmTest, MapsChunksSideBySide) {
  EXPECT_EQ(driver_.chunk_granularity(0), kGrain);
  auto* base = static_cast<char*>(driver_.reserve_address(8 * kGrain, 4 * kGrain));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(base) % (4 * kGrain), 0u);
  const NativeChunk a = driver_.create_chunk(0, kGrain);
  const NativeChunk b = driver_.create_chunk(0, 2 * kGrain);
  driver_.map_chunk(base, kGrain, a);
  driver_.map_chunk(base + kGrain, 2 * kGrain, b);
  expect_cuda_error(1, "access", [&] { driver_.copy(base, "abc", 3, stream_); });
  expect_cuda_error(700, "gives cuda:0 no access", [&] { driver_.fill(base, 1, kGrain, stream_); });
  give_access(base, 3 * kGrain, 0);
  driver_.fill(base, 'z', 3 * kGrain, stream_);
  EXPECT_EQ(read(base + kGrain - 2, 4, stream_), "zzzz");
  EXPECT_EQ(driver_.pointer_info(base + 3 * kGrain - 1).device, 0);
  EXPECT_EQ(driver_.pointer_info(base + 3 * kGrain).kind, PointerKind::unregistered);
  expect_cuda_error(700, "nothing is mapped",
                    [&] { driver_.fill(base, 0, 3 * kGrain + 1, stream_); });
  driver_.synchronize_stream(stream_);
  driver_.unmap(base, 3 * kGrain);
  expect_cuda_error(1, "nothing is mapped", [&] { driver_.copy(base, "abc", 3, stream_); });
  // The content belongs to the chunk, not to the address.
  driver_.map_chunk(base + 4 * kGrain, 2 * kGrain, b);
  give_access(base + 4 * kGrain, 2 * kGrain, 0);
  EXPECT_EQ(read(base + 4 * kGrain, 2, stream_), "zz");
  driver_.unmap(base + 4 * kGrain, 2 * kGrain);
  driver_.release_chunk(a);
  driver_.release_chunk(b);
  driver_.free_address(base, 8 * kGrain);
}

TEST_F(SimVmmTest, MemoryIsFreedWhenChunkAndMappingsAreGone) {
  const std::size_t before = driver_.memory_info(1).free;
  void* base = driver_.reserve_address(kGrain, 0);
  const NativeChunk chunk = driver_.create_chunk(1, kGrain);
  EXPECT_EQ(driver_.memory_info(1).free, before - kGrain);
  driver_.map_chunk(base, kGrain, chunk);
  driver_.release_chunk(chunk);
  EXPECT_EQ(driver_.memory_info(1).free, before - kGrain);
  expect_cuda_error(1, "there is no such chunk", [&] { driver_.release_chunk(chunk); });
  expect_cuda_error(1, "chunks mapped", [&] { driver_.free_address(base, kGrain); });
  driver_.unmap(base, kGrain);
  EXPECT_EQ(driver_.memory_info(1).free, before);
  driver_.free_address(base, kGrain);
  expect_cuda_error(1, "freed before", [&] { driver_.free_address(base, kGrain); });
}

TEST_F(SimVmmTest, AccessIsPerDevice) {
  void* base = driver_.reserve_address(kGrain, 0);
  const NativeChunk chunk = driver_.create_chunk(0, kGrain);
  driver_.map_chunk(base, kGrain, chunk);
  give_access(base, kGrain, 0);
  expect_cuda_error(700, "gives cuda:1 no access",
                    [&] { sim::check_device_access(1, base, kGrain); });
  driver_.peers().allow(2, 0, false);
  expect_cuda_error(217, "cuda:0's", [&] { give_access(base, kGrain, 2); });
  expect_cuda_error(101, "there is no cuda:9", [&] { give_access(base, kGrain, 9); });
  give_access(base, kGrain, 1);
  EXPECT_NO_THROW(sim::check_device_access(1, base, kGrain));
  EXPECT_NO_THROW(sim::check_device_access(0, base, kGrain));
  driver_.unmap(base, kGrain);
  driver_.release_chunk(chunk);
  driver_.free_address(base, kGrain);
}

TEST_F(SimVmmTest, RefusesWhatTheHardwareRefuses) {
  auto* base = static_cast<char*>(driver_.reserve_address(4 * kGrain, 0));
  const NativeChunk chunk = driver_.create_chunk(0, 2 * kGrain);
  const NativeChunk other = driver_.create_chunk(0, kGrain);
  expect_cuda_error(1, "expected a multiple", [&] { (void)driver_.create_chunk(0, kGrain + 1); });
  expect_cuda_error(1, "expected a multiple",
                    [&] { (void)driver_.reserve_address(kGrain - 1, 0); });
  expect_cuda_error(1, "power of two", [&] { (void)driver_.reserve_address(kGrain, 3 * kGrain); });
  expect_cuda_error(1, "not inside one reservation",
                    [&] { driver_.map_chunk(base + 3 * kGrain, 2 * kGrain, chunk); });
  expect_cuda_error(1, "not inside one reservation",
                    [&] { driver_.map_chunk(base + 4096, 2 * kGrain, chunk); });
  expect_cuda_error(1, "expected the chunk's", [&] { driver_.map_chunk(base, kGrain, chunk); });
  driver_.map_chunk(base + kGrain, 2 * kGrain, chunk);
  expect_cuda_error(1, "mapped there already",
                    [&] { driver_.map_chunk(base + 2 * kGrain, kGrain, other); });
  expect_cuda_error(1, "mapped there already", [&] { driver_.map_chunk(base, 2 * kGrain, chunk); });
  expect_cuda_error(1, "whole mappings", [&] { driver_.unmap(base + kGrain, kGrain); });
  expect_cuda_error(1, "whole mappings", [&] { driver_.unmap(base, 3 * kGrain); });
  expect_cuda_error(1, "whole mappings", [&] { give_access(base, kGrain, 0); });
  driver_.unmap(base + kGrain, 2 * kGrain);
  driver_.release_chunk(chunk);
  driver_.release_chunk(other);
  driver_.free_address(base, 4 * kGrain);
}

TEST_F(SimVmmTest, ChunksThatTheirOwnerCanShortenAreRefused) {
  const UniqueFd file(memfd_create("sim-vmm-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(file.get(), kGrain), 0);
  expect_cuda_error(1, "its owner can shorten",
                    [&] { (void)driver_.import_chunk(0, file.get(), kGrain); });
  ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  driver_.release_chunk(driver_.import_chunk(0, file.get(), kGrain));
  // Exported chunks have the seal.
  const NativeChunk chunk = driver_.create_chunk(0, kGrain);
  const UniqueFd exported = driver_.export_chunk(chunk);
  EXPECT_NE(ftruncate(exported.get(), 0), 0);
  driver_.release_chunk(chunk);
}

TEST_F(SimVmmTest, ExportedChunksAreTheSameMemory) {
  const NativeChunk chunk = driver_.create_chunk(0, kGrain);
  UniqueFd descriptor = driver_.export_chunk(chunk);
  ASSERT_TRUE(descriptor);
  EXPECT_NE(::fcntl(descriptor.get(), F_GETFD) & FD_CLOEXEC, 0);
  expect_cuda_error(1, "names no chunk of this size",
                    [&] { (void)driver_.import_chunk(1, descriptor.get(), 2 * kGrain); });
  expect_cuda_error(1, "names no chunk of this size",
                    [&] { (void)driver_.import_chunk(1, -1, kGrain); });
  const std::size_t free_before = driver_.memory_info(1).free;
  const NativeChunk imported = driver_.import_chunk(1, descriptor.get(), kGrain);
  EXPECT_EQ(driver_.memory_info(1).free, free_before);
  descriptor.reset();
  auto* base = static_cast<char*>(driver_.reserve_address(2 * kGrain, 0));
  driver_.map_chunk(base, kGrain, chunk);
  driver_.map_chunk(base + kGrain, kGrain, imported);
  give_access(base, 2 * kGrain, 0);
  driver_.fill(base, 'q', 8, stream_);
  EXPECT_EQ(read(base + kGrain, 8, stream_), "qqqqqqqq");
  driver_.unmap(base, 2 * kGrain);
  driver_.release_chunk(chunk);
  driver_.release_chunk(imported);
  driver_.free_address(base, 2 * kGrain);
}

}  // namespace
}  // namespace gantry::testing
