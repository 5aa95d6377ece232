// Every kernel of collectives, warp by warp, in orders and on memory that no machine here shows.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include <gantry/core/env.hpp>

#include "collectives/control/fault_words.hpp"
#include "tests/collectives/protocol/explored_calls.hpp"
#include "tests/collectives/protocol/explored_registered.hpp"

namespace gantry::protocol {
namespace {

constexpr Algorithm kAll[] = {Algorithm::ll, Algorithm::ll128, Algorithm::ll128_two_shot,
                              Algorithm::one_shot, Algorithm::two_shot};
constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce,     CollectiveKind::reduce,
                                     CollectiveKind::broadcast,      CollectiveKind::all_gather,
                                     CollectiveKind::reduce_scatter, CollectiveKind::gather,
                                     CollectiveKind::scatter,        CollectiveKind::all_to_all};

// Calls `explore` with as many seeds as are asked for; it returns what went wrong.
template <class Explore>
void explore_seeds(std::uint64_t rounds, const Explore& explore) {
  rounds = static_cast<std::uint64_t>(
      env::get_int("GANTRY_TEST_ROUNDS", 1, 1'000'000).value_or(static_cast<int>(rounds)));
  const auto first =
      static_cast<std::uint64_t>(env::get_int("GANTRY_TEST_SEED", 0, 1 << 30).value_or(0));
  for (std::uint64_t seed = first; seed < first + rounds; ++seed) {
    const std::string failure = explore(seed);
    ASSERT_EQ(failure, "") << "GANTRY_TEST_SEED=" << seed;
  }
}

int drawn_rank(Exploration& exploration, int ranks) {
  return static_cast<int>(exploration.draw(static_cast<std::uint64_t>(ranks)));
}

// One of the ranks stops at some time.
void lose_one(ExploredRanks& ranks) {
  ranks.lose(drawn_rank(ranks.exploration(), ranks.size()), ranks.exploration().draw(600));
}

// A call by `algorithm`, of any kind and size that it serves.
ExploredCall drawn(Exploration& exploration, Algorithm algorithm, int ranks) {
  ExploredCall call;
  call.algorithm = algorithm;
  do {
    call.kind = kKinds[exploration.draw(std::size(kKinds))];
  } while (!can_serve(algorithm, call.kind));
  // Some chunks, or more than there are slots.
  const std::uint64_t most = exploration.draw(3) == 0 ? 900 : 90;
  call.count = static_cast<std::int64_t>(exploration.draw(most));
  call.root = drawn_rank(exploration, ranks);
  call.blocks = 1 + static_cast<int>(exploration.draw(2));
  call.in_place = exploration.draw(2) == 0;
  // A weakness would make addresses of anything.
  call.may_open = exploration.weakness == Weakness::none && exploration.draw(2) == 0;
  if (call.may_open) {
    if (exploration.draw(2) == 0) call.count = call.count / 4 * 4;  // slices of whole words
    if (exploration.draw(3) == 0) call.closed = drawn_rank(exploration, ranks);
  }
  const bool is_uneven = algorithm == Algorithm::one_shot && exploration.draw(2) == 0;
  if (call.kind == CollectiveKind::all_to_all && is_uneven) {
    call.counts.resize(static_cast<std::size_t>(ranks));
    for (auto& row : call.counts) {
      for (int p = 0; p < ranks; ++p) {
        row.push_back(static_cast<std::int64_t>(exploration.draw(most)));
      }
    }
  }
  return call;
}

Algorithm drawn_algorithm(Exploration& exploration, int ranks) {
  Algorithm algorithm;
  do {
    algorithm = kAll[exploration.draw(std::size(kAll))];
  } while (needs_three_ranks(algorithm) && ranks < 3);
  return algorithm;
}

int ranks_for(Algorithm algorithm, std::uint64_t seed) {
  return needs_three_ranks(algorithm) ? 3 + static_cast<int>(seed % 2)
                                      : 2 + static_cast<int>(seed % 3);
}

std::string explore_algorithm(Algorithm algorithm, std::uint64_t seed,
                              Weakness weakness = Weakness::none) {
  ExploredRanks ranks(ranks_for(algorithm, seed), seed, weakness);
  ExploredCalls calls(ranks);
  for (int i = 0; i < 4; ++i) calls.add(drawn(ranks.exploration(), algorithm, ranks.size()));
  return ranks.run();
}

class ExplorationTest : public ::testing::TestWithParam<Algorithm> {};

TEST_P(ExplorationTest, EveryOrderGivesTheResult) {
  explore_seeds(100, [](std::uint64_t seed) { return explore_algorithm(GetParam(), seed); });
}

// After calls that differ every rank reports it, has its arrays as they were, and goes on.
TEST_P(ExplorationTest, CallsThatDiffer) {
  explore_seeds(30, [](std::uint64_t seed) {
    ExploredRanks ranks(ranks_for(GetParam(), seed), seed);
    ExploredCalls calls(ranks);
    for (int i = 0; i < 3; ++i) {
      ExploredCall call = drawn(ranks.exploration(), GetParam(), ranks.size());
      call.count += i == 1 ? 1 : 0;
      if (i == 1) call.mismatched = drawn_rank(ranks.exploration(), ranks.size());
      calls.add(call);
    }
    return ranks.run();
  });
}

// Whenever a rank stops, the others end.
TEST_P(ExplorationTest, LostRanks) {
  explore_seeds(30, [](std::uint64_t seed) {
    ExploredRanks ranks(ranks_for(GetParam(), seed), seed);
    ExploredCalls calls(ranks);
    for (int i = 0; i < 3; ++i) calls.add(drawn(ranks.exploration(), GetParam(), ranks.size()));
    lose_one(ranks);
    return ranks.run();
  });
}

INSTANTIATE_TEST_SUITE_P(Algorithms, ExplorationTest, ::testing::ValuesIn(kAll),
                         [](const auto& info) { return std::string(name(info.param)); });

std::string explore_messages(std::uint64_t seed, Weakness weakness = Weakness::none,
                             bool loses_one = false) {
  ExploredRanks ranks(2 + static_cast<int>(seed % 2), seed, weakness);
  ExploredCalls calls(ranks);
  for (int i = 0; i < 5; ++i) {
    const int from = drawn_rank(ranks.exploration(), ranks.size());
    const int to = (from + 1) % ranks.size();
    // A slot has room for 512 elements, and a block has four.
    const std::uint64_t most = ranks.exploration().draw(2) == 0 ? 600 : 6000;
    calls.add_message(from, to, static_cast<std::int64_t>(ranks.exploration().draw(most)), 2);
  }
  if (loses_one) lose_one(ranks);
  return ranks.run();
}

TEST(ExplorationOfMessagesTest, EveryOrderGivesTheResult) {
  explore_seeds(100, [](std::uint64_t seed) { return explore_messages(seed); });
}
TEST(ExplorationOfMessagesTest, LostRanks) {
  explore_seeds(30,
                [](std::uint64_t seed) { return explore_messages(seed, Weakness::none, true); });
}

std::string explore_registered(std::uint64_t seed, Weakness weakness = Weakness::none,
                               bool loses_one = false) {
  ExploredRanks ranks(2 + static_cast<int>(seed % 2), seed, weakness);
  ExploredRegistered registered(ranks);
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t which = ranks.exploration().draw(3);
    if (which == 2) {
      registered.broadcast_by_copies(drawn_rank(ranks.exploration(), ranks.size()));
    } else {
      registered.all_reduce(1 + static_cast<int>(ranks.exploration().draw(2)), which == 1);
    }
  }
  if (loses_one) lose_one(ranks);
  return ranks.run();
}

