// A fixture for tests of imports from an exporting process.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gantry/ipc/ipc.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "tests/ipc/ipc_text.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/pipe_process.hpp"

namespace gantry::testing {

/// Size and content of the first block that memory_exporter exports.
inline constexpr std::size_t kExportedBytes = 100000;
inline constexpr std::uint8_t kExportedValue = 77;

/// A running memory_exporter. Its stream is held before the work that fills the first block.
class ExporterProcess : public PipeProcess {
 public:
  /// `kind`: "heap" or "chunks", the memory that it exports.
  explicit ExporterProcess(const char* kind)
      : PipeProcess({std::string(GANTRY_TEST_PROGRAM_DIR) + "/memory_exporter", kind}),
        handle(from_text(read_line())),
        neighbour(from_text(read_line())) {}

  const IpcHandle handle;     ///< the first block, kExportedBytes of kExportedValue
  const IpcHandle neighbour;  ///< another block in the same physical memory

  /// Lets the stream continue, and returns at once.
  void start_release() { write_line("release"); }
  /// Returns when the stream has completed after start_release().
  void await_release() { EXPECT_EQ(read_line(), "released"); }
  void release() {
    start_release();
    await_release();
  }
  /// Exports the first block again.
  [[nodiscard]] IpcHandle export_again() {
    write_line("export");
    return from_text(read_line());
  }
  /// The first byte of the first block, as the exporter reads it.
  [[nodiscard]] int first_byte() {
    write_line("check");
    return std::stoi(read_line());
  }
  /// Lets the exporter end; returns its exit code.
  [[nodiscard]] int quit() {
    write_line("quit");
    return wait();
  }
};

/// Checks after each test that nothing stays imported. The parameter: the kind of memory that
/// memory_exporter exports.
class ExporterTest : public HeapTest, public ::testing::WithParamInterface<const char*> {
 protected:
  using Block = memory::ImportedBlock;

  /// Reads through page-locked memory: the copy is asynchronous.
  static std::vector<std::uint8_t> read(const Block& block, const Stream& stream) {
    const memory::Buffer host = memory::pinned(block.bytes());
    driver().copy(host.data(), block.data(), block.bytes(), stream.native());
    stream.synchronize();
    const auto* bytes = static_cast<const std::uint8_t*>(host.data());
    return {bytes, bytes + block.bytes()};
  }
  /// Unmaps every dropped import.
  static void settle() {
    for (int i = 0; i < device_count(); ++i) driver().synchronize_device(i);
    memory::ipc_collect();
  }
  /// Drops `block` while `stream` is current, instead of stream 0, which waits for all others.
  /// Returns when `stream` has completed.
  static void drop(std::optional<Block>& block, const Stream& stream) {
    const StreamGuard guard(stream);
    block.reset();
    stream.synchronize();
  }
  static Block import_on(const Stream& stream, const IpcHandle& handle) {
    const StreamGuard guard(stream);
    return memory::import_ipc(handle, stream.device());
  }
  static std::uint64_t maps(const FaultDriver& driver) {
    return driver.calls("open_memory") + driver.calls("reserve_address");
  }
  static std::uint64_t unmaps(const FaultDriver& driver) {
    return driver.calls("close_memory") + driver.calls("free_address");
  }
  static void expect_nothing_imported() {
    for (int i = 0; i < device_count(); ++i) {
      const memory::IpcStats stats = memory::ipc_stats(Device::cuda(i));
      EXPECT_EQ(stats.imports, 0u);
      EXPECT_EQ(stats.mapped_bytes, 0u);
      EXPECT_EQ(stats.pending_releases, 0u);
    }
  }
  void TearDown() override {
    if (!IsSkipped()) {
      settle();
      expect_nothing_imported();
    }
    HeapTest::TearDown();
  }
};

}  // namespace gantry::testing
