// How long shared memory lives: freed, dropped, or left behind by a process that ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include <gantry/device/properties.hpp>
#include <gantry/memory/ipc.hpp>

#include "tests/memory/heap_fixture.hpp"
#include "tests/memory/ipc_text.hpp"
#include "tests/memory/ipc_worker_process.hpp"
#include "tests/memory/vmm_source.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::from_text;
using gantry::testing::IpcWorker;
using gantry::testing::StreamHold;
using gantry::testing::to_text;
using gantry::testing::VmmSource;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr std::size_t kBytes = 300000;

// The argument: where the exporter's memory comes from, see ipc_worker.
class IpcLifetimeTest : public gantry::testing::HeapTest,
                        public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    HeapTest::SetUp();
  }
  [[nodiscard]] static int last_device() { return device_count() - 1; }
  // One block is in limbo, and nothing else is held.
  static void expect_one_in_limbo(const std::string& answer) {
    const auto numbers = IpcWorker::words(answer);
    ASSERT_EQ(numbers.size(), 2u) << answer;
    EXPECT_EQ(numbers[0], std::to_string(kBytes));
    EXPECT_GE(std::stoul(numbers[1]), kBytes);
    EXPECT_LT(std::stoul(numbers[1]), 2 * kBytes);
  }
};

INSTANTIATE_TEST_SUITE_P(Memory, IpcLifetimeTest, ::testing::Values("heap", "chunks"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(IpcLifetimeTest, FreedBlocksWaitForTheirImporters) {
  IpcWorker producer(GetParam(), 0);
  IpcWorker consumer(GetParam(), last_device());
  const auto handles = producer.export_blocks(2, kBytes, 40);
  ASSERT_EQ(handles.size(), 2u);
  EXPECT_EQ(consumer.ask("import " + handles[0]), "40 ");
  EXPECT_EQ(producer.ask("free"), std::to_string(kBytes)) << "one of two is imported";
  expect_one_in_limbo(producer.ask("collect"));
  EXPECT_EQ(producer.ask("limbo " + std::to_string(consumer.pid())), std::to_string(kBytes));
  EXPECT_EQ(consumer.ask("import " + handles[1]), "freed");
  EXPECT_EQ(consumer.ask("import " + handles[0]), "40 ") << "it is still there";
  EXPECT_EQ(consumer.ask("drop"), "0 0 0");
  EXPECT_EQ(producer.ask("collect"), "0 0");
  EXPECT_EQ(consumer.ask("import " + handles[0]), "freed");
}

TEST_P(IpcLifetimeTest, TheLastOfSeveralImportersCounts) {
  IpcWorker producer(GetParam(), 0);
  IpcWorker first(GetParam(), 0);
  IpcWorker second(GetParam(), last_device());
  const auto handles = producer.export_blocks(1, kBytes, 7);
  EXPECT_EQ(first.ask("import " + handles[0] + ' ' + handles[0]), "7 7 ");
  EXPECT_EQ(second.ask("import " + handles[0]), "7 ");
  EXPECT_EQ(producer.ask("free"), std::to_string(kBytes));
  EXPECT_EQ(first.ask("drop"), "0 0 0");
  expect_one_in_limbo(producer.ask("collect"));
  EXPECT_EQ(second.ask("drop"), "0 0 0");
  EXPECT_EQ(producer.ask("collect"), "0 0");
}

TEST_P(IpcLifetimeTest, DeadImportersHoldNothing) {
  IpcWorker producer(GetParam(), 0);
  IpcWorker consumer(GetParam(), last_device());
  const auto handles = producer.export_blocks(3, kBytes, 7);
  EXPECT_EQ(consumer.ask(IpcWorker::import_command(handles)), "7 8 9 ");
  EXPECT_EQ(producer.ask("free"), std::to_string(3 * kBytes));
  consumer.kill(SIGKILL);
  EXPECT_EQ(consumer.wait(), -SIGKILL);
  EXPECT_EQ(producer.ask("collect"), "0 0");
}

// The child keeps the dead process's sockets open, so their end tells nothing.
TEST_P(IpcLifetimeTest, ChildrenOfTheDeadDoNotHideIt) {
  IpcWorker producer(GetParam(), 0);
  IpcWorker consumer(GetParam(), last_device());
  IpcWorker heir(GetParam(), last_device());
  const auto handles = producer.export_blocks(1, kBytes, 7);
  EXPECT_EQ(consumer.ask("import " + handles[0]), "7 ");
  EXPECT_EQ(heir.ask("import " + handles[0]), "7 ");
  const int orphan = std::stoi(consumer.ask("fork"));
  EXPECT_EQ(producer.ask("free"), std::to_string(kBytes));
  EXPECT_EQ(heir.ask("drop"), "0 0 0");
  consumer.kill(SIGKILL);
  EXPECT_EQ(consumer.wait(), -SIGKILL);
  EXPECT_EQ(producer.ask("collect"), "0 0");
  EXPECT_EQ(::kill(orphan, SIGKILL), 0);

  const auto more = producer.export_blocks(1, kBytes, 8);
  EXPECT_EQ(heir.ask("import " + more[0]), "8 ");
  const int second = std::stoi(producer.ask("fork"));
  producer.kill(SIGKILL);
  EXPECT_EQ(producer.wait(), -SIGKILL);
  EXPECT_EQ(heir.ask("import " + more[0]), "lost");
  EXPECT_EQ(::kill(second, SIGKILL), 0);
  EXPECT_EQ(heir.ask("drop"), "0 0 0");
}

TEST_P(IpcLifetimeTest, ImportersMayExitWithImports) {
  IpcWorker producer(GetParam(), 0);
  IpcWorker consumer(GetParam(), last_device());
  const auto handles = producer.export_blocks(1, kBytes, 7);
  EXPECT_EQ(consumer.ask("import " + handles[0]), "7 ");
  EXPECT_EQ(producer.ask("free"), std::to_string(kBytes));
  consumer.write_line("exit");
  EXPECT_EQ(consumer.wait(), 0);
  EXPECT_EQ(producer.ask("collect"), "0 0");
  producer.write_line("exit");
  EXPECT_EQ(producer.wait(), 0);
}

TEST_P(IpcLifetimeTest, ImportersOutliveTheExporter) {
  IpcWorker producer(GetParam(), 0);
  IpcWorker consumer(GetParam(), last_device());
  const auto handles = producer.export_blocks(1, kBytes, 7);
  EXPECT_EQ(consumer.ask("import " + handles[0]), "7 ");
  producer.kill(SIGKILL);
  EXPECT_EQ(producer.wait(), -SIGKILL);
  EXPECT_EQ(consumer.ask("import " + handles[0]), "lost");
  EXPECT_EQ(consumer.ask("drop"), "0 0 0");
}

TEST_P(IpcLifetimeTest, NothingIsKeptForNobody) {
  IpcWorker producer(GetParam(), 0);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(producer.export_blocks(3, kBytes, i).size(), 3u);
    ASSERT_EQ(producer.ask("free"), "0");
    ASSERT_EQ(producer.ask("collect"), "0 0");
  }
}

TEST_P(IpcLifetimeTest, EachImportsFromTheOther) {
  IpcWorker left(GetParam(), 0);
  IpcWorker right(GetParam(), last_device());
  const auto lefts = left.export_blocks(1, kBytes, 1);
  const auto rights = right.export_blocks(1, kBytes, 2);
  EXPECT_EQ(left.ask("import " + rights[0]), "2 ");
  EXPECT_EQ(right.ask("import " + lefts[0]), "1 ");
  EXPECT_EQ(left.ask("free"), std::to_string(kBytes));
  EXPECT_EQ(right.ask("free"), std::to_string(kBytes));
  EXPECT_EQ(left.ask("drop"), "0 0 0");
  EXPECT_EQ(right.ask("drop"), "0 0 0");
  EXPECT_EQ(left.ask("collect"), "0 0");
  EXPECT_EQ(right.ask("collect"), "0 0");
}

TEST_P(IpcLifetimeTest, GarbageGetsAnAnswer) {
  IpcWorker consumer(GetParam(), 0);
  EXPECT_THAT(consumer.ask("import 00112233"),
              StartsWith("error: import_ipc: the bytes of an IpcHandle were expected"));
}

// More chunks than the descriptors of one packet.
TEST(IpcChunksTest, LongExtentsTravelInSeveralPackets) {
  if (platform() != Platform::simulated &&
      device_properties(Device::cuda(0)).total_memory >> 32 == 0)
    GTEST_SKIP() << "needs 2 GiB of device memory";
  constexpr std::size_t kChunks = 300;
  VmmSource source(0, kChunks);
  const std::size_t bytes = kChunks * source.chunk_bytes();
  Block block = source.allocate(bytes, Stream::current());
  const Stream stream = Stream::current();
  auto* data = static_cast<std::byte*>(block.data);
  driver().fill(data, 1, 1 << 20, stream.native());
  const IpcHandle handle = export_ipc(block);
  IpcWorker consumer("heap", 0);
  // The consumer compares all bytes with the first, so most of a single value is enough of a test
  // only if the last chunk is another one's.
  driver().fill(data, 9, bytes, stream.native());
  driver().fill(data + bytes - 1, 8, 1, stream.native());
  stream.synchronize();
  EXPECT_EQ(consumer.ask("import " + to_text(handle)), "torn");
  driver().fill(data + bytes - 1, 9, 1, stream.native());
  stream.synchronize();
  EXPECT_EQ(consumer.ask("import " + to_text(handle)), "9 ");
  source.deallocate(block);
  EXPECT_EQ(ipc_stats().limbo_bytes, bytes);
  EXPECT_EQ(consumer.ask("drop"), "0 0 0");
  ipc_collect();
  EXPECT_EQ(ipc_stats().limbo_bytes, 0u);
  EXPECT_EQ(source.live_bytes(), 0u);
  EXPECT_EQ(source.pins(), 0);
}

}  // namespace
}  // namespace gantry::memory
