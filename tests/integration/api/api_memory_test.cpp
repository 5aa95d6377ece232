// The memory layer through the umbrella header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/extend/driver.hpp>
#include <gantry/gantry.hpp>
#include <vector>

#include "tests/support/device_fixture.hpp"

namespace {

using namespace gantry;
using ::testing::HasSubstr;

class ApiMemoryTest : public gantry::testing::DeviceTest {};

TEST_F(ApiMemoryTest, RawPointersAreCounted) {
  const Device device = Device::cuda(0);
  const std::size_t before = memory::allocated(device);
  void* data = memory::allocate_raw(4096);
  ASSERT_NE(data, nullptr);
  EXPECT_GE(memory::allocated(device), before + 4096);
  memory::deallocate_raw(data);
  EXPECT_EQ(memory::allocated(device), before);
  void* other = memory::allocate_raw(100, Stream::from_pool());
  memory::deallocate_raw(other);
  memory::deallocate_raw(nullptr);
  int local = 0;
  EXPECT_THROW(memory::deallocate_raw(&local), InvalidArgument);
}

TEST_F(ApiMemoryTest, CountersAgree) {
  const Tensor tensor = zeros({1 << 20}, {.device = "cuda:0"});
  const memory::Stats stats = memory::stats(Device::cuda(0));
  const auto map = memory::stats_map(Device::cuda(0));
  EXPECT_EQ(static_cast<std::size_t>(stats.allocated_bytes.all.current), memory::allocated());
  EXPECT_EQ(static_cast<std::size_t>(stats.reserved_bytes.all.current), memory::reserved());
  EXPECT_EQ(map.at("allocated_bytes.all.current"), stats.allocated_bytes.all.current);
  EXPECT_EQ(map.at("reserved_bytes.all.peak"), stats.reserved_bytes.all.peak);
  EXPECT_EQ(map.at("num_ooms"), stats.num_ooms);
  EXPECT_GE(map.size(), 122u);
  EXPECT_GE(memory::max_allocated(), memory::allocated());
  EXPECT_GE(memory::max_reserved(), memory::reserved());
  EXPECT_GE(memory::reserved(), memory::allocated());
  EXPECT_FALSE(memory::summary(Device::cuda(0)).empty());
}

TEST_F(ApiMemoryTest, PeaksReset) {
  { const Tensor tensor = zeros({1 << 20}, {.device = "cuda:0"}); }
  EXPECT_GE(memory::max_allocated("cuda:0"), memory::allocated("cuda:0") + (4u << 20));
  memory::reset_peak_stats(Device::cuda(0));
  EXPECT_EQ(memory::max_allocated("cuda:0"), memory::allocated("cuda:0"));
}

TEST_F(ApiMemoryTest, EmptyCacheGivesMemoryBack) {
  { const Tensor tensor = empty({16 << 20}, {.device = "cuda:0"}); }
  synchronize();
  const memory::MemInfo cached = memory::mem_get_info(Device::cuda(0));
  memory::empty_cache();
  const memory::MemInfo released = memory::mem_get_info(Device::cuda(0));
  EXPECT_GE(released.free, cached.free);
  EXPECT_EQ(released.total, cached.total);
  EXPECT_LE(released.free, released.total);
}

TEST_F(ApiMemoryTest, OutOfMemoryCarriesTheBreakdown) {
  const auto total = static_cast<std::int64_t>(memory::mem_get_info(Device::cuda(0)).total);
  static int observed = 0;  // the observer outlives the test
  const int seen = observed;
  memory::add_oom_observer([](Device device, const OomReport& breakdown) {
    if (device == Device::cuda(0) && breakdown.requested > 0) ++observed;
  });
  const std::size_t before = memory::allocated();
  try {
    (void)empty({2 * total}, {.dtype = u8, .device = "cuda:0"});
    ADD_FAILURE() << "expected an OutOfMemoryError";
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("CUDA out of memory. Tried to allocate"));
    EXPECT_EQ(error.breakdown().total, total);
    EXPECT_GE(error.breakdown().requested, 2 * total);
    EXPECT_EQ(error.device(), "cuda:0");
  }
  EXPECT_GT(observed, seen);
  EXPECT_EQ(memory::allocated(), before);
}

TEST_F(ApiMemoryTest, FractionLimitsTheProcess) {
  const auto total = static_cast<std::int64_t>(memory::mem_get_info(Device::cuda(0)).total);
  memory::set_fraction(0.25, Device::cuda(0));
  EXPECT_THROW((void)empty({total / 2}, {.dtype = u8, .device = "cuda:0"}), OutOfMemoryError);
  memory::set_fraction(1.0, Device::cuda(0));
  EXPECT_THROW(memory::set_fraction(1.5, Device::cuda(0)), InvalidArgument);
  EXPECT_THROW(memory::set_fraction(-0.1), InvalidArgument);
}

