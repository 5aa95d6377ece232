// The stacks of allocations, as a program that links libgantry sees them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/memory/buffer.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/history.hpp>
#include <gantry/memory/snapshot.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"

// Outside of namespace gantry, as a program's functions are; not inlined, so that stacks show them.
[[gnu::noinline]] void* user_allocation(std::size_t bytes) {
  void* const data = gantry::memory::allocate_raw(bytes);
  asm volatile("");  // no tail call
  return data;
}
[[gnu::noinline]] void* nested_user_allocation(std::size_t bytes) {
  void* const data = user_allocation(bytes);
  asm volatile("");
  return data;
}
[[gnu::noinline]] gantry::Tensor user_tensor() {
  gantry::Tensor tensor = gantry::empty({100}, gantry::Device::cuda(0));
  asm volatile("");
  return tensor;
}

// Names that hold "gantry" and are the program's.
namespace gantry_app {
template <class T>
struct Maker {
  [[gnu::noinline]] static T make() {
    T tensor = gantry::empty({100}, gantry::Device::cuda(0));
    asm volatile("");
    return tensor;
  }
};
template <class T>
[[gnu::noinline]] T make() {
  T tensor = gantry::empty({100}, gantry::Device::cuda(0));
  asm volatile("");
  return tensor;
}
}  // namespace gantry_app
namespace gantry {
[[gnu::noinline]] Tensor added_function() {
  Tensor tensor = empty({100}, Device::cuda(0));
  asm volatile("");
  return tensor;
}
}  // namespace gantry

namespace gantry::memory {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Stacks = HistoryOptions::Stacks;

constexpr std::size_t kMib = std::size_t{1} << 20;

class CallStacksTest : public gantry::testing::DeviceTest {
 protected:
  void TearDown() override {
    record_history({.enabled = false});
    gantry::testing::DeviceTest::TearDown();
  }
};

// The stack of a live block.
Frames frames_of_block(const void* data) {
  for (const SegmentInfo& segment : snapshot().segments) {
    for (const BlockInfo& block : segment.blocks) {
      if (block.address == reinterpret_cast<std::uintptr_t>(data)) return block.frames;
    }
  }
  throw std::runtime_error("no such block");
}

TEST_F(CallStacksTest, EqualCallsHaveEqualStacks) {
  for (const Stacks stacks : {Stacks::full, Stacks::call_site}) {
    record_history({.stacks = stacks});
    // From the driver, from the cache, and by another path of the program.
    Frames first, again, nested;
    for (Frames* frames : {&first, &again}) {
      void* const data = user_allocation(1000);
      *frames = frames_of_block(data);
      deallocate_raw(data);
    }
    void* const data = nested_user_allocation(1000);
    nested = frames_of_block(data);
    deallocate_raw(data);
    EXPECT_THAT(first, Not(::testing::IsEmpty()));
    EXPECT_EQ(nested == first, stacks == Stacks::call_site);
    if (stacks == Stacks::call_site) {
      EXPECT_EQ(first, again);
      EXPECT_THAT(first, SizeIs(1));
    }
  }
}

TEST_F(CallStacksTest, TheAllocatorsOwnFunctionsAreLeftOut) {
  if (GANTRY_TEST_HAS_SYMBOLS == 0) GTEST_SKIP() << "this build has no libbacktrace";
  record_history({.stacks = Stacks::full});
  const Tensor tensor = user_tensor();
  const Frames full = frames_of_block(tensor.data_ptr());
  ASSERT_GE(full.size(), 3U);
  EXPECT_TRUE(full[0].is_internal) << full[0].name;  // a function of the tensor layer
  std::size_t user = 0;
  while (user < full.size() && full[user].is_internal) {
    EXPECT_THAT(full[user].name, Not(HasSubstr("gantry::memory::")));
    ++user;
  }
  ASSERT_LT(user, full.size());
  EXPECT_THAT(full[user].name, HasSubstr("user_tensor"));

  record_history({.stacks = Stacks::call_site});
  const Tensor second = user_tensor();
  const Frames site = frames_of_block(second.data_ptr());
  ASSERT_THAT(site, SizeIs(1));
  EXPECT_THAT(site[0].name, HasSubstr("user_tensor"));
}

TEST_F(CallStacksTest, TheFunctionsNameTellsWhoseItIs) {
  if (GANTRY_TEST_HAS_SYMBOLS == 0) GTEST_SKIP() << "this build has no libbacktrace";
  for (const Stacks stacks : {Stacks::full, Stacks::call_site}) {
    record_history({.stacks = stacks});
    for (const auto& [make, name] :
         {std::pair{&gantry_app::Maker<Tensor>::make, "gantry_app::Maker<gantry::Tensor>::make"},
          std::pair{&gantry_app::make<Tensor>, "gantry_app::make<gantry::Tensor>"},
          std::pair{&added_function, "gantry::added_function"}}) {
      const Tensor tensor = make();
      const Frames frames = frames_of_block(tensor.data_ptr());
      ASSERT_NE(frames.call_site(), nullptr);
      EXPECT_THAT(frames.call_site()->name, HasSubstr(name));
    }
  }
}

struct AllocatesAtTheEnd {
  Frames* frames = nullptr;
  ~AllocatesAtTheEnd() {
    if (frames == nullptr) return;
    void* const data = user_allocation(1000);
    *frames = frames_of_block(data);
    deallocate_raw(data);
  }
};

TEST_F(CallStacksTest, ThreadLocalDestructorsHaveTheSameStacks) {
  record_history({.stacks = Stacks::call_site});
  Frames first, last;
  std::thread([&] {
    static thread_local AllocatesAtTheEnd at_end;
    at_end.frames = &last;
    void* const data = user_allocation(1000);  // what is kept for the thread dies before at_end
    first = frames_of_block(data);
    deallocate_raw(data);
  }).join();
  EXPECT_THAT(first, SizeIs(1));
  EXPECT_EQ(first, last);
}

TEST_F(CallStacksTest, OutOfMemoryErrorsNameTheLargestCallSites) {
  empty_cache();
  set_fraction(64.0 * kMib / static_cast<double>(mem_get_info().total));
  record_history();
  void* const small = nested_user_allocation(10 * kMib);
  void* const large = user_allocation(40 * kMib);
  try {
    deallocate_raw(user_allocation(30 * kMib));
    ADD_FAILURE() << "more than the limit was allocated";
  } catch (const OutOfMemoryError& error) {
    ASSERT_EQ(error.breakdown().top_call_sites.size(), 1U);  // both by one line of the program
    EXPECT_EQ(error.breakdown().top_call_sites[0].second, static_cast<std::int64_t>(50 * kMib));
  }
  deallocate_raw(small);
  deallocate_raw(large);
  set_fraction(1.0);
}

}  // namespace
}  // namespace gantry::memory
