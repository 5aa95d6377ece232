// Two real processes: the child is the program driver_ipc_child.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/device/driver/driver_fixture.hpp"
#include "tests/device/handle_text.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using testing::cuda_error_of;
using testing::DeviceBytes;
using testing::PinnedBytes;
using testing::TestEvent;
using testing::TestStream;

class DriverIpcTest : public testing::DriverTest {
 protected:
  static testing::Outcome run_child(std::vector<std::string> arguments) {
    static const std::string kProgram = GANTRY_TEST_PROGRAM_DIR "/driver_ipc_child";
    arguments.insert(arguments.begin(), kProgram);
    return testing::run_command({.argv = std::move(arguments)});
  }
};

TEST_F(DriverIpcTest, ChildReadsAndWritesMemoryAfterTheEvent) {
  constexpr std::size_t kBytes = 100000;
  const TestStream stream(0);
  const TestEvent ready(0, {.timing = false, .blocking = false, .interprocess = true});
  const DeviceBytes memory(0, kBytes);
  const PinnedBytes result(kBytes);
  driver().fill(memory.data(), 17, kBytes, stream);
  driver().record_event(ready, stream);
  const testing::Outcome outcome =
      run_child({"memory", "0", "17", "99", std::to_string(kBytes),
                 testing::to_text(driver().export_memory(memory.data())),
                 testing::to_text(driver().export_event(ready))});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  driver().copy(result.data(), memory.data(), kBytes, stream);
  driver().synchronize_stream(stream);
  EXPECT_EQ(result.vec(), std::vector<std::uint8_t>(kBytes, 99));
}

TEST_F(DriverIpcTest, ChildOpensMemoryFromAnotherDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!driver().can_access_peer(1, 0)) GTEST_SKIP() << "no peer access 1 -> 0";
  constexpr std::size_t kBytes = 5000;
  const TestStream stream(0);
  const TestEvent ready(1, {.timing = false, .blocking = false, .interprocess = true});
  const DeviceBytes memory(0, kBytes);
  const PinnedBytes result(kBytes);
  driver().fill(memory.data(), 1, kBytes, stream);
  driver().synchronize_stream(stream);
  const testing::Outcome outcome =
      run_child({"memory", "1", "1", "2", std::to_string(kBytes),
                 testing::to_text(driver().export_memory(memory.data())),
                 testing::to_text(driver().export_event(ready))});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  driver().copy(result.data(), memory.data(), kBytes, stream);
  driver().synchronize_stream(stream);
  EXPECT_EQ(result.vec(), std::vector<std::uint8_t>(kBytes, 2));
}

TEST_F(DriverIpcTest, ChildMapsAChunkFromADescriptor) {
  const TestStream stream(0);
  const std::size_t bytes = driver().chunk_granularity(0);
  const int device = 0;
  void* const base = driver().reserve_address(bytes, bytes);
  const NativeChunk chunk = driver().create_chunk(0, bytes);
  driver().map_chunk(base, bytes, chunk);
  driver().set_access(base, bytes, std::span(&device, 1));
  driver().fill(base, 40, bytes, stream);
  driver().synchronize_stream(stream);
  UniqueFd exported = driver().export_chunk(chunk);
  const int inherited = dup(exported.get());  // without close-on-exec
  const testing::Outcome outcome =
      run_child({"chunk", "0", "40", "41", std::to_string(bytes), std::to_string(inherited)});
  close(inherited);
  exported.reset();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  {
    const PinnedBytes result(bytes);
    driver().copy(result.data(), base, bytes, stream);
    driver().synchronize_stream(stream);
    EXPECT_EQ(result.vec(), std::vector<std::uint8_t>(bytes, 41));
  }
  driver().unmap(base, bytes);
  driver().release_chunk(chunk);
  driver().free_address(base, bytes);
}

TEST_F(DriverIpcTest, ExportedDescriptorIsClosedOnExec) {
  const std::size_t bytes = driver().chunk_granularity(0);
  const NativeChunk chunk = driver().create_chunk(0, bytes);
  const UniqueFd exported = driver().export_chunk(chunk);
  const testing::Outcome outcome =
      run_child({"chunk", "0", "0", "0", std::to_string(bytes), std::to_string(exported.get())});
  EXPECT_EQ(outcome.exit_code, 3) << "the child inherited the descriptor: " << outcome.describe();
  driver().release_chunk(chunk);
}

TEST_F(DriverIpcTest, RefusesWhatCannotBeShared) {
  int on_stack = 0;
  const TestEvent plain(0);
  EXPECT_NE(cuda_error_of([&] { (void)driver().export_memory(&on_stack); }), 0);
  EXPECT_NE(cuda_error_of([&] { (void)driver().export_event(plain); }), 0);
  EXPECT_NE(cuda_error_of([] { (void)driver().open_memory(0, NativeMemoryHandle{}); }), 0);
  EXPECT_NE(cuda_error_of([&] { driver().close_memory(&on_stack); }), 0);
}

}  // namespace
}  // namespace gantry
