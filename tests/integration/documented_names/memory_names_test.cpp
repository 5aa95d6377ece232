// The documented names of memory and random numbers, each used as a program uses it.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

class DocumentedNamesOfMemory : public testing::DeviceTest {};

TEST_F(DocumentedNamesOfMemory, Allocators) {
  const Device first = Device::cuda(0);
  const Stream stream = Stream::current(first);
  const std::shared_ptr<memory::Allocator> none;
  const std::shared_ptr<memory::Allocator> before = memory::set_allocator(first, none);
  memory::Allocator& allocator = memory::allocator(first);
  memory::Block block = allocator.allocate(stream, 1024, 256);
  allocator.deallocate(block);
  memory::set_allocator(first, before);

  void* const raw = memory::allocate_raw(64, stream);
  memory::deallocate_raw(raw);
  memory::deallocate_raw(memory::allocate_raw(64));
  static_assert(
      std::is_same_v<decltype(memory::load_allocator("", "", "")), memory::PluggableAllocator>);
  EXPECT_FALSE(memory::allocator_backend().empty());

  memory::Buffer pinned = memory::pinned(4 * sizeof(float));
  EXPECT_EQ(pinned.as<float>().size(), 4U);
  memory::MemPool pool(first);
  memory::Buffer owner = pool.allocate(stream, 16);
  const std::vector<std::byte> host(16);
  std::vector<std::byte> back(16);
  owner.copy_from(host);
  owner.copy_to(back);
}

TEST_F(DocumentedNamesOfMemory, Statistics) {
  const Device first = Device::cuda(0);
  const memory::Stats stats = memory::stats(first);
  static_cast<void>(stats);
  const std::map<std::string, std::int64_t> all = memory::stats_map(first);
  EXPECT_TRUE(all.contains("allocated_bytes.all.current"));
  EXPECT_FALSE(memory::summary(first).empty());
  std::size_t bytes = memory::allocated(first);
  bytes = memory::max_allocated(first);
  bytes = memory::reserved(first);
  bytes = memory::max_reserved(first);
  static_cast<void>(bytes);
  memory::reset_peak_stats(first);
  const memory::MemInfo info = memory::mem_get_info(first);
  EXPECT_GT(info.total, 0U);
  memory::empty_cache();
  memory::set_fraction(1.0, first);

  memory::record_history(memory::HistoryOptions{});
  const memory::Snapshot snapshot = memory::snapshot();
  static_cast<void>(snapshot);
  const testing::TemporaryFolder folder;
  memory::save_snapshot((folder.path() / "snapshot.json").string());
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "snapshot.json"));
  memory::add_oom_observer([](const auto&...) {});
}

TEST_F(DocumentedNamesOfMemory, PoolsAndIpc) {
  const Device first = Device::cuda(0);
  memory::MemPool pool;
  {
    const memory::MemPoolGuard guard(pool);
    static_cast<void>(empty({4}, {.device = first}));
  }
  EXPECT_TRUE(pool.has_physical());
  if (memory::allocator_backend() == "vmm") {
    pool.release_physical({.backup = memory::PoolBackup::host});
    pool.restore_physical();
  }
  static_cast<void>(pool.snapshot());
  const Tensor tensor = zeros({4}, {.device = first});
  const IpcHandle handle = memory::export_ipc(*tensor.storage().block());
  EXPECT_FALSE(handle.bytes.empty());
  memory::ipc_collect();
}

TEST_F(DocumentedNamesOfMemory, Random) {
  const Device first = Device::cuda(0);
  Generator& generator = default_generator(first);
  manual_seed(1);
  EXPECT_EQ(initial_seed(), 1U);
  const Tensor state = get_rng_state(first);
  EXPECT_EQ(state.device(), Device::cpu());
  EXPECT_EQ(state.dtype(), u8);
  const Tensor a = rand({8}, {.device = first});
  set_rng_state(state, first);
  EXPECT_TRUE(rand({8}, {.device = first}).equal(a));
  const std::vector<Tensor> states = get_rng_state_all();
  set_rng_state_all(states);
  manual_seed_all(2);
  const std::uint64_t fresh = seed();
  static_cast<void>(fresh);
  seed_all();
  static_cast<void>(generator.fork(3));
  Generator own(first, 7);
  EXPECT_EQ(rand({8}, {.device = first}, own).numel(), 8);
}

}  // namespace
}  // namespace gantry
