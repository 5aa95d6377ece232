// The registry of exported blocks: slots, references, limbo and importers, without connections.
#include "ipc/exporter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include <gantry/extend/unique_fd.hpp>
#include <gantry/memory/cpu_allocator.hpp>

#include "core/processes/process_stamp.hpp"
#include "ipc/lifetime.hpp"

namespace gantry::memory {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

// Blocks that are numbers, and what the exporter did with each.
class Source final : public ExportableAllocator {
 public:
  struct Made {
    int pins = 0;
    int frees_from_limbo = 0;
  };

  BlockExtent pin(const Block& block) override {
    if (fails) throw std::runtime_error("no extent");
    ++made(block).pins;
    BlockExtent extent;
    extent.extent_id = static_cast<std::uint64_t>(index_of(block)) + 1;
    extent.chunks = {{NativeChunk{7}, 4096}};
    extent.bytes = 4096;
    extent.offset = 512;
    return extent;
  }
  void unpin(const Block& block) noexcept override { --made(block).pins; }
  void free_from_limbo(Block& block) noexcept override { ++made(block).frees_from_limbo; }

  // A live block of `bytes` on a device.
  Block make(std::size_t bytes, int device = 0) {
    all_.emplace_back();
    return {.data = &all_.back(),
            .bytes = bytes,
            .device = Device::cuda(device),
            .allocator = &cpu_allocator(),
            .handle = &all_.back()};
  }
  [[nodiscard]] Made& made(const Block& block) { return *static_cast<Made*>(block.handle); }

  bool fails = false;

 private:
  [[nodiscard]] std::size_t index_of(const Block& block) {
    std::size_t index = 0;
    while (&all_[index] != block.handle) ++index;
    return index;
  }

  std::deque<Made> all_;
};

class IpcExporterTest : public ::testing::Test {
 protected:
  void TearDown() override {
    exporter_.verify();
    for (const auto& consumer : exporter_.consumers()) {
      for (std::uint32_t slot = 0; slot < 64; ++slot) consumer->references[slot] = 0;
    }
    for (const auto& guest : guests_) exporter_.disconnect(*guest);
    exporter_.sweep();
    EXPECT_THAT(exporter_.consumers(), IsEmpty());
    EXPECT_EQ(stats(0).exports + stats(2).exports, 0u);
    exporter_.verify();
  }

  std::shared_ptr<IpcConsumer> connect(const ProcessStamp& process = this_process()) {
    UniqueFd no_socket;
    return exporter_.add_consumer(no_socket, process);
  }
  // An importer that leaves with the test.
  std::shared_ptr<IpcConsumer> guest() {
    std::shared_ptr<IpcConsumer> made = connect();
    guests_.push_back(made);
    return made;
  }
  [[nodiscard]] IpcStats stats(int device) const {
    IpcStats stats;
    exporter_.add_to(stats, device);
    return stats;
  }
  [[nodiscard]] SlotState state(std::uint32_t slot) const {
    return SlotState::of(exporter_.slots()[slot].load());
  }

  IpcExporter& exporter_ = IpcExporter::instance();
  Source source_;

