// The lifetime of shared memory: freed, dropped, or left by a process that ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>
#include <vector>

#include <gantry/device/properties.hpp>
#include <gantry/ipc/ipc.hpp>

#include "tests/ipc/ipc_text.hpp"
#include "tests/ipc/ipc_worker_process.hpp"
#include "tests/ipc/vmm_source.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::eventually;
using gantry::testing::imported;
using gantry::testing::in_limbo;
using gantry::testing::IpcWorker;
using gantry::testing::nothing_held;
using gantry::testing::StreamHold;
using gantry::testing::to_text;
using gantry::testing::VmmSource;
using gantry::testing::WorkerReply;
using ::testing::HasSubstr;

constexpr std::size_t kBytes = 300000;

// The parameter: the kind of memory that ipc_worker exports.
class IpcLifetimeTest : public gantry::testing::HeapTest,
                        public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    HeapTest::SetUp();
  }
  [[nodiscard]] static int last_device() { return device_count() - 1; }
  // Expects one block in limbo, and no other memory. Blocks are rounded up.
  static void expect_one_in_limbo(const WorkerReply& reply) {
    EXPECT_EQ(reply.limbo_bytes, kBytes) << reply;
    EXPECT_GE(reply.live_bytes, kBytes) << reply;
    EXPECT_LT(reply.live_bytes, 2 * kBytes) << reply;
  }
};

