// Groups of listed ranks, their names, and the ranks of one group in another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "job/flight_folder.hpp"
#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/flight_folder.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using testing::expect_throws;
using ::testing::HasSubstr;
using testing::rank_threads;
using ::testing::StartsWith;

class GroupNamesTest : public testing::LocalGroupTest {
 protected:
  template <class Body>
  static void on_groups(int count, Body body) {
    on_ranks(count, [&](CollectiveSuite&, Communicator& group) { body(group); });
  }
};

// The sum of 1 + the ranks of the group.
int sum_over(const Communicator& group) {
  const Tensor tensor = full({3}, group.rank() + 1, {.dtype = i32, .device = group.device()});
  group.all_reduce(tensor).synchronize();
  return tensor.amax().item<int>();
}

std::vector<std::string> recorded_groups() {
  std::vector<std::string> names;
  for (const flight::OpenFile& file : flight::read_files().files) {
    names.emplace_back(file.view().header().group);
  }
  return names;
}

TEST_F(GroupNamesTest, AListGivesAGroupInItsOrder) {
  GANTRY_REQUIRE_DEVICES(4);
  on_groups(4, [](const Communicator& group) {
    const Communicator some = group.split({3, 0, 2});
    constexpr int kRankOf[] = {1, -1, 2, 0};
    ASSERT_EQ(some.defined(), group.rank() != 1);
    if (some.defined()) {
      EXPECT_EQ(some.rank(), kRankOf[group.rank()]);
      EXPECT_EQ(some.size(), 3);
      EXPECT_EQ(some.name(), "local.1.0");
      EXPECT_EQ(sum_over(some), 6);
    }
    const std::vector<int> everyone{0, 1, 2, 3};
    EXPECT_EQ(sum_over(group.split(everyone, "all of them")), 10);
    const Communicator alone = group.split({2});
    EXPECT_EQ(alone.defined(), group.rank() == 2);
    EXPECT_EQ(sum_over(group), 10);
  });
}

TEST_F(GroupNamesTest, ANameStandsInRecordsAndDeviceMaps) {
  GANTRY_REQUIRE_DEVICES(4);
  const testing::FlightFolder folder;
  on_groups(4, [](const Communicator& group) {
    EXPECT_EQ(group.name(), "local");
    const Communicator half =
        group.split(group.rank() % 2, 0, group.rank() % 2 == 0 ? "even" : "odd ones");
    EXPECT_EQ(half.name(), group.rank() % 2 == 0 ? "even" : "odd ones");
    ASSERT_EQ(half.device_map().size(), 2U);
    EXPECT_THAT(half.device_map()[1], StartsWith("rank 1 of " + half.name() + ": "));
    EXPECT_THAT(group.device_map()[1], StartsWith("rank 1: "));
    EXPECT_EQ(sum_over(half), 3);
    group.host_barrier();
    if (group.rank() == 0) {
      EXPECT_THAT(recorded_groups(), ::testing::UnorderedElementsAre("local", "even", "odd ones"));
    }
    group.host_barrier();
    // Names need not be unique, and groups of a named group have its path.
    const Communicator again = group.split(0, 0, "even");
    EXPECT_EQ(sum_over(again), 10);
    EXPECT_EQ(half.split(0).name().substr(0, 8), "local.1.");
  });
}

TEST_F(GroupNamesTest, ErrorsHaveTheName) {
  GANTRY_REQUIRE_DEVICES(2);
  on_groups(2, [](const Communicator& group) {
    const Communicator pair = group.split({0, 1}, "pair");
    const Tensor tensor = zeros({2 + group.rank()}, {.device = group.device()});
    expect_throws<CollectiveMismatch>(
        [&] { pair.all_reduce(tensor).synchronize(); },
        "collective of group 'pair' #1: expected the same call on every rank");
    group.host_barrier();
    if (group.rank() == 0) pair.abort();
    group.host_barrier();
    expect_throws<PeerLostError>([&] { pair.host_barrier(); },
                                 "rank 0 aborted; the communicator 'pair' of 2 ranks is unusable");
  });
}

TEST_F(GroupNamesTest, SurvivorsKeepTheName) {
  GANTRY_REQUIRE_DEVICES(3);
  on_groups(3, [](const Communicator& group) {
    const Communicator named = group.split({0, 1, 2}, "trio");
    if (group.rank() == 1) return;
    const Communicator rest = named.shrink({1});
    EXPECT_EQ(rest.name(), "trio.shrink1");
    EXPECT_EQ(sum_over(rest), 3);
  });
}

