#include "collectives/p2p/registrations.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "job/flight_file.hpp"

namespace gantry {
namespace {

TEST(RegistrationsTest, FindsWhatLiesWhollyInOneRegistration) {
  constexpr std::int64_t kBytes = 4096;
  const auto bootstraps = make_local_bootstraps(1);
  Registrations registrations(0, Device::cpu(), false);
  // Neighbours in memory.
  std::vector<std::byte> memory(4 * kBytes);
  std::vector<Storage> storages;
  for (int part = 0; part < 3; ++part) {
    storages.push_back(
        Storage::foreign(memory.data() + part * kBytes, kBytes, Device::cpu(), [](void*) {}));
    registrations.add(*bootstraps[0], storages.back());
  }
  const auto expect_found = [&](std::int64_t first, std::int64_t bytes, std::size_t number) {
    const std::uint64_t found = registrations.find(memory.data() + first, bytes);
    ASSERT_EQ(flight::registration_of(found), number) << first << " " << bytes;
    if (number == 0) return;
    EXPECT_EQ(flight::offset_of(found), static_cast<std::uint64_t>(first % kBytes));
  };
  expect_found(0, kBytes, 1);
  expect_found(kBytes - 4, 4, 1);
  expect_found(kBytes, kBytes, 2);
  expect_found(kBytes + 4, kBytes - 4, 2);
  // Behind the end of one registration: into the next one, and into none.
  expect_found(0, kBytes + 1, 0);
  expect_found(kBytes - 4, 8, 0);
  expect_found(3 * kBytes - 4, 5, 0);
  expect_found(3 * kBytes, 4, 0);
  registrations.remove(storages[1]);
  expect_found(kBytes, 4, 0);
  expect_found(2 * kBytes, 4, 3);
  EXPECT_EQ(registrations.find(nullptr, 4), 0U);
}

}  // namespace
}  // namespace gantry