TEST(ExplorationOfRegisteredMemoryTest, EveryOrderGivesTheResult) {
  explore_seeds(100, [](std::uint64_t seed) { return explore_registered(seed); });
}
TEST(ExplorationOfRegisteredMemoryTest, LostRanks) {
  explore_seeds(30,
                [](std::uint64_t seed) { return explore_registered(seed, Weakness::none, true); });
}

// All kinds of kernels in turn, messages beside them.
TEST(ExplorationOfEverythingTest, EveryOrderGivesTheResult) {
  explore_seeds(100, [](std::uint64_t seed) {
    ExploredRanks ranks(2 + static_cast<int>(seed % 3), seed);
    ExploredCalls calls(ranks);
    ExploredRegistered registered(ranks);
    Exploration& exploration = ranks.exploration();
    for (int i = 0; i < 6; ++i) {
      const std::uint64_t which = exploration.draw(8);
      if (which == 0) {
        registered.all_reduce(2, exploration.draw(2) == 0);
      } else if (which == 1) {
        calls.add_message(0, 1, static_cast<std::int64_t>(exploration.draw(2000)), 2);
      } else {
        ExploredCall call =
            drawn(exploration, drawn_algorithm(exploration, ranks.size()), ranks.size());
        if (which == 2) {
          ++call.count;
          call.mismatched = drawn_rank(exploration, ranks.size());
        }
        calls.add(call);
      }
    }
    return ranks.run();
  });
}

