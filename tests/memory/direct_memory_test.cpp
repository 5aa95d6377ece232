// Memory that gantry holds past its allocators, in the report of an out-of-memory error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "memory/driver_memory.hpp"
#include "memory/oom/direct_memory.hpp"
#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::kMib;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

std::int64_t mib(std::int64_t count) { return count << 20; }

class DirectMemoryTest : public gantry::testing::HeapTest {};

TEST_F(DirectMemoryTest, IsListedByPurposeTheLargestFirst) {
  GANTRY_REQUIRE_DEVICES(2);
  EXPECT_THAT(direct_memory(0), IsEmpty());
  DriverMemory words(0, 4 * kMib, "words");
  DriverMemory table(0, 6 * kMib, "a table");
  const DriverMemory other(1, 8 * kMib, "a table");
  {
    const DriverMemory more(0, 2 * kMib, "a table");
    EXPECT_THAT(direct_memory(0), ElementsAre(Pair("a table", mib(8)), Pair("words", mib(4))));
  }
  EXPECT_THAT(direct_memory(0), ElementsAre(Pair("a table", mib(6)), Pair("words", mib(4))));
  EXPECT_THAT(direct_memory(1), ElementsAre(Pair("a table", mib(8))));
  table.reset();
  DriverMemory moved = std::move(words);
  EXPECT_THAT(direct_memory(0), ElementsAre(Pair("words", mib(4))));
  deallocate_to_driver(0, moved.release());
  EXPECT_THAT(direct_memory(0), IsEmpty());
}

TEST_F(DirectMemoryTest, AnErrorNamesIt) {
  GANTRY_REQUIRE_DEVICES(1);
  const Stream stream = Stream::current();
  const std::size_t total = device_properties(Device::cuda(0)).total_memory;
  std::vector<DriverMemory> held;
  held.emplace_back(0, 20 * kMib, "a table");
  held.emplace_back(0, 4 * kMib, "words");
  const Buffer rest = allocate(stream, total - 30 * kMib);
  try {
    static_cast<void>(allocate(stream, 16 * kMib));
    ADD_FAILURE() << "more than the device has was allocated";
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(error.breakdown().direct_by_purpose,
                ElementsAre(Pair("a table", mib(20)), Pair("words", mib(4))));
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(" gantry uses beside its allocator: 20.00 MiB for a table, 4.00 "
                                "MiB for words."),
                      Not(HasSubstr("other processes"))));
  }
  held.clear();
  EXPECT_NE(allocate(stream, 16 * kMib).data(), nullptr);
}

}  // namespace
}  // namespace gantry::memory
