#include "collectives/bootstrap/bootstrap.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <latch>

#include <gantry/core/error.hpp>
#include <gantry/extend/store.hpp>

#include "tests/collectives/control/control_group.hpp"
#include "tests/job/store_peer.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/rank_processes.hpp"

namespace gantry {
namespace {

using std::chrono::milliseconds;
using testing::ControlGroup;
using testing::FlightFolder;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::rank_threads;
using testing::RankCommand;
using testing::RankProcesses;
using testing::text_of;

// The text of rank `rank` in round `round`: sometimes empty, sometimes longer than one chunk.
std::string speech(int rank, int round) {
  const std::size_t lengths[] = {5, 0, 4031, 4032, 4033, 20'000};
  return std::string(lengths[static_cast<std::size_t>(rank + round) % 6],
                     static_cast<char>('a' + rank)) +
         fmt::format("{}", round);
}

void expect_exchange(Bootstrap& bootstrap, int rank, int size, int rounds = 12) {
  for (int round = 0; round < rounds; ++round) {
    const std::vector<std::string> all = bootstrap.all_gather(speech(rank, round));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(size));
    for (int other = 0; other < size; ++other) {
      EXPECT_EQ(all[static_cast<std::size_t>(other)], speech(other, round)) << rank << " " << round;
    }
  }
}

// Members in another order than their ranks, twice by the same name, beside the whole.
void expect_subsets(Bootstrap& bootstrap, int rank) {
  const std::vector<int> members{3, 0, 2};
  for (int times = 0; times < 2; ++times) {
    if (rank != 1) {
      const auto part = bootstrap.subset(members, "some");
      const int index = rank == 3 ? 0 : rank == 0 ? 1 : 2;
      expect_exchange(*part, index, 3);
      if (rank != 2) {
        const auto pair = part->subset({1, 0}, "pair");
        expect_exchange(*pair, rank == 0 ? 0 : 1, 2);
      }
    }
    expect_exchange(bootstrap, rank, 4, 3);
  }
}

TEST(LocalBootstrapTest, ExchangesBetweenThreads) {
  auto all = make_local_bootstraps(4);
  rank_threads(4, [&](int rank) {
    Bootstrap& mine = *all[static_cast<std::size_t>(rank)];
    expect_exchange(mine, rank, 4);
    expect_subsets(mine, rank);
  });
}

TEST(LocalBootstrapTest, ALateRankIsATimeout) {
  auto all = make_local_bootstraps(2, milliseconds(20));
  EXPECT_THAT(text_of<TimeoutError>([&] { (void)all[0]->all_gather("x"); }),
              HasSubstr("Communicator: rank 0 waited 20 ms, but rank(s) 1 did not come"));
}

ProcessIdentity member(int rank, int size, const std::string& address) {
  ProcessIdentity identity;
  identity.rank = rank;
  identity.world_size = size;
  identity.source = "torchrun";
  identity.rendezvous = address;
  return identity;
}

TEST(StoreBootstrapTest, ExchangesAndDividesOverAStore) {
  const std::string address = fmt::format("unix:@gantry-bootstrap-{}", getpid());
  rank_threads(4, [&](int rank) {
    const auto mine = make_store_bootstrap(member(rank, 4, address), milliseconds(20'000));
    expect_exchange(*mine, rank, 4);
    expect_subsets(*mine, rank);
    mine->leave();
    EXPECT_THROW((void)mine->all_gather(""), PeerLostError);
    EXPECT_EQ(mine->lost_rank(), -1);
  });
}

// Texts that are longer than a value of the store, of one rank or of all.
TEST(StoreBootstrapTest, ExchangesTextsOfAnyLength) {
  const std::string address = fmt::format("unix:@gantry-bootstrap-long-{}", getpid());
  rank_threads(2, [&](int rank) {
    const auto mine = make_store_bootstrap(member(rank, 2, address), milliseconds(60'000));
    for (const std::size_t length : {kStoreMaxValueBytes + 1, 2 * kStoreMaxValueBytes}) {
      const std::vector<std::string> texts{std::string(length, 'x').append("end"), "short"};
      const std::vector<std::string> all = mine->all_gather(texts[static_cast<std::size_t>(rank)]);
      EXPECT_TRUE(all == texts);
    }
    expect_exchange(*mine, rank, 2);
    mine->leave();
  });
}

// An address of this machine without a listener.
std::string free_address() {
  const auto pid = static_cast<unsigned>(getpid());
  return fmt::format("tcp:127.{}.{}.{}:29500", 1 + pid / 65536 % 254, pid / 256 % 256, pid % 256);
}

TEST(StoreBootstrapTest, ProcessesRendezvousAtATcpAddressWithoutALauncher) {
  const FlightFolder folder;
  RankProcesses ranks(
      RankCommand{.ranks = 3,
                  .argv = {std::string(GANTRY_TEST_PROGRAM_DIR) + "/watchdog_actor", "check"},
                  .environment = {{"GANTRY_RDZV_TOKEN", "a secret of these ranks"}},
                  .address = free_address()});
  for (int rank = 0; rank < 3; ++rank) {
    const Outcome outcome = ranks[rank].wait();
    EXPECT_EQ(outcome.exit_code, 0) << rank << outcome.describe();
    EXPECT_THAT(outcome.out, HasSubstr(fmt::format("rank {} of 3 by torchrun", rank)));
  }
}

// Somebody between two ranks is no fault of the rank that serves the store.
TEST(StoreBootstrapTest, AChangedMessageIsToldAsSuch) {
  const std::string address = free_address();
  const auto identity = [](int rank, const std::string& place) {
    ProcessIdentity one = member(rank, 2, place);
    one.rendezvous_token = "4f1c02a97be83d5560e7a1b3c9d8f264";
    return one;
  };
  const testing::StoreRelay relay(
      address, [](std::string bytes, int) { return bytes; },
      [](std::string bytes, int) {
        const auto at = bytes.find("right");
        return at == std::string::npos ? bytes : bytes.replace(at, 5, "wrong");
      });
  std::latch served(1);
  rank_threads(2, [&](int rank) {
    if (rank == 1) served.wait();
    const auto mine = make_store_bootstrap(identity(rank, rank == 0 ? address : relay.address()),
                                           milliseconds(20'000));
    if (rank == 0) {
      served.count_down();
      try {
        (void)mine->all_gather("right");
        (void)mine->all_gather("");  // keeps the store until the other rank is lost
      } catch (const PeerLostError& error) {
        EXPECT_EQ(error.rank(), 1);
      }
      return;
    }
    EXPECT_THAT(text_of<PeerLostError>([&] { (void)mine->all_gather("its own"); }),
                ::testing::AllOf(HasSubstr("was changed on its way"),
                                 ::testing::Not(HasSubstr("has ended"))));
  });
}

// No rank waits for a rank that threw.
TEST(StoreBootstrapTest, WithoutATokenEveryRankRefusesATcpAddressAtOnce) {
  for (const char* token : {"", "too short"}) {
    for (int rank = 0; rank < 2; ++rank) {
      ProcessIdentity identity = member(rank, 2, "tcp:10.0.0.1:29500");
      identity.rendezvous_token = token;
      EXPECT_THAT(
          text_of<InvalidArgument>(
              [&] { (void)make_store_bootstrap(identity, std::chrono::hours(1)); }),
          ::testing::AllOf(HasSubstr("GANTRY_RDZV_TOKEN: expected a secret of at least 16 bytes"),
                           HasSubstr("any process that reaches tcp:10.0.0.1:29500 could join")));
    }
  }
}

TEST(StoreBootstrapTest, RanksWithoutARendezvousThrowAtOnce) {
  ProcessIdentity identity = member(0, 2, "");
  identity.source = "environment";
  EXPECT_THAT(
      text_of<NotSupported>([&] { (void)make_bootstrap(identity, std::chrono::hours(1)); }),
      ::testing::AllOf(HasSubstr("GANTRY_RANK=0 and GANTRY_WORLD_SIZE=2 are set, but nothing says "
                                 "where the ranks meet"),
                       HasSubstr("set GANTRY_RDZV"), HasSubstr("MASTER_ADDR and MASTER_PORT")));
}

TEST(StoreBootstrapTest, AnEphemeralPortIsAnError) {
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(text_of<InvalidArgument>([&] {
                (void)make_store_bootstrap(member(rank, 2, "tcp:127.0.0.1:0"), milliseconds(10));
              }),
              "GANTRY_RDZV: expected a port that all ranks know, but got 'tcp:127.0.0.1:0'");
  }
}

TEST(StoreBootstrapTest, ALostRankDoesNotDisturbASubsetWithoutIt) {
  StoreServer server({.address = fmt::format("unix:@gantry-bootstrap-lost-{}", getpid())});
  rank_threads(4, [&](int rank) {
    ProcessIdentity identity = member(rank, 4, server.address());
    identity.source = "glaunch";
    const auto mine = make_store_bootstrap(identity, milliseconds(20'000));
    (void)mine->all_gather("here");
    if (rank == 1) server.mark_lost(1);
    if (rank != 1) {
      EXPECT_TRUE(testing::eventually([&] { return mine->lost_rank() >= 0; }));
      EXPECT_EQ(mine->lost_rank(), 1);
      const auto part = mine->subset({0, 2, 3}, "survivors");
      EXPECT_EQ(part->lost_rank(), -1);
      expect_exchange(*part, rank == 0 ? 0 : rank - 1, 3);
      const auto with_it = mine->subset({0, 1, 2, 3}, "all");
      try {
        (void)with_it->all_gather("x");
        ADD_FAILURE() << "the lost rank did not throw";
      } catch (const PeerLostError& error) {
        EXPECT_EQ(error.rank(), 1);
      }
    }
  });
}

TEST(SharedMemoryBootstrapTest, ExchangesWhenTheGroupIsBroken) {
  const FlightFolder folder;
  ControlGroup group(5);
  group[1].abort();
  rank_threads(5, [&](int rank) {
    if (rank == 1) return;
    const auto all = make_shared_memory_bootstrap(group[rank], {0, 2, 3, 4}, 1);
    const int index = rank == 0 ? 0 : rank - 1;
    expect_exchange(*all, index, 4);
    expect_subsets(*all, index);
    // A second bootstrap reuses the mailboxes, in another order.
    if (rank == 0) return;
    const auto some = make_shared_memory_bootstrap(group[rank], {4, 3, 2}, 2);
    expect_exchange(*some, 4 - rank, 3);
  });
}

TEST(SharedMemoryBootstrapTest, OutlivesItsGroup) {
  const FlightFolder folder;
  ControlGroup group(3);
  std::vector<std::unique_ptr<Bootstrap>> all;
  for (int rank = 0; rank < 3; ++rank) {
    all.push_back(make_shared_memory_bootstrap(group[rank], {0, 1, 2}, 7));
  }
  group.reset();
  rank_threads(3,
               [&](int rank) { expect_exchange(*all[static_cast<std::size_t>(rank)], rank, 3); });
}

TEST(SharedMemoryBootstrapTest, ALateMemberIsATimeoutAndLaterExchangesWork) {
  const FlightFolder folder;
  ControlGroup group(2, milliseconds(5000));  // in which both come to the second exchange
  const auto first = make_shared_memory_bootstrap(group[0], {0, 1}, 1);
  EXPECT_THAT(text_of<TimeoutError>([&] { (void)first->all_gather("x"); }),
              HasSubstr("rank 0 waited 5 s, but rank(s) 1 did not come"));
  rank_threads(2, [&](int rank) {
    const auto second = make_shared_memory_bootstrap(group[rank], {0, 1}, 2);
    expect_exchange(*second, rank, 2);
  });
}

}  // namespace
}  // namespace gantry
