#include "memory/arenas/chunk_store.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "tests/memory/heap_fixture.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;

constexpr std::size_t kNoLimit = ~std::size_t{0} / 2;

std::size_t bytes_of(const std::vector<Chunk>& chunks) {
  std::size_t sum = 0;
  for (const Chunk& chunk : chunks) sum += chunk.bytes;
  return sum;
}

class ChunkStoreTest : public gantry::testing::DeviceTest {
 protected:
  void TearDown() override {
    store.release_unmapped();
    EXPECT_EQ(store.held(), 0U);
    EXPECT_EQ(store.created(), store.released());
    DeviceTest::TearDown();
  }

  ChunkStore store{0};
};

TEST_F(ChunkStoreTest, TakesUnmappedChunksBeforeItMakesNewOnes) {
  std::vector<Chunk> first = store.acquire(3 * kFineChunkBytes, kNoLimit, false);
  EXPECT_EQ(first.size(), 3U);
  store.recycle(std::move(first));
  EXPECT_EQ(store.unmapped(), 3 * kFineChunkBytes);
  std::vector<Chunk> second = store.acquire(4 * kFineChunkBytes, kNoLimit, false);
  EXPECT_EQ(store.created(), 4);
  EXPECT_EQ(store.unmapped(), 0U);
  store.recycle(std::move(second));
}

TEST_F(ChunkStoreTest, NewChunksAreCoarseWhereTheyFit) {
  std::vector<Chunk> chunks = store.acquire(kCoarseChunkBytes + kFineChunkBytes, kNoLimit, true);
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[0].bytes, kCoarseChunkBytes);
  EXPECT_EQ(chunks[1].bytes, kFineChunkBytes);
  store.recycle(std::move(chunks));
}

TEST_F(ChunkStoreTest, ARequestBeyondTheLimitTakesNothing) {
  std::vector<Chunk> held = store.acquire(4 * kFineChunkBytes, kNoLimit, false);
  store.recycle({held.back()});
  held.pop_back();
  EXPECT_TRUE(store.acquire(3 * kFineChunkBytes, 5 * kFineChunkBytes, false).empty());
  EXPECT_EQ(store.unmapped(), kFineChunkBytes);
  std::vector<Chunk> rest = store.acquire(2 * kFineChunkBytes, 5 * kFineChunkBytes, false);
  EXPECT_EQ(bytes_of(rest), 2 * kFineChunkBytes);
  EXPECT_EQ(store.held(), 5 * kFineChunkBytes);
  store.recycle(std::move(rest));
  store.recycle(std::move(held));
}

// A coarse chunk serves no small request. It gives way to fine ones.
TEST_F(ChunkStoreTest, ChunksThatAreTooLargeAreReleasedForASmallRequest) {
  store.recycle(store.acquire(kCoarseChunkBytes, kNoLimit, true));
  std::vector<Chunk> small = store.acquire(kFineChunkBytes, kCoarseChunkBytes, false);
  EXPECT_EQ(bytes_of(small), kFineChunkBytes);
  EXPECT_EQ(store.held(), kFineChunkBytes);
  store.recycle(std::move(small));
}

TEST_F(ChunkStoreTest, NoChunkIsLostWhicheverDriverCallFails) {
  const auto scenario = [&] {
    std::vector<Chunk> chunks = store.acquire(3 * kFineChunkBytes, kNoLimit, false);
    store.recycle(std::move(chunks));
    store.release_unmapped(kFineChunkBytes);
    store.recycle(store.acquire(2 * kFineChunkBytes, kNoLimit, false));
  };
  FaultDriver driver;
  scenario();
  for (const auto& [call, count] : driver.counts()) {
    if (call.starts_with("destroy_") || call == "restore_device") continue;
    for (std::uint64_t at = 1; at <= count; ++at) {
      driver.fail_on(call, at);
      try {
        scenario();
      } catch (const CudaError&) {
        // The call that fails is the caller's to handle.
      }
      driver.fail_nothing();
      EXPECT_EQ(store.unmapped(), store.held()) << call << " " << at;
    }
  }
}

TEST_F(ChunkStoreTest, WhatTheDeviceRefusesDoesNotCount) {
  FaultDriver driver;
  constexpr std::size_t kLimit = kCoarseChunkBytes + kFineChunkBytes;
  for (const bool coarse : {false, true}) {
    for (const std::uint64_t nth : {1, 2}) {  // with some chunk, or none, made before
      driver.fail_on("create_chunk", nth, gantry::testing::kOutOfMemory, 1000);
      EXPECT_TRUE(store.acquire(kLimit, kLimit, coarse).empty());
      EXPECT_EQ(store.held(), 0U);
      driver.fail_nothing();
    }
    std::vector<Chunk> all = store.acquire(kLimit, kLimit, coarse);
    EXPECT_EQ(bytes_of(all), kLimit);
    EXPECT_EQ(store.held(), kLimit);
    store.recycle(std::move(all));
    store.release_unmapped();
  }
}

TEST_F(ChunkStoreTest, ThreadsTogetherStayWithinTheLimit) {
  static constexpr std::size_t kLimit = 16 * kFineChunkBytes;
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([this, seed] {
      for (unsigned i = 0; i < 300; ++i) {
        const std::size_t count = 1 + (i * seed) % 7;
        std::vector<Chunk> chunks = store.acquire(count * kFineChunkBytes, kLimit, false);
        EXPECT_LE(store.held(), kLimit);
        EXPECT_TRUE(chunks.empty() || bytes_of(chunks) == count * kFineChunkBytes);
        store.recycle(std::move(chunks));
        if (i % 50 == 0) store.release_unmapped(kFineChunkBytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store.unmapped(), store.held());
}

#ifndef NDEBUG
using ChunkStoreDeathTest = ChunkStoreTest;

TEST_F(ChunkStoreDeathTest, ChunksOfAnotherKindDoNotComeBack) {
  std::vector<Chunk> chunks = store.acquire(kFineChunkBytes, kNoLimit, false);
  EXPECT_DEATH(store.recycle({{chunks[0].native, 4096}}), "neither of the two sizes");
  EXPECT_DEATH(store.recycle({{NativeChunk::none, kFineChunkBytes}}), "without memory");
  store.recycle(std::move(chunks));
}
#endif

}  // namespace
}  // namespace gantry::memory
