// Rows about memory.
#include "tests/torch_map/torch_map_fixture.hpp"

namespace {

using namespace gantry;
using gantry::testing::TorchCudaMapTest;
using ::testing::ElementsAre;

constexpr std::size_t kMib = std::size_t{1} << 20;

TEST_F(TorchCudaMapTest, RawMemory) {
  void* data = memory::allocate_raw(1024, Stream::current("cuda:0"));
  EXPECT_NE(data, nullptr);
  memory::deallocate_raw(data);
}

TEST_F(TorchCudaMapTest, EmptyCache) {
  { const Tensor t = zeros({1 << 20}, "cuda:0"); }
  memory::empty_cache();
  EXPECT_GE(memory::reserved("cuda:0"), memory::allocated("cuda:0"));
}

TEST_F(TorchCudaMapTest, Fraction) {
  memory::set_fraction(0.5, "cuda:0");
  EXPECT_EQ(memory::fraction("cuda:0"), 0.5);
  memory::set_fraction(1, "cuda:0");
  EXPECT_EQ(memory::fraction("cuda:0"), 1);
}

TEST_F(TorchCudaMapTest, MemGetInfo) {
  const auto [free, total] = memory::mem_get_info("cuda:0");
  EXPECT_LE(free, total);
}

TEST_F(TorchCudaMapTest, MemoryStats) {
  EXPECT_EQ(memory::stats_map("cuda:0").count("allocated_bytes.all.current"), 1u);
}

TEST_F(TorchCudaMapTest, MemoryStatsNested) {
  const memory::Buffer held = memory::allocate(Stream::current("cuda:0"), kMib);
  EXPECT_GE(memory::stats("cuda:0").allocated_bytes.all.current, std::int64_t{1} << 20);
}

TEST_F(TorchCudaMapTest, ResetPeakStats) {
  { const memory::Buffer freed = memory::allocate(Stream::current("cuda:0"), 8 * kMib); }
  memory::reset_peak_stats("cuda:0");
  EXPECT_EQ(memory::max_allocated("cuda:0"), memory::allocated("cuda:0"));
  EXPECT_EQ(memory::max_reserved("cuda:0"), memory::reserved("cuda:0"));
}

TEST_F(TorchCudaMapTest, ResetAccumulatedStats) {
  { const memory::Buffer freed = memory::allocate(Stream::current("cuda:0"), kMib); }
  memory::reset_accumulated_stats("cuda:0");
  const memory::Stats stats = memory::stats("cuda:0");
  EXPECT_EQ(stats.allocation.all.allocated, 0);
  EXPECT_EQ(stats.allocation.all.freed, 0);
  EXPECT_EQ(stats.num_ooms, 0);
}

TEST_F(TorchCudaMapTest, MemoryAllocated) {
  const std::size_t before = memory::allocated("cuda:0");
  const memory::Buffer held = memory::allocate(Stream::current("cuda:0"), kMib);
  EXPECT_EQ(memory::allocated("cuda:0"), before + kMib);
  EXPECT_GE(memory::max_allocated("cuda:0"), before + kMib);
}

TEST_F(TorchCudaMapTest, MemoryReserved) {
  const memory::Buffer held = memory::allocate(Stream::current("cuda:0"), kMib);
  EXPECT_GE(memory::reserved("cuda:0"), kMib);
  EXPECT_GE(memory::max_reserved("cuda:0"), memory::reserved("cuda:0"));
}

TEST_F(TorchCudaMapTest, MemorySummary) {
  EXPECT_NE(memory::summary("cuda:0").find("allocated"), std::string::npos);
}

TEST_F(TorchCudaMapTest, MemorySnapshot) {
  const memory::Buffer held = memory::allocate(Stream::current("cuda:0"), kMib);
  EXPECT_FALSE(memory::snapshot().segments.empty());
}

TEST_F(TorchCudaMapTest, MemoryHistory) {
  memory::record_history();
  { const memory::Buffer freed = memory::allocate(Stream::current("cuda:0"), kMib); }
  EXPECT_FALSE(memory::snapshot().device_traces.at(0).empty());
  memory::record_history({.enabled = false});
}

TEST_F(TorchCudaMapTest, SnapshotFile) {
  const gantry::testing::TemporaryFolder folder;
  const auto path = folder.path() / "run.json";
  memory::save_snapshot(path);
  EXPECT_EQ(memory::load_snapshot(path).settings.count("backend"), 1u);
}

TEST_F(TorchCudaMapTest, HostStats) {
  const memory::Buffer held = memory::pinned(kMib);
  EXPECT_GE(memory::host_stats_map().at("active_bytes.current"), std::int64_t{1} << 20);
}

TEST_F(TorchCudaMapTest, HostStatsNested) {
  const memory::Buffer held = memory::pinned(kMib);
  EXPECT_GE(memory::host_memory_stats().active_bytes.current, std::int64_t{1} << 20);
}

TEST_F(TorchCudaMapTest, ResetHostStats) {
  { const memory::Buffer freed = memory::pinned(kMib); }
  memory::reset_peak_host_stats();
  EXPECT_EQ(memory::host_memory_stats().active_bytes.peak,
            memory::host_memory_stats().active_bytes.current);
  memory::reset_accumulated_host_stats();
  EXPECT_EQ(memory::host_memory_stats().active_requests.allocated, 0);
  EXPECT_EQ(memory::host_memory_stats().num_host_alloc, 0);
}

TEST_F(TorchCudaMapTest, AllocatorBackend) {
  EXPECT_THAT(memory::allocator_backend(), ::testing::AnyOf("vmm", "native", "async"));
}

class CountingAllocator final : public memory::Allocator {
 public:
  explicit CountingAllocator(memory::Allocator& inner) : inner_(inner) {}
  memory::Block allocate(const Stream& stream, std::size_t bytes, std::size_t alignment) override {
    ++allocations;
    return inner_.allocate(stream, bytes, alignment);
  }
  void deallocate(memory::Block& block) noexcept override { inner_.deallocate(block); }
  [[nodiscard]] bool is_peer_accessible() const override { return inner_.is_peer_accessible(); }