// Counts the calls and leaves the work to the allocator before it.
class CountingAllocator : public memory::Allocator {
 public:
  memory::Block allocate(const Stream& stream, std::size_t bytes, std::size_t alignment) override {
    ++allocations;
    memory::Block block = inner->allocate(stream, bytes, alignment);
    block.allocator = this;
    return block;
  }
  void deallocate(memory::Block& block) noexcept override {
    ++frees;
    block.allocator = inner;
    inner->deallocate(block);
  }
  void record_stream(const memory::Block& block, const Stream& stream) override {
    memory::Block own = block;
    own.allocator = inner;
    inner->record_stream(own, stream);
  }
  void empty_cache(Device device) override { inner->empty_cache(device); }
  std::string name() const override { return "counting"; }

  memory::Allocator* inner = nullptr;
  int allocations = 0;
  int frees = 0;
};

// What the interface asks for, and nothing else.
class LeastAllocator : public memory::Allocator {
 public:
  memory::Block allocate(const Stream& stream, std::size_t bytes,
                         std::size_t /*alignment*/) override {
    ++live;
    return {.data = driver().allocate(stream.device().index, bytes),
            .bytes = bytes,
            .device = stream.device(),
            .allocator = this};
  }
  void deallocate(memory::Block& block) noexcept override {
    --live;
    synchronize(block.device);
    driver().deallocate(block.device.index, block.data);
    block = {};
  }

  int live = 0;
};

TEST_F(ApiMemoryTest, AllocatorsNeedTwoFunctions) {
  const auto least = std::make_shared<LeastAllocator>();
  memory::set_allocator(Device::cuda(0), least);
  {
    const Tensor tensor = arange(10, {.device = "cuda:0"});
    EXPECT_EQ(least->live, 1);
    EXPECT_EQ((tensor + tensor).sum().item<int>(), 90);
    memory::empty_cache();
  }
  memory::set_allocator(Device::cuda(0), nullptr);
  EXPECT_EQ(least->live, 0);
  EXPECT_EQ(least->name(), "custom");
}

TEST_F(ApiMemoryTest, AllocatorsCanBeReplaced) {
  EXPECT_FALSE(memory::allocator_backend().empty());
  const auto counting = std::make_shared<CountingAllocator>();
  counting->inner = &memory::allocator(Device::cuda(0));
  EXPECT_EQ(memory::set_allocator(Device::cuda(0), counting), nullptr);
  {
    const Tensor tensor = ones({8}, {.device = "cuda:0"});
    EXPECT_EQ(tensor.sum().item<float>(), 8.0f);
  }
  EXPECT_EQ(memory::set_allocator(Device::cuda(0), nullptr), counting);
  EXPECT_GE(counting->allocations, 1);
  EXPECT_EQ(counting->allocations, counting->frees);
}

TEST_F(ApiMemoryTest, PinnedBuffersAreHostMemory) {
  memory::Buffer buffer = memory::pinned(1024);
  ASSERT_NE(buffer.data(), nullptr);
  EXPECT_GE(buffer.bytes(), 1024u);
  EXPECT_EQ(buffer.device(), Device::cpu());
  static_cast<unsigned char*>(buffer.data())[1023] = 7;
  EXPECT_EQ(static_cast<unsigned char*>(buffer.data())[1023], 7);
  EXPECT_TRUE(empty({4}, {.pinned = true}).is_pinned());
}

TEST_F(ApiMemoryTest, ExportsAndImportsBlocks) {
  const memory::Buffer buffer = memory::allocate(Stream::current(), 4096);
  const memory::IpcHandle handle = memory::export_ipc(buffer.block());
  EXPECT_FALSE(handle.bytes.empty());
  const memory::ImportedBlock imported = memory::import_ipc(handle, Device::cuda(0));
  EXPECT_EQ(imported.data(), buffer.data());
  EXPECT_EQ(imported.bytes(), 4096u);
  EXPECT_THROW((void)memory::import_ipc(IpcHandle{}, Device::cuda(0)), InvalidArgument);
}

TEST_F(ApiMemoryTest, TensorsTravelAsHandles) {
  Tensor tensor = arange(6, {.device = "cuda:0"});
  const IpcHandle handle = tensor.view({2, 3}).ipc_handle();
  const Tensor opened = Tensor::from_ipc(handle);
  EXPECT_EQ(opened.sizes(), Shape({2, 3}));
  tensor.add_(1);
  EXPECT_EQ(opened.to_vector<int>(), (std::vector<int>{1, 2, 3, 4, 5, 6}));
}

}  // namespace