 private:
  std::vector<std::shared_ptr<IpcConsumer>> guests_;
};

TEST_F(IpcExporterTest, ABlockHasOneSlotHoweverOftenItIsExported) {
  std::vector<Block> blocks{source_.make(100), source_.make(200), source_.make(300, 2)};
  std::vector<std::uint32_t> slots;
  for (const Block& block : blocks) {
    const IpcExporter::Entry entry = exporter_.add(source_, block);
    slots.push_back(entry.slot);
    EXPECT_EQ(entry.extent_bytes, 4096u);
    EXPECT_EQ(entry.offset, 512u);
    EXPECT_TRUE(state(entry.slot).is_open);
    EXPECT_FALSE(state(entry.slot).in_limbo);
    for (int again = 0; again < 2; ++again) {
      const IpcExporter::Entry other = exporter_.add(source_, block);
      EXPECT_EQ(other.slot, entry.slot);
      EXPECT_EQ(other.generation, entry.generation);
      EXPECT_EQ(other.extent_id, entry.extent_id);
    }
    EXPECT_EQ(source_.made(block).pins, 1);
  }
  EXPECT_NE(slots[0], slots[1]);
  EXPECT_NE(slots[1], slots[2]);
  EXPECT_EQ(stats(0).exports, 2u);
  EXPECT_EQ(stats(1).exports, 0u);
  EXPECT_EQ(stats(2).exports, 1u);
  for (Block& block : blocks) EXPECT_FALSE(exporter_.defer_free(block));
}

TEST_F(IpcExporterTest, AFreeWithoutReferencesClosesTheSlotForItsGeneration) {
  Block first = source_.make(100);
  const IpcExporter::Entry before = exporter_.add(source_, first);
  EXPECT_THAT(exporter_.chunks(before.slot, before.generation), ::testing::Optional(SizeIs(1)));
  EXPECT_FALSE(exporter_.defer_free(first));
  EXPECT_EQ(source_.made(first).pins, 0);
  EXPECT_EQ(source_.made(first).frees_from_limbo, 0) << "the caller frees it";
  EXPECT_FALSE(state(before.slot).is_open);
  EXPECT_FALSE(exporter_.defer_free(first)) << "it is no export any more";
  Block second = source_.make(100);
  const IpcExporter::Entry after = exporter_.add(source_, second);
  EXPECT_EQ(after.slot, before.slot);
  EXPECT_GT(after.generation, before.generation);
  EXPECT_EQ(exporter_.chunks(before.slot, before.generation), std::nullopt);
  EXPECT_EQ(exporter_.add_local_reference(before.slot, before.generation), std::nullopt);
  EXPECT_EQ(exporter_.chunks(after.slot + 1000, after.generation), std::nullopt);
  EXPECT_FALSE(exporter_.defer_free(second));
}

TEST_F(IpcExporterTest, EveryReferenceKeepsABlockInLimbo) {
  const auto first = guest();
  static_cast<void>(guest());
  const auto third = guest();
  Block block = source_.make(100);
  const std::uint32_t slot = exporter_.add(source_, block).slot;
  const std::uint64_t generation = state(slot).generation;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(exporter_.add_local_reference(slot, generation));
  }
  first->references[slot].fetch_add(2);
  third->references[slot].fetch_add(1);
  EXPECT_TRUE(exporter_.defer_free(block));
  EXPECT_TRUE(exporter_.defer_free(block)) << "a second free is ignored";
  const auto expect_limbo = [&] {
    exporter_.verify();
    EXPECT_EQ(exporter_.sweep(), 0u);
    EXPECT_TRUE(state(slot).is_open);
    EXPECT_TRUE(state(slot).in_limbo);
    EXPECT_EQ(source_.made(block).pins, 1);
  };
  expect_limbo();
  exporter_.release_local_reference(slot);
  expect_limbo();
  first->references[slot].fetch_sub(2);
  expect_limbo();
  exporter_.release_local_reference(slot);
  expect_limbo();
  third->references[slot].fetch_sub(1);
  EXPECT_EQ(source_.made(block).frees_from_limbo, 0);
  EXPECT_EQ(exporter_.sweep(), 100u);
  EXPECT_EQ(source_.made(block).frees_from_limbo, 1);
  EXPECT_EQ(source_.made(block).pins, 0);
  EXPECT_FALSE(state(slot).is_open);
}

TEST_F(IpcExporterTest, ASweepOfASlotFreesThatBlockOnly) {
  const auto importer = guest();
  std::vector<Block> blocks{source_.make(100), source_.make(200), source_.make(400)};
  std::vector<std::uint32_t> slots;
  for (Block& block : blocks) {
    slots.push_back(exporter_.add(source_, block).slot);
    importer->references[slots.back()].fetch_add(1);
    EXPECT_TRUE(exporter_.defer_free(block));
  }
  exporter_.sweep_slot(slots[1]);
  EXPECT_EQ(source_.made(blocks[1]).frees_from_limbo, 0) << "it is still referenced";
  for (const std::uint32_t slot : slots) importer->references[slot].fetch_sub(1);
  exporter_.sweep_slot(slots[1]);
  EXPECT_EQ(stats(0).limbo_bytes, 500u);
  EXPECT_EQ(source_.made(blocks[1]).frees_from_limbo, 1);
  exporter_.sweep_slot(slots[1]);
  EXPECT_EQ(source_.made(blocks[1]).frees_from_limbo, 1);
  EXPECT_EQ(exporter_.sweep(), 500u);
  for (const Block& block : blocks) EXPECT_EQ(source_.made(block).frees_from_limbo, 1);
}

