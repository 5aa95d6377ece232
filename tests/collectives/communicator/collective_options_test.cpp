// Options of one call: its algorithm, its blocks and its tag.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/selection/selector.hpp"
#include "collectives/transport.hpp"
#include "job/flight_folder.hpp"
#include "job/group_report.hpp"
#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/flight_folder.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using testing::expect_throws;
using ::testing::HasSubstr;

// The newest call of rank 0 in the only group.
struct NewestCall {
  std::string text;
  std::string algorithm;
  std::int64_t number = 0;
  std::int64_t bytes = 0;

  static NewestCall find() {
    const flight::Listing listing = flight::read_files();
    const flight::View view = listing.files.at(0).view();
    const auto record = view.newest(0);
    if (!record) return {};
    return {view.text(*record), flight::algorithm_of(view, *record), record->call.number,
            record->bytes};
  }
};

class CollectiveOptionsTest : public testing::LocalGroupTest {
 protected:
  static Tensor ones_on(const Communicator& group, std::int64_t count = 1000) {
    return ones({count}, {.device = group.device()});
  }
  static void expect_value(const Tensor& tensor, float value) {
    EXPECT_EQ(tensor.amin().item<float>(), value);
    EXPECT_EQ(tensor.amax().item<float>(), value);
  }
  const testing::FlightFolder folder_;
};

TEST_F(CollectiveOptionsTest, TheCallTakesItsAlgorithm) {
  GANTRY_REQUIRE_DEVICES(3);
  on_ranks(3, [](CollectiveSuite& suite, Communicator& group) {
    for (const char* algorithm : {"ll", "one_shot", "two_shot", "one_shot", "ll"}) {
      const Tensor tensor = ones_on(group);
      group.all_reduce(tensor, {.algorithm = algorithm, .blocks = 3});
      expect_value(tensor, 3);
      group.host_barrier();
      const NewestCall newest = NewestCall::find();
      EXPECT_EQ(newest.algorithm, algorithm);
      EXPECT_THAT(
          newest.text,
          HasSubstr("all_reduce sum f32[1000] algorithm=" + std::string(algorithm) + " blocks=3"));
      group.host_barrier();
    }
    group.barrier({.algorithm = "one_shot"}).synchronize();
    const Tensor tensor = ones_on(group);
    group.all_reduce(tensor, {.algorithm = "auto"});
    expect_value(tensor, 3);
    suite.all_reduce(ReduceOp::sum, f32, 100, 0, {.scale = 0.3, .algorithm = "two_shot"});
  });
}

TEST_F(CollectiveOptionsTest, ItTakesPrecedenceOverTheVariable) {
  GANTRY_REQUIRE_DEVICES(3);
  setenv("GANTRY_COLL_ALGO", "two_shot", 1);
  on_ranks(3, [](CollectiveSuite&, Communicator& group) {
    const Tensor tensor = ones_on(group);
    group.all_reduce(tensor);
    group.host_barrier();
    EXPECT_EQ(NewestCall::find().algorithm, "two_shot");
    group.host_barrier();
    group.all_reduce(tensor, {.algorithm = "ll"});
    group.host_barrier();
    EXPECT_EQ(NewestCall::find().algorithm, "ll");
    expect_value(tensor, 9);
    group.host_barrier();
  });
}

TEST_F(CollectiveOptionsTest, RegisteredMemoryServesItsAlgorithms) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const Tensor tensor = ones_on(group, 4096);
    expect_throws<InvalidArgument>(
        [&] { group.all_reduce(tensor, {.algorithm = "zero_copy"}); },
        "all_reduce: expected an algorithm that serves the call, but got zero_copy: the tensor is "
        "not registered (register_memory())");
    group.register_memory(tensor);
    group.all_reduce(tensor, {.algorithm = "zero_copy"});
    expect_value(tensor, 2);
    group.host_barrier();
    EXPECT_EQ(NewestCall::find().algorithm, "zero_copy");
    group.host_barrier();
    group.deregister_memory(tensor);
  });
}