INSTANTIATE_TEST_SUITE_P(Memory, IpcLifetimeTest, ::testing::Values("heap", "chunks"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(IpcLifetimeTest, FreedBlocksWaitForTheirImporters) {
  IpcWorker producer(GetParam(), 0);
  IpcWorker consumer(GetParam(), last_device());
  const auto handles = producer.export_blocks(2, kBytes, 40);
  ASSERT_EQ(handles.size(), 2u);
  EXPECT_EQ(consumer.import_blocks({handles[0]}), imported({40}));
  EXPECT_EQ(producer.free_blocks(), in_limbo(kBytes)) << "one of two is imported";
  expect_one_in_limbo(producer.collect());
  EXPECT_EQ(producer.request("limbo " + std::to_string(consumer.pid())), in_limbo(kBytes));
  EXPECT_EQ(consumer.import_blocks({handles[1]}).status, "freed");
  EXPECT_EQ(consumer.import_blocks({handles[0]}), imported({40}))
      << "a block in limbo can be imported";
  EXPECT_EQ(consumer.drop_imports(), nothing_held());
  EXPECT_EQ(producer.collect(), nothing_held());
  EXPECT_EQ(consumer.import_blocks({handles[0]}).status, "freed");
}

TEST_P(IpcLifetimeTest, TheLastOfSeveralImportersCounts) {
  IpcWorker producer(GetParam(), 0);
  IpcWorker first(GetParam(), 0);
  IpcWorker second(GetParam(), last_device());
  const auto handles = producer.export_blocks(1, kBytes, 7);
  EXPECT_EQ(first.import_blocks({handles[0], handles[0]}), imported({7, 7}));
  EXPECT_EQ(second.import_blocks({handles[0]}), imported({7}));
  EXPECT_EQ(producer.free_blocks(), in_limbo(kBytes));
  EXPECT_EQ(first.drop_imports(), nothing_held());
  expect_one_in_limbo(producer.collect());
  EXPECT_EQ(second.drop_imports(), nothing_held());
  EXPECT_EQ(producer.collect(), nothing_held());
}

TEST_P(IpcLifetimeTest, DeadImportersHoldNoReferences) {
  IpcWorker producer(GetParam(), 0);
  IpcWorker consumer(GetParam(), last_device());
  const auto handles = producer.export_blocks(3, kBytes, 7);
  EXPECT_EQ(consumer.import_blocks(handles), imported({7, 8, 9}));
  EXPECT_EQ(producer.free_blocks(), in_limbo(3 * kBytes));
  consumer.kill(SIGKILL);
  EXPECT_EQ(consumer.wait(), -SIGKILL);
  EXPECT_EQ(producer.collect(), nothing_held());
}

// A child keeps the sockets of its dead parent open. They do not signal the parent's end.
TEST_P(IpcLifetimeTest, ChildrenDoNotHideTheEndOfTheirParent) {
  IpcWorker producer(GetParam(), 0);
  IpcWorker consumer(GetParam(), last_device());
  IpcWorker survivor(GetParam(), last_device());
  const auto handles = producer.export_blocks(1, kBytes, 7);
  EXPECT_EQ(consumer.import_blocks({handles[0]}), imported({7}));
  EXPECT_EQ(survivor.import_blocks({handles[0]}), imported({7}));
  const int orphan = consumer.request("fork").child;
  EXPECT_EQ(producer.free_blocks(), in_limbo(kBytes));
  EXPECT_EQ(survivor.drop_imports(), nothing_held());
  consumer.kill(SIGKILL);
  EXPECT_EQ(consumer.wait(), -SIGKILL);
  EXPECT_EQ(producer.collect(), nothing_held());
  EXPECT_EQ(::kill(orphan, SIGKILL), 0);

  const auto more = producer.export_blocks(1, kBytes, 8);
  EXPECT_EQ(survivor.import_blocks({more[0]}), imported({8}));
  const int second = producer.request("fork").child;
  producer.kill(SIGKILL);
  EXPECT_EQ(producer.wait(), -SIGKILL);
  EXPECT_EQ(survivor.import_blocks({more[0]}).status, "lost");
  EXPECT_EQ(::kill(second, SIGKILL), 0);
  EXPECT_EQ(survivor.drop_imports(), nothing_held());
}

// The importer tells of its release: this process, which exports, asks for nothing.
TEST_P(IpcLifetimeTest, TheLastReleaseFreesABlockByItself) {
  IpcWorker consumer(GetParam(), 0);
  Buffer buffer = allocate(Stream::current(), kBytes);
  EXPECT_EQ(consumer.import_blocks({to_text(export_ipc(buffer.block()))}).status, "ok");
  buffer.reset();
  EXPECT_EQ(ipc_stats().limbo_blocks, 1u);
  EXPECT_EQ(consumer.drop_imports(), nothing_held());
  EXPECT_TRUE(eventually([] { return ipc_stats().limbo_blocks == 0; }));
}

// The importer's child keeps its sockets, so that its end alone tells of it.
TEST_P(IpcLifetimeTest, TheEndOfTheLastImporterFreesABlockByItself) {
  IpcWorker consumer(GetParam(), 0);
  Buffer buffer = allocate(Stream::current(), kBytes);
  EXPECT_EQ(consumer.import_blocks({to_text(export_ipc(buffer.block()))}).status, "ok");
  const int orphan = consumer.request("fork").child;
  buffer.reset();
  EXPECT_EQ(ipc_stats().limbo_blocks, 1u);
  consumer.kill(SIGKILL);
  EXPECT_EQ(consumer.wait(), -SIGKILL);
  // Less than the child lives.
  EXPECT_TRUE(eventually([] { return ipc_stats().limbo_blocks == 0; }, std::chrono::seconds(20)));
  EXPECT_EQ(::kill(orphan, SIGKILL), 0);
}

TEST_P(IpcLifetimeTest, ImportersMayExitWithImports) {
  IpcWorker producer(GetParam(), 0);
  IpcWorker consumer(GetParam(), last_device());
  const auto handles = producer.export_blocks(1, kBytes, 7);
  EXPECT_EQ(consumer.import_blocks({handles[0]}), imported({7}));
  EXPECT_EQ(producer.free_blocks(), in_limbo(kBytes));
  consumer.write_line("exit");
  EXPECT_EQ(consumer.wait(), 0);
  EXPECT_EQ(producer.collect(), nothing_held());
  producer.write_line("exit");
  EXPECT_EQ(producer.wait(), 0);
}

TEST_P(IpcLifetimeTest, ImportersOutliveTheExporter) {
  IpcWorker producer(GetParam(), 0);
  IpcWorker consumer(GetParam(), last_device());
  const auto handles = producer.export_blocks(1, kBytes, 7);
  EXPECT_EQ(consumer.import_blocks({handles[0]}), imported({7}));
  producer.kill(SIGKILL);
  EXPECT_EQ(producer.wait(), -SIGKILL);
  EXPECT_EQ(consumer.import_blocks({handles[0]}).status, "lost");
  EXPECT_EQ(consumer.drop_imports(), nothing_held());
}

TEST_P(IpcLifetimeTest, BlocksWithoutImportsAreFreedAtOnce) {
  IpcWorker producer(GetParam(), 0);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(producer.export_blocks(3, kBytes, i).size(), 3u);
    ASSERT_EQ(producer.free_blocks(), nothing_held());
    ASSERT_EQ(producer.collect(), nothing_held());
  }
}

TEST_P(IpcLifetimeTest, EachImportsFromTheOther) {
  IpcWorker left(GetParam(), 0);
  IpcWorker right(GetParam(), last_device());
  const auto lefts = left.export_blocks(1, kBytes, 1);
  const auto rights = right.export_blocks(1, kBytes, 2);
  EXPECT_EQ(left.import_blocks({rights[0]}), imported({2}));
  EXPECT_EQ(right.import_blocks({lefts[0]}), imported({1}));
  EXPECT_EQ(left.free_blocks(), in_limbo(kBytes));
  EXPECT_EQ(right.free_blocks(), in_limbo(kBytes));
  EXPECT_EQ(left.drop_imports(), nothing_held());
  EXPECT_EQ(right.drop_imports(), nothing_held());
  EXPECT_EQ(left.collect(), nothing_held());
  EXPECT_EQ(right.collect(), nothing_held());
}

TEST_P(IpcLifetimeTest, MalformedHandlesAreErrors) {
  IpcWorker consumer(GetParam(), 0);
  const WorkerReply reply = consumer.import_blocks({"00112233"});
  EXPECT_EQ(reply.status, "error");
  EXPECT_THAT(reply.error, HasSubstr("import_ipc: expected the bytes of an IpcHandle"));
}

// More chunks than one packet has descriptors.
TEST(IpcChunksTest, LongExtentsTravelInSeveralPackets) {
  if (platform() != Platform::simulated &&
      device_properties(Device::cuda(0)).total_memory >> 32 == 0)
    GTEST_SKIP() << "needs 2 GiB of device memory";
  constexpr std::size_t kChunks = 300;
  VmmSource source(0, kChunks);
  const std::size_t bytes = kChunks * source.chunk_bytes();
  Block block = source.allocate(Stream::current(), bytes);
  const Stream stream = Stream::current();
  auto* data = static_cast<std::byte*>(block.data);
  driver().fill(data, 1, 1 << 20, stream.native());
  const IpcHandle handle = export_ipc(block);
  IpcWorker consumer("heap", 0);
  // The consumer compares all bytes with the first. A last byte that differs proves that the last
  // chunk is mapped in its place.
  driver().fill(data, 9, bytes, stream.native());
  driver().fill(data + bytes - 1, 8, 1, stream.native());
  stream.synchronize();
  EXPECT_EQ(consumer.import_blocks({to_text(handle)}).status, "torn");
  driver().fill(data + bytes - 1, 9, 1, stream.native());
  stream.synchronize();
  EXPECT_EQ(consumer.import_blocks({to_text(handle)}), imported({9}));
  source.deallocate(block);
  EXPECT_EQ(ipc_stats().limbo_bytes, bytes);
  EXPECT_EQ(consumer.drop_imports(), nothing_held());
  ipc_collect();
  EXPECT_EQ(ipc_stats().limbo_bytes, 0u);
  EXPECT_EQ(source.live_bytes(), 0u);
  EXPECT_EQ(source.pins(), 0);
}

}  // namespace
}  // namespace gantry::memory