  std::atomic<int> allocations{0};

 private:
  memory::Allocator& inner_;
};

TEST_F(TorchCudaMapTest, AnotherAllocator) {
  auto own = std::make_shared<CountingAllocator>(memory::allocator("cuda:0"));
  memory::set_allocator("cuda:0", own);
  { const Tensor t = zeros({2}, "cuda:0"); }
  memory::set_allocator("cuda:0", nullptr);
  EXPECT_EQ(own->allocations, 1);
}

TEST_F(TorchCudaMapTest, PluggableAllocator) {
  EXPECT_THROW((void)memory::load_allocator("/no/such.so", "alloc", "free"), InvalidArgument);
}

TEST_F(TorchCudaMapTest, Pool) {
  memory::MemPool pool("cuda:0");
  const memory::Buffer held = pool.allocate(Stream::current("cuda:0"), kMib);
  EXPECT_GT(pool.id(), 0u);
  EXPECT_EQ(pool.use_count(), 1u);
  EXPECT_EQ(memory::snapshot(pool).segments.front().pool_id.second,
            static_cast<std::int64_t>(pool.id()));
}

TEST_F(TorchCudaMapTest, PoolScope) {
  memory::MemPool pool("cuda:0");
  memory::MemPoolGuard guard(pool);
  const Tensor t = zeros({2}, "cuda:0");
  EXPECT_EQ(pool.use_count(), 1u);
}

TEST_F(TorchCudaMapTest, PoolWithAllocator) {
  auto own = std::make_shared<CountingAllocator>(memory::allocator("cuda:0"));
  memory::MemPool pool("cuda:0", {.allocator = own});
  const memory::Buffer held = pool.allocate(Stream::current("cuda:0"), kMib);
  EXPECT_EQ(own->allocations, 1);
}

TEST_F(TorchCudaMapTest, IpcCollect) {
  memory::ipc_collect();
  EXPECT_EQ(memory::stats("cuda:0").limbo_bytes, 0);
}

}  // namespace