TEST_F(CollectiveOptionsTest, WrongOptionsAreRefusedBeforeAnythingIsEnqueued) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const Tensor tensor = ones_on(group);
    const Tensor large = ones_on(group, 100'000);
    const Tensor column = ones({1000, 2}, {.device = group.device()}).narrow(1, 0, 1);
    group.all_reduce(tensor);
    group.host_barrier();
    const std::int64_t calls = NewestCall::find().number;
    group.host_barrier();
    const auto refuses = [&](const CollectiveOptions& options, const std::string& phrase) {
      expect_throws<InvalidArgument>([&] { group.all_reduce(tensor, options); }, phrase);
      expect_throws<InvalidArgument>([&] { group.all_reduce(column, options); }, phrase);
      expect_throws<InvalidArgument>([&] { group.reduce(tensor, 0, options); }, phrase);
      expect_throws<InvalidArgument>(
          [&] { group.all_reduce_coalesced(std::vector<Tensor>{tensor}, options); }, phrase);
    };
    refuses({.algorithm = "ring"}, "expected an algorithm, auto, ll, ll128");
    refuses({.algorithm = "ring"}, "but got 'ring'");
    refuses({.algorithm = "p2p"}, "but got 'p2p'");
    refuses({.algorithm = "two_shot"}, "but got two_shot: it needs three ranks or more");
    refuses({.algorithm = "host"}, "but got host: it carries all operations of a group, or none");
    refuses({.blocks = -1}, "expected 0 to 64 blocks, but got -1");
    refuses({.blocks = 65}, "expected 0 to 64 blocks, but got 65");
    refuses({.tag = std::string(32, 'x')}, "expected a tag of at most 31 bytes, but got 32");
    expect_throws<InvalidArgument>([&] { group.all_reduce(large, {.algorithm = "ll"}); },
                                   "400000 bytes are more than it carries");
    expect_throws<InvalidArgument>(
        [&] {
          group.all_reduce_coalesced(std::vector<Tensor>{tensor, large.to(f64)},
                                     {.algorithm = "ll"});
        },
        "800000 bytes are more than it carries");
    expect_throws<InvalidArgument>(
        [&] { group.send(tensor, 1 - group.rank(), {.algorithm = "ll"}); },
        "send: expected an algorithm that serves the call, but got ll");
    expect_throws<InvalidArgument>(
        [&] {
          group.all_gather(ones_on(group, 3), ones_on(group, 1 + group.rank()), {1, 2},
                           {.algorithm = "ll"});
        },
        "all_gather: expected an algorithm that serves the call, but got ll: the blocks are of "
        "unequal size");
    expect_throws<InvalidArgument>([&] { group.barrier({.algorithm = "ll"}); },
                                   "barrier: expected an algorithm that serves the call");
    if (platform() == Platform::simulated) {
      refuses({.algorithm = "nccl"}, "but got nccl: it needs real GPUs");
    }
    {
      const MessageGroup messages = group.group();
      expect_throws<InvalidArgument>(
          [&] { group.send(tensor, 1 - group.rank(), {.algorithm = "ll"}); }, "send: expected");
      expect_throws<InvalidArgument>([&] { group.recv(tensor, 1 - group.rank(), {.blocks = 70}); },
                                     "recv: expected");
    }
    expect_value(tensor, 2);
    group.host_barrier();
    EXPECT_EQ(NewestCall::find().number, calls);
    group.host_barrier();
    group.all_reduce(tensor);
    expect_value(tensor, 4);
  });
}

TEST_F(CollectiveOptionsTest, AGroupOverTheHostHasOneAlgorithm) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_ALGO", "host", 1);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const Tensor tensor = ones_on(group);
    group.all_reduce(tensor, {.algorithm = "host", .tag = "by hand"});
    expect_value(tensor, 2);
    expect_throws<InvalidArgument>([&] { group.all_reduce(tensor, {.algorithm = "ll"}); },
                                   "but got ll: host carries all operations of this group");
    group.host_barrier();
  });
}

TEST_F(CollectiveOptionsTest, RanksThatDifferAreAMismatch) {
  GANTRY_REQUIRE_DEVICES(3);
  for (const char* transport : {"auto", "host"}) {
    setenv("GANTRY_COLL_ALGO", transport, 1);
    const bool is_host = std::string_view(transport) == "host";
    on_ranks(3, [&](CollectiveSuite& suite, Communicator& group) {
      const bool is_last = group.rank() == 2;
      const auto expect_mismatch = [&](const CollectiveOptions& first,
                                       const CollectiveOptions& other, const std::string& phrase) {
        const Tensor tensor = ones_on(group);
        expect_throws<CollectiveMismatch>(
            [&] { group.all_reduce(tensor, is_last ? other : first).synchronize(); }, phrase);
        expect_value(tensor, 1);
      };
      expect_mismatch({}, {.blocks = 2}, "rank 2 called all_reduce sum f32[1000] blocks=2");
      expect_mismatch({}, {.algorithm = is_host ? "host" : "one_shot"}, " algorithm=");
      if (!is_host) {
        for (const char* one : {"ll", "one_shot", "two_shot"}) {
          for (const char* two : {"ll", "one_shot", "two_shot"}) {
            if (std::string_view(one) == two) continue;
            expect_mismatch({.algorithm = one}, {.algorithm = two},
                            "rank 2 called all_reduce sum f32[1000] algorithm=" + std::string(two));
          }
        }
      }
      // Tags and timeouts may differ.
      const Tensor tensor = ones_on(group);
      group.all_reduce(tensor, {.tag = is_last ? "a" : "b",
                                .timeout = std::chrono::seconds(is_last ? 100 : 200)});
      expect_value(tensor, 3);
      suite.all_reduce(ReduceOp::sum, f32, 64);
    });
  }
}