// Kernels of two operation queues that fail at one time, while the host takes their faults.
std::string explore_faults(std::uint64_t seed, Weakness weakness = Weakness::none) {
  constexpr int kReporters = 2;
  constexpr int kReports = 3;
  DeviceWords words;
  Exploration exploration(kReporters + 1, seed, weakness);
  int reporting = kReporters;
  std::string failure;
  for (int reporter = 0; reporter < kReporters; ++reporter) {
    exploration.start(reporter, [&, reporter] {
      ExploredWords block(exploration, 0, 1);
      for (int i = 0; i < kReports; ++i) {
        const int peer = reporter * kReports + i;
        report_fault(block, &words, Outcome::mismatch, peer,
                     100u + static_cast<std::uint64_t>(peer),
                     1u + static_cast<std::uint32_t>(peer));
      }
      --reporting;
    });
  }
  int taken = 0;
  exploration.start(kReporters, [&] {
    FaultWords host(words);
    while (reporting > 0 || words.fault != 0) {
      exploration.wait();
      const auto fault = host.peek();
      if (!fault) continue;
      const auto peer = static_cast<std::uint32_t>(fault->peer);
      if (fault->call != 100u + peer || fault->word != fault_word(fault->fault(), 1u + peer)) {
        failure = "call " + std::to_string(fault->call) + " with rank " + std::to_string(peer);
      }
      taken += host.take(*fault) ? 1 : 0;
      exploration.changed();
    }
  });
  if (!exploration.run()) return "somebody waits for ever";
  if (failure.empty() && taken == 0) return "no fault was seen";
  return failure;
}

TEST(ExplorationOfFaultWordsTest, CallAndPeerBelongTogether) {
  explore_seeds(1000, [](std::uint64_t seed) { return explore_faults(seed); });
}

// What kernels or memory leave out is seen, so that the tests above mean something.
class ExplorationOfFaultsTest : public ::testing::TestWithParam<std::pair<const char*, Weakness>> {
};

TEST_P(ExplorationOfFaultsTest, WhatIsLeftOutIsSeen) {
  const auto [what, weakness] = GetParam();
  const auto explore = [&](std::uint64_t seed) {
    if (what == std::string("messages")) return explore_messages(seed, weakness);
    if (what == std::string("registered")) return explore_registered(seed, weakness);
    if (what == std::string("faults")) return explore_faults(seed, weakness);
    for (const Algorithm algorithm : kAll) {
      if (name(algorithm) == what) return explore_algorithm(algorithm, seed, weakness);
    }
    return std::string();
  };
  constexpr std::uint64_t kMostSeeds = 200;
  std::uint64_t seed = 0;
  while (seed < kMostSeeds && explore(seed).empty()) ++seed;
  EXPECT_LT(seed, kMostSeeds);
}

std::string fault_name(const ::testing::TestParamInfo<std::pair<const char*, Weakness>>& info) {
  constexpr const char* kNames[] = {"none", "releases", "barriers", "roles",
                                    "ll",   "ll128",    "rereads",  "claims"};
  return info.param.first + std::string("_without_") + kNames[static_cast<int>(info.param.second)];
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, ExplorationOfFaultsTest,
    ::testing::Values(
        std::pair("one_shot", Weakness::releases), std::pair("two_shot", Weakness::releases),
        std::pair("messages", Weakness::releases), std::pair("registered", Weakness::releases),
        std::pair("one_shot", Weakness::roles), std::pair("two_shot", Weakness::roles),
        std::pair("messages", Weakness::barriers), std::pair("registered", Weakness::barriers),
        std::pair("ll", Weakness::ll), std::pair("ll128", Weakness::ll128),
        std::pair("ll128_two_shot", Weakness::ll128), std::pair("ll128", Weakness::rereads),
        std::pair("ll128_two_shot", Weakness::rereads), std::pair("faults", Weakness::claims),
        std::pair("faults", Weakness::releases)),
    fault_name);

}  // namespace
}  // namespace gantry::protocol