TEST_F(IpcExporterTest, TheLastOwnReferenceFreesTheBlockAtOnce) {
  Block block = source_.make(100);
  const IpcExporter::Entry entry = exporter_.add(source_, block);
  const std::optional<Block> own = exporter_.add_local_reference(entry.slot, entry.generation);
  ASSERT_TRUE(own);
  EXPECT_EQ(own->handle, block.handle);
  exporter_.release_local_reference(entry.slot);
  EXPECT_EQ(source_.made(block).frees_from_limbo, 0) << "it is live";
  ASSERT_TRUE(exporter_.add_local_reference(entry.slot, entry.generation));
  EXPECT_TRUE(exporter_.defer_free(block));
  exporter_.release_local_reference(entry.slot);
  EXPECT_EQ(source_.made(block).frees_from_limbo, 1);
}

TEST_F(IpcExporterTest, AnImporterThatDisconnectsStaysWhileItHoldsReferences) {
  const auto first = connect();
  const auto holder = connect();
  const auto third = connect();
  Block block = source_.make(100);
  const std::uint32_t slot = exporter_.add(source_, block).slot;
  holder->references[slot].fetch_add(1);
  exporter_.disconnect(*holder);
  EXPECT_THAT(exporter_.consumers(), ElementsAre(first, holder, third));
  exporter_.disconnect(*first);
  EXPECT_THAT(exporter_.consumers(), ElementsAre(holder, third));
  EXPECT_TRUE(exporter_.defer_free(block));
  holder->references[slot].fetch_sub(1);
  EXPECT_EQ(exporter_.sweep(), 100u);
  EXPECT_THAT(exporter_.consumers(), ElementsAre(third));
  exporter_.disconnect(*third);
}

// A child that ends when its input does.
TEST_F(IpcExporterTest, AnImporterThatHasEndedHoldsNothing) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    char byte = 0;
    _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
  }
  close(ends[0]);
  const auto before = connect();
  const auto ended = connect(*find_process(child));
  const auto behind = connect();
  Block block = source_.make(100, 2);
  Block live = source_.make(200, 2);
  for (const Block& exported : {block, live}) {
    ended->references[exporter_.add(source_, exported).slot].fetch_add(1);
  }
  EXPECT_TRUE(exporter_.defer_free(block));
  EXPECT_EQ(exporter_.sweep(), 0u);
  EXPECT_THAT(exporter_.limbo_by_consumer(2), ElementsAre(Pair(child, 100u)));
  EXPECT_THAT(exporter_.limbo_by_consumer(0), IsEmpty());
  close(ends[1]);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(exporter_.defer_free(live)) << "nobody has it";
  EXPECT_EQ(exporter_.sweep(), 100u);
  EXPECT_THAT(exporter_.consumers(), ElementsAre(before, behind));
  for (const auto& consumer : {before, behind}) exporter_.disconnect(*consumer);
}

TEST_F(IpcExporterTest, AnExportThatFailsLeavesNothing) {
  Block block = source_.make(100);
  source_.fails = true;
  EXPECT_THROW(static_cast<void>(exporter_.add(source_, block)), std::runtime_error);
  EXPECT_EQ(stats(0).exports, 0u);
  EXPECT_FALSE(exporter_.defer_free(block));
  source_.fails = false;
  static_cast<void>(exporter_.add(source_, block));
  source_.fails = true;
  EXPECT_THROW(static_cast<void>(exporter_.add(source_, block)), std::runtime_error);
  EXPECT_EQ(stats(0).exports, 1u);
  EXPECT_FALSE(exporter_.defer_free(block));
  EXPECT_EQ(source_.made(block).pins, 0);
}

}  // namespace
}  // namespace gantry::memory