TEST_F(CollectiveOptionsTest, TheTagStandsInRecordsAndErrors) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const std::string longest(31, 't');
    for (const std::string& tag : {std::string("loss"), longest, std::string("a\nb")}) {
      const Tensor tensor = ones_on(group);
      group.all_reduce(tensor, {.tag = tag});
      group.host_barrier();
      EXPECT_THAT(NewestCall::find().text,
                  HasSubstr("all_reduce sum f32[1000] tag=" + (tag == "a\nb" ? "a\\x0ab" : tag)));
      group.host_barrier();
    }
    group.all_reduce(ones_on(group));
    group.host_barrier();
    EXPECT_THAT(NewestCall::find().text, ::testing::Not(HasSubstr("tag")));
    group.host_barrier();
    expect_throws<CollectiveMismatch>(
        [&] {
          group.all_reduce(ones_on(group, 3 + group.rank()), {.tag = "step 7"}).synchronize();
        },
        "rank 0 called all_reduce sum f32[3] tag=step 7 and rank 1 called all_reduce sum f32[4] "
        "tag=step 7");
    {
      const MessageGroup messages = group.group();
      group.send(ones_on(group), 1 - group.rank(), {.tag = "there"});
      group.recv(ones_on(group), 1 - group.rank(), {.tag = "back"});
    }
    group.host_barrier();
    EXPECT_THAT(NewestCall::find().text, HasSubstr("recv f32[1000] from 1 tag=back"));
    group.host_barrier();
  });
}

// A transport that is asked for nothing.
class IdleTransport final : public Transport {
 public:
  std::string_view name() const override { return "idle"; }
  End run(const ResolvedCall&, const Stream&) override { return {}; }
  End run_together(std::span<const ResolvedCall>, const Stream&) override { return {}; }
};

TEST_F(CollectiveOptionsTest, TheRecordOfUnevenBlocksHasTheBytesOfItsRank) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const auto recorded = [&] {
      group.host_barrier();
      const std::int64_t bytes = NewestCall::find().bytes;
      group.host_barrier();
      return bytes;
    };
    const std::vector<std::int64_t> rows{3, 7};
    group.all_gather(ones_on(group, 10), ones_on(group, rows[rank]), rows);
    EXPECT_EQ(recorded(), 40);  // rank 0 receives more than it sends
    group.reduce_scatter(ones_on(group, rows[rank]), ones_on(group, 10), rows);
    EXPECT_EQ(recorded(), 40);
    const std::vector<std::int64_t> sent =
        rank == 0 ? std::vector<std::int64_t>{1, 5} : std::vector<std::int64_t>{2, 0};
    const std::vector<std::int64_t> received =
        rank == 0 ? std::vector<std::int64_t>{1, 2} : std::vector<std::int64_t>{5, 0};
    const std::int64_t out = received[0] + received[1];
    group.all_to_all(ones_on(group, out), ones_on(group, sent[0] + sent[1]), received, sent);
    EXPECT_EQ(recorded(), 24);
    group.all_to_all(ones_on(group, 6), ones_on(group, 6));
    EXPECT_EQ(recorded(), 24);
  });
}

TEST(ResolvedOptionsTest, BlocksTakeThePlaceOfTheTables) {
  IdleTransport peers;
  Selector selector = Selector::load(4, "*");
  CollectiveCall call{.what = {.count = 1 << 20, .kind = CollectiveKind::all_reduce}};
  const Choice of_table = resolve_over_peers(call, 4, selector, peers).choice;
  call.what.blocks = static_cast<std::uint8_t>(of_table.blocks + 1);
  EXPECT_EQ(resolve_over_peers(call, 4, selector, peers).choice,
            (Choice{of_table.algorithm, static_cast<std::uint16_t>(of_table.blocks + 1)}));
  call.what.algorithm = Algorithm::two_shot;
  selector.force(Algorithm::one_shot);
  EXPECT_EQ(resolve_over_peers(call, 4, selector, peers).choice.algorithm, Algorithm::two_shot);
}

}  // namespace
}  // namespace gantry
