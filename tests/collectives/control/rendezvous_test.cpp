// Host calls at which all ranks meet, and what a group says of ranks that end, fail or are late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <gantry/collectives/collective_mismatch.hpp>
#include <gantry/core/error.hpp>

#include "collectives/call.hpp"
#include "collectives/control/segment.hpp"
#include "tests/collectives/control/control_group.hpp"

namespace gantry {
namespace {

using std::chrono::milliseconds;
using testing::ControlGroup;
using ::testing::ElementsAre;
using testing::FlightFolder;
using ::testing::HasSubstr;
using testing::rank_threads;
using testing::text_of;

Descriptor sum_of(std::int64_t call) {
  return {.call = call, .count = 8, .kind = CollectiveKind::all_reduce, .dtype = f32};
}

void record(ControlSegment& rank, std::int64_t call) {
  rank.record({.what = sum_of(call)}, Algorithm::one_shot, 32, 7);
}

// A host call, and the collectives of its rank before it.
struct HostCallAt {
  HostCall call;
  std::uint64_t collectives;
};

TEST(RendezvousTest, RanksThatMeetForOtherCallsOrAtOtherPlacesAreNamed) {
  const FlightFolder folder;
  const HostCallAt usual{HostCall::split, 5};
  for (const HostCallAt other : {HostCallAt{HostCall::window, 5}, HostCallAt{HostCall::split, 6},
                                 HostCallAt{HostCall::split, 4}, HostCallAt{HostCall::grow, 6}}) {
    ControlGroup group(3);
    std::vector<std::string> texts(3);
    rank_threads(3, [&](int rank) {
      const HostCallAt mine = rank == 2 ? other : usual;
      for (std::uint64_t call = 1; call <= mine.collectives; ++call) {
        record(group[rank], static_cast<std::int64_t>(call));
      }
      try {
        group[rank].rendezvous(mine.call, mine.collectives);
      } catch (const CollectiveMismatch& error) {
        EXPECT_THAT(error.ranks(), ElementsAre(0, 2));
        texts[static_cast<std::size_t>(rank)] = error.what();
      }
      EXPECT_FALSE(group[rank].broken()) << "all have come";
      group[rank].rendezvous(HostCall::host_barrier, 9);
    });
    for (const std::string& text : texts) {
      EXPECT_EQ(text, texts[0]);
      EXPECT_THAT(text, HasSubstr("rank 0 called"));
      EXPECT_THAT(text, HasSubstr("rank 2 called"));
      EXPECT_THAT(text,
                  HasSubstr(other.collectives == usual.collectives ? "window" : "all_reduce"));
    }
  }
}

TEST(RendezvousTest, ATimeoutNamesTheRankThatIsFurthestBehind) {
  const FlightFolder folder;
  const std::vector<std::vector<std::int64_t>> calls{{3, 3, 1, 2}, {3, 2, 3, 1}, {1, 3, 2, 3}};
  const std::vector<int> late{2, 3, 2};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    ControlGroup group(4);
    for (int rank = 0; rank < 4; ++rank) {
      for (std::int64_t call = 1; call <= calls[i][static_cast<std::size_t>(rank)]; ++call) {
        record(group[rank], call);
      }
    }
    const TimeoutError cause("the call took too long");
    EXPECT_EQ(text_of<TimeoutError>([&] { group[0].diagnose_timeout(sum_of(3), cause); }),
              "the call took too long");
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(group[rank].failed_rank(), late[i]) << i;
  }
}

TEST(RendezvousTest, TheEndOfAProcessIsALossUnlessItsRankHadFinished) {
  const FlightFolder folder;
  ControlGroup group(3);
  const std::uint64_t fence = group[1].announce();
  group[1].finish(milliseconds(0));
  group[0].mark_dead(1);
  EXPECT_FALSE(group[0].broken());
  // It had come to the fence before it left, and to no later one.
  EXPECT_NO_THROW(group[0].check_peers(fence));
  EXPECT_THAT(text_of<PeerLostError>([&] { group[0].check_peers(fence + 1); }),
              HasSubstr("rank 1 has left the job"));
  ControlGroup other(3);
  other[0].mark_dead(2);
  EXPECT_THAT(text_of<PeerLostError>([&] { other[1].require_intact(); }), HasSubstr("rank 2 died"));
}

TEST(RendezvousTest, TheFirstFailureIsTheOneThatIsTold) {
  const FlightFolder folder;
  ControlGroup group(3);
  group[1].mark_late(2, "the cause", "all_reduce", flight::kLateToCall);
  group[1].mark_late(0, "a consequence", "barrier", flight::kLateToCall);
  group[0].abort();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(group[rank].failed_rank(), 2);
    EXPECT_EQ(text_of<TimeoutError>([&] { group[rank].require_intact(); }), "the cause");
  }
  const auto state = [&](int rank) {
    return static_cast<flight::State>(group[0].view().rank(rank).state.load());
  };
  EXPECT_EQ(state(0), flight::State::running) << "it has not broken the group";
  ControlGroup other(2);
  other[0].abort();
  EXPECT_EQ(static_cast<flight::State>(other[1].view().rank(0).state.load()),
            flight::State::aborted);
}

}  // namespace
}  // namespace gantry