TEST_F(GroupNamesTest, RanksAreFoundInOtherGroups) {
  GANTRY_REQUIRE_DEVICES(4);
  std::vector<Communicator> reversed =
      Communicator::local({Device::cuda(3), Device::cuda(2), Device::cuda(1), Device::cuda(0)});
  on_groups(4, [&](const Communicator& group) {
    const Communicator some = group.split({3, 0, 2});
    const Communicator half = group.split(group.rank() % 2);
    if (some.defined()) {
      EXPECT_EQ(group.rank_in(some, 0), 1);
      EXPECT_EQ(group.rank_in(some, 1), std::nullopt);
      EXPECT_EQ(group.rank_in(some, 2), 2);
      EXPECT_EQ(group.rank_in(some, 3), 0);
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(group.rank_in(some, *some.rank_in(group, rank)), rank);
      }
      // The ranks of this half: 0 and 2, or 1 and 3.
      EXPECT_EQ(half.rank_in(some, 0), group.rank() % 2 == 0 ? std::optional(1) : std::nullopt);
      EXPECT_EQ(half.rank_in(some, 1), group.rank() % 2 == 0 ? 2 : 0);
    }
    // Made on its own, by the same process.
    const Communicator& other = reversed[static_cast<std::size_t>(3 - group.rank())];
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(group.rank_in(other, rank), 3 - rank);
    expect_throws<InvalidArgument>([&] { (void)group.rank_in(other, 4); },
                                   "rank_in: expected a rank from 0 to 3, but got 4");
    expect_throws<InvalidArgument>([&] { (void)group.rank_in(Communicator(), 0); },
                                   "rank_in: expected a defined communicator");
  });
}

TEST_F(GroupNamesTest, WrongListsAndNamesAreRefused) {
  GANTRY_REQUIRE_DEVICES(2);
  on_groups(2, [](const Communicator& group) {
    const auto refuses = [&](const std::vector<int>& ranks, const std::string& phrase) {
      expect_throws<InvalidArgument>([&] { (void)group.split(ranks); }, phrase);
    };
    refuses({}, "split: expected at least one rank, but got none");
    refuses({0, 2}, "split: expected a rank from 0 to 1, but got 2");
    refuses({-1}, "but got -1");
    refuses({1, 0, 1}, "split: expected each rank once, but rank 1 occurs again");
    expect_throws<InvalidArgument>([&] { (void)group.split(0, 0, std::string(48, 'x')); },
                                   "split: expected a name of at most 47 bytes, but got 48");
    expect_throws<InvalidArgument>([&] { (void)group.split({0}, "a\nb"); },
                                   "split: expected a name of printable characters");
    expect_throws<InvalidArgument>([&] { (void)group.split({0}, " a"); }, "without spaces");
    EXPECT_EQ(sum_over(group.split(0, 0, std::string(47, 'x'))), 3);
  });
}

TEST_F(GroupNamesTest, RanksThatDifferAreAMismatchOnEveryRank) {
  GANTRY_REQUIRE_DEVICES(3);
  on_groups(3, [](const Communicator& group) {
    const bool is_last = group.rank() == 2;
    expect_throws<CollectiveMismatch>(
        [&] {
          (void)group.split(is_last ? std::vector<int>{1, 0} : std::vector<int>{0, 1});
        },
        "split: expected the same call on every rank, but rank 0 called split({0, 1}) and rank 2 "
        "called split({1, 0})");
    expect_throws<CollectiveMismatch>(
        [&] {
          (void)(is_last ? group.split(0) : group.split({0, 1, 2}));
        },
        "rank 0 called split({0, 1, 2}) and rank 2 called split(color, key)");
    expect_throws<CollectiveMismatch>(
        [&] {
          (void)group.split({0, 2}, is_last ? "b" : "a");
        },
        "rank 0 called split({0, 2}) named 'a' and rank 2 called split({0, 2}) named 'b'");
    // The names of ranks that are in no group do not count.
    const Communicator alone = group.split({0}, "name of " + std::to_string(group.rank()));
    EXPECT_EQ(alone.defined(), group.rank() == 0);
    EXPECT_EQ(sum_over(group), 6);
  });
}

TEST_F(GroupNamesTest, RanksThatConnectNameTheirGroup) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::string address = "unix:@gantry-names-" + std::to_string(getpid());
  rank_threads(2, [&](int rank) {
    ConnectOptions options{
        .address = address, .rank = rank, .size = 2, .device = Device::cuda(rank), .name = "pipe"};
    const Communicator group = Communicator::connect(options);
    EXPECT_EQ(group.name(), "pipe");
    EXPECT_EQ(sum_over(group), 3);
    EXPECT_THAT(group.device_map()[0], StartsWith("rank 0 of pipe: "));
    options.address += "-2";
    options.name = rank == 0 ? "a" : "b";
    expect_throws<InvalidArgument>([&] { (void)Communicator::connect(options); },
                                   "expected one name on all ranks, but rank 0 has 'a' and rank 1 "
                                   "has 'b'");
    options.name = "x\ty";
    expect_throws<InvalidArgument>([&] { (void)Communicator::connect(options); },
                                   "printable characters");
  });
}

}  // namespace
}  // namespace gantry
