// Errors of the host transport when a rank fails, leaves or is late.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <thread>

#include <gantry/core/error.hpp>

#include "collectives/control/segment.hpp"
#include "collectives/host/links/links.hpp"
#include "collectives/selection/descriptor.hpp"
#include "tests/collectives/host/host_group.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/device_fixture.hpp"

namespace {

thread_local bool lacks_eventfds = false;

}  // namespace

// Replaces the system's function in this process.
extern "C" [[gnu::visibility("default")]] int eventfd(unsigned count, int flags) noexcept {
  if (lacks_eventfds) {
    errno = EMFILE;
    return -1;
  }
  return static_cast<int>(syscall(SYS_eventfd2, count, flags));
}

namespace gantry {
namespace {

using testing::Bytes;
using testing::expect_throws;
using testing::host_ranks;
using testing::HostRank;

constexpr std::size_t kSmall = 100;
constexpr std::size_t kLarge = 3'000'000;
constexpr auto kTimeout = std::chrono::seconds(60);

Descriptor describe(CollectiveKind kind, std::size_t count, int root = -1,
                    DType dtype = DType::f32) {
  return {.count = static_cast<std::int64_t>(count), .root = root, .kind = kind, .dtype = dtype};
}

Descriptor sum_of(std::size_t count) { return describe(CollectiveKind::all_reduce, count); }

// Each rank's elements are its rank plus one; the sum shows that the group works.
void expect_working(HostRank& self, std::size_t count) {
  std::vector<float> values(count, static_cast<float>(self.rank + 1));
  Bytes in(count * sizeof(float));
  std::memcpy(in.data(), values.data(), in.size());
  const Bytes out = self.run(sum_of(count), in, in.size());
  std::memcpy(values.data(), out.data(), out.size());
  const auto expected = static_cast<float>(self.size * (self.size + 1) / 2);
  EXPECT_EQ(values.front(), expected);
  EXPECT_EQ(values.back(), expected);
}

// Checks that the group works, and waits for all ranks before the test continues.
void begin_together(HostRank& self) {
  expect_working(self, 10);
  (void)self.bootstrap->all_gather("done");
}

// Runs `what` with arrays that are large enough for any kind.
Bytes run(HostRank& self, const Descriptor& what, std::size_t out_bytes = 0) {
  const std::size_t bytes = static_cast<std::size_t>(what.count) * element_size(what.dtype);
  const Bytes in(bytes * static_cast<std::size_t>(self.size), std::byte{1});
  return self.run(what, in, std::max(out_bytes, bytes * static_cast<std::size_t>(self.size)));
}

// Lets one thread wait for another.
class Signal {
 public:
  void raise() {
    const std::lock_guard lock(mutex_);
    raised_ = true;
    changed_.notify_all();
  }
  void await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return raised_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool raised_ = false;
};

TEST(HostFailureTest, MismatchesAreNamedOnEveryRankAndTheGroupStaysIntact) {
  GANTRY_REQUIRE_DEVICES(1);
  struct Case {
    Descriptor common;
    Descriptor other;
    const char* text;
  };
  // The operands count, and the bits of the scale.
  Descriptor matrix = sum_of(6);
  matrix.operands = operands_of(empty({2, 3}));
  Descriptor transposed = sum_of(6);
  transposed.operands = operands_of(empty({3, 2}));
  Descriptor zero = sum_of(4);
  zero.scale = 0;
  Descriptor negative = sum_of(4);
  negative.scale = -0.0;
  const Case cases[] = {
      {matrix, transposed,
       "rank 0 called all_reduce sum f32[2,3] and rank 2 called all_reduce sum f32[3,2]"},
      {zero, negative, "scale=0 and rank 2 called all_reduce sum f32[4] scale=-0"},
      {sum_of(4), sum_of(8),
       "rank 0 called all_reduce sum f32[4] and rank 2 called all_reduce sum f32[8]"},
      {sum_of(kLarge), sum_of(kSmall), "and rank 2 called all_reduce sum f32[100]"},
      {sum_of(kSmall), sum_of(kLarge), "and rank 2 called all_reduce sum f32[3000000]"},
      {sum_of(4), describe(CollectiveKind::barrier, 0), "and rank 2 called barrier"},
      {describe(CollectiveKind::broadcast, 4, 0), describe(CollectiveKind::broadcast, 4, 1),
       "rank 0 called broadcast f32[4] root=0 and rank 2 called broadcast f32[4] root=1"},
      {describe(CollectiveKind::all_gather, kLarge),
       describe(CollectiveKind::all_gather, kLarge, -1, DType::f64),
       "rank 0 called all_gather f32[3000000] and rank 2 called all_gather f64[3000000]"},
  };
  host_ranks(3, [&](HostRank& self) {
    for (const Case& mixed : cases) {
      const Descriptor& what = self.rank == 2 ? mixed.other : mixed.common;
      const Bytes before(16, std::byte{0x5a});
      expect_throws<CollectiveMismatch>([&] { run(self, what); }, mixed.text);
      expect_working(self, 10);
      expect_working(self, 100'000);
    }
  });
}

TEST(HostFailureTest, AMismatchChangesNothing) {
  GANTRY_REQUIRE_DEVICES(1);
  host_ranks(2, [](HostRank& self) {
    for (const std::size_t count : {kSmall, kLarge}) {
      const Tensor in = self.on_device(Bytes(count * 8, std::byte{1}));
      const Tensor out = self.on_device(Bytes(count * 8, std::byte{7}));
      const Descriptor what = sum_of(self.rank == 0 ? count : count * 2);
      EXPECT_THROW(self.transport->run({{what, in.data(), out.data()}, self.size}, self.stream),
                   CollectiveMismatch);
      EXPECT_EQ(self.on_host(out), Bytes(count * 8, std::byte{7}));
    }
  });
}

TEST(HostFailureTest, UnequalBlocksAreRefusedByAll) {
  GANTRY_REQUIRE_DEVICES(1);
  host_ranks(3, [](HostRank& self) {
    std::vector<std::int64_t> sends(3, 4), receives(3, 4);
    if (self.rank == 1) receives[2] = 5;
    expect_throws<CollectiveMismatch>(
        [&] { self.run(describe(CollectiveKind::all_to_all, 12), Bytes(64), 64, sends, receives); },
        "rank 2 sends 4 elements to rank 1, which expects 5");
    expect_working(self, 10);
  });
}

TEST(HostFailureTest, AReceiverThatExpectsSomethingElseTellsTheSender) {
  GANTRY_REQUIRE_DEVICES(1);
  host_ranks(2, [](HostRank& self) {
    // Large: both wait for each other.
    const std::size_t count = self.rank == 0 ? kLarge : kLarge + 1;
    expect_throws<CollectiveMismatch>(
        [&] {
          run(self, self.rank == 0 ? describe(CollectiveKind::send, count, 1)
                                   : describe(CollectiveKind::recv, count, 0));
        },
        "rank 0 called send f32[3000000] to 1 and rank 1 called recv f32[3000001] from 0");
    expect_working(self, 10);
    // Small: the sender has gone on, and learns it with its next operation.
    if (self.rank == 0) {
      run(self, describe(CollectiveKind::send, 5, 1));
      expect_throws<CollectiveMismatch>([&] { expect_working(self, 10); },
                                        "expected a recv of what is sent, but rank 0 called send "
                                        "f32[5] to 1 and rank 1 called recv f64[5] from 0");
    } else {
      expect_throws<CollectiveMismatch>(
          [&] { run(self, describe(CollectiveKind::recv, 5, 0, DType::f64)); },
          "rank 0 called send f32[5] to 1 and rank 1 called recv f64[5] from 0");
      expect_working(self, 10);
    }
    expect_working(self, 10);
  });
}

const std::string kRejected = "rank 0 called send f32[5] to 1 and rank 1 called recv f64[5] from 0";

// The receiver does not come to the sender's next collective before the sender has thrown.
TEST(HostFailureTest, ASenderLearnsOfItsRejectedMessageThoughTheReceiverGoesElsewhere) {
  GANTRY_REQUIRE_DEVICES(1);
  struct Case {
    Descriptor next;
    bool moves_data;        // that the entries do not hold
    bool is_received_late;  // behind a collective
  };
  std::vector<Case> cases;
  for (const bool late : {false, true}) {
    cases.push_back({sum_of(4), false, late});
    cases.push_back({describe(CollectiveKind::barrier, 0), false, late});
    cases.push_back({describe(CollectiveKind::broadcast, kSmall, 2), false, late});
    cases.push_back({sum_of(kLarge), true, late});
  }
  cases.push_back({describe(CollectiveKind::broadcast, kLarge, 2), true, false});
  std::vector<Signal> rejected(cases.size());
  std::vector<Signal> thrown(cases.size());
  const auto call = [&](HostRank& self) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const Case& one = cases[i];
      SCOPED_TRACE(one.next.str());
      if (self.rank == 0) run(self, describe(CollectiveKind::send, 5, 1));
      if (one.is_received_late) expect_working(self, 10);
      if (self.rank == 1) {
        expect_throws<CollectiveMismatch>(
            [&] { run(self, describe(CollectiveKind::recv, 5, 0, DType::f64)); }, kRejected);
        rejected[i].raise();
        thrown[i].await();
      }
      // The sender also learns it if the answer comes while it waits.
      if (self.rank == 0 && i % 2 == 0) rejected[i].await();
      const auto next = [&] { run(self, one.next); };
      if (self.rank == 0) {
        expect_throws<CollectiveMismatch>(next, kRejected);
        thrown[i].raise();
      } else if (one.moves_data) {
        expect_throws<CollectiveMismatch>(next, kRejected);
      } else {
        next();
      }
      expect_working(self, 10);
      expect_working(self, 100'000);
    }
  };
  host_ranks(3, call, kTimeout, [&] {
    for (Signal& signal : rejected) signal.raise();
    for (Signal& signal : thrown) signal.raise();
  });
}

TEST(HostFailureTest, ASenderLearnsOfItsRejectedMessageByASendToAnotherRank) {
  GANTRY_REQUIRE_DEVICES(1);
  Signal rejected;
  const auto call = [&](HostRank& self) {
    if (self.rank == 0) {
      run(self, describe(CollectiveKind::send, 5, 1));
      rejected.await();
      expect_throws<CollectiveMismatch>([&] { run(self, describe(CollectiveKind::send, 6, 2)); },
                                        kRejected);
    } else if (self.rank == 1) {
      expect_throws<CollectiveMismatch>(
          [&] { run(self, describe(CollectiveKind::recv, 5, 0, DType::f64)); }, kRejected);
      rejected.raise();
    } else {
      EXPECT_EQ(run(self, describe(CollectiveKind::recv, 6, 0)).front(), std::byte{1});
    }
    expect_working(self, 10);
  };
  host_ranks(3, call, kTimeout, [&] { rejected.raise(); });
}

// Links that wait behind the message with which a send begins.
class SlowLinks final : public HostLinks {
 public:
  explicit SlowLinks(std::unique_ptr<HostLinks> links) : links_(std::move(links)) {}

  std::string_view name() const override { return links_->name(); }
  void exchange(std::span<const Outgoing> sends, std::span<Incoming> receives) override {
    links_->exchange(sends, receives);
    if (sends.size() == 1 && receives.empty()) await_message(sends.front().rank);
  }
  void drive(ExchangeHandler& handler) override {
    links_->drive(handler);
    await_message(1);
  }
  bool has_message(int rank) noexcept override { return links_->has_message(rank); }
  void abort() noexcept override { links_->abort(); }
  void leave() noexcept override { links_->leave(); }
  void await_message(int rank) {
    while (is_slow && !links_->has_message(rank)) std::this_thread::yield();
  }

  bool is_slow = false;

 private:
  std::unique_ptr<HostLinks> links_;
};

// Returns the links of a transport that this rank uses instead of its own.
std::shared_ptr<SlowLinks> use_slow_links(HostRank& self) {
  const LinkGroup group{.rank = self.rank, .size = self.size, .timeout = std::chrono::seconds(5)};
  auto links = std::make_shared<SlowLinks>(make_tcp_links(*self.bootstrap, group));
  self.transport =
      std::make_unique<HostTransport>(Membership{self.rank, self.size, self.device}, links);
  return links;
}

TEST(HostFailureTest, ASendDoesNotThrowItsOwnRejectionHoweverEarlyTheAnswer) {
  GANTRY_REQUIRE_DEVICES(1);
  host_ranks(2, [](HostRank& self) {
    const auto links = use_slow_links(self);
    for (const bool together : {false, true}) {
      if (self.rank == 0) {
        links->is_slow = true;
        const Tensor in = self.on_device(Bytes(20));
        const Descriptor send = describe(CollectiveKind::send, 5, 1);
        const ResolvedCall call({send, in.data(), nullptr}, self.size);
        if (together) {
          self.transport->run_together({&call, 1}, self.stream);
        } else {
          self.transport->run(call, self.stream);
        }
        links->is_slow = false;
        expect_throws<CollectiveMismatch>([&] { expect_working(self, 10); }, kRejected);
      } else {
        expect_throws<CollectiveMismatch>(
            [&] { run(self, describe(CollectiveKind::recv, 5, 0, DType::f64)); }, kRejected);
        expect_working(self, 10);
      }
      expect_working(self, 10);
    }
  });
}

TEST(HostFailureTest, MessagesBehindASendToARankInACollectiveThrow) {
  GANTRY_REQUIRE_DEVICES(1);
  const std::vector<Descriptor> messages{describe(CollectiveKind::recv, 6, 1),
                                         describe(CollectiveKind::send, kLarge, 1)};
  host_ranks(2, [&](HostRank& self) {
    const auto links = use_slow_links(self);
    for (const Descriptor& message : messages) {
      for (const bool together : {false, true}) {
        SCOPED_TRACE(message.str());
        const std::string text = "called " + message.str();
        if (self.rank == 0) {
          links->is_slow = true;  // until the entry has arrived
          run(self, describe(CollectiveKind::send, 5, 1));
          links->is_slow = false;
          const Tensor data = self.on_device(Bytes(kLarge * 4));
          const ResolvedCall call({message, data.data(), data.data()}, self.size);
          expect_throws<CollectiveMismatch>(
              [&] {
                if (together) {
                  self.transport->run_together({&call, 1}, self.stream);
                } else {
                  self.transport->run(call, self.stream);
                }
              },
              text);
        } else {
          expect_throws<CollectiveMismatch>([&] { expect_working(self, 10); }, text);
          EXPECT_EQ(run(self, describe(CollectiveKind::recv, 5, 0)).front(), std::byte{1});
        }
        expect_working(self, 10);
      }
    }
  });
}

TEST(HostFailureTest, SendersAndReceiversWhosePeersAreInACollectiveThrow) {
  GANTRY_REQUIRE_DEVICES(1);
  host_ranks(3, [](HostRank& self) {
    for (const Descriptor& odd :
         {describe(CollectiveKind::recv, kSmall, 0), describe(CollectiveKind::send, kLarge, 0)}) {
      expect_throws<CollectiveMismatch>(
          [&] { run(self, self.rank == 1 ? odd : sum_of(8)); },
          "rank 0 called all_reduce sum f32[8] and rank 1 called " + odd.str());
      expect_working(self, 10);
    }
    // The message that was withdrawn is not received later.
    if (self.rank == 1) run(self, describe(CollectiveKind::send, 3, 0));
    if (self.rank == 0) {
      EXPECT_EQ(run(self, describe(CollectiveKind::recv, 3, 1)).front(), std::byte{1});
    }
    expect_working(self, 10);
  });
}

TEST(HostFailureTest, ARankThatLeavesInTheMiddleIsLostToAll) {
  GANTRY_REQUIRE_DEVICES(1);
  for (const Descriptor& what :
       {sum_of(kSmall), sum_of(kLarge), describe(CollectiveKind::recv, kLarge, 2)}) {
    host_ranks(3, [&](HostRank& self) {
      begin_together(self);
      if (self.rank == 2) {
        self.transport.reset();
        return;
      }
      for (int attempt = 0; attempt < 2; ++attempt) {
        expect_throws<PeerLostError>(
            [&] { run(self, what); },
            "rank 2 has left the job; the communicator of 3 ranks is unusable");
      }
    });
  }
}

TEST(HostFailureTest, ARankThatIsLateIsNamedByAll) {
  GANTRY_REQUIRE_DEVICES(1);
  std::array<Signal, 3> given_up;  // by rank
  host_ranks(
      3,
      [&](HostRank& self) {
        begin_together(self);
        if (self.rank == 1) {
          given_up[0].await();
          given_up[2].await();
          // The data that the others sent before may arrive before the news of their end: then the
          // next operation fails.
          expect_throws<TimeoutError>(
              [&] {
                run(self, sum_of(kSmall));
                run(self, sum_of(kSmall));
              },
              "rank 1 did not enter the operation in time");
          return;
        }
        expect_throws<TimeoutError>([&] { run(self, sum_of(kSmall)); },
                                    "1 did not enter the operation");
        given_up[static_cast<std::size_t>(self.rank)].raise();
      },
      std::chrono::seconds(5),  // in which ranks that are not late come
      [&] {
        for (Signal& signal : given_up) signal.raise();
      });
}

TEST(HostFailureTest, AbortReachesRanksThatWait) {
  GANTRY_REQUIRE_DEVICES(1);
  host_ranks(3, [](HostRank& self) {
    begin_together(self);
    if (self.rank == 0) self.transport->abort();
    expect_throws<PeerLostError>([&] { run(self, sum_of(kSmall)); },
                                 "rank 0 aborted; the communicator of 3 ranks is unusable");
  });
}

TEST(HostFailureTest, ARankThatFailsBringsDownTheOthers) {
  GANTRY_REQUIRE_DEVICES(1);
  GANTRY_REQUIRE_SIM();
  host_ranks(3, [](HostRank& self) {
    begin_together(self);
    if (self.rank == 1) {
      void* const too_short = driver().allocate(self.device.index, 4096);
      EXPECT_THROW(
          self.transport->run({{sum_of(kLarge), too_short, too_short}, self.size}, self.stream),
          CudaError);
      driver().deallocate(self.device.index, too_short);
      return;
    }
    expect_throws<PeerLostError>([&] { run(self, sum_of(kLarge)); }, "rank 1 aborted");
  });
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST(HostFailureTest, ARankWithoutADescriptorToBeWokenByFailsAllAndLeaksNone) {
  constexpr int kRanks = 3;
  auto bootstraps = make_local_bootstraps(kRanks);
  const auto link = [&](int rank) {
    return make_tcp_links(*bootstraps[static_cast<std::size_t>(rank)], {rank, kRanks});
  };
  const std::ptrdiff_t before = open_descriptors();
  testing::rank_threads(kRanks, [&](int rank) {
    lacks_eventfds = rank == 1;
    expect_throws<Error>([&] { link(rank); },
                         "Failed connecting 3 ranks by TCP: rank 1: host links: no eventfd: Too "
                         "many open files. GANTRY_HOST_INTERFACE");
  });
  EXPECT_EQ(open_descriptors(), before);
  testing::rank_threads(kRanks, [&](int rank) { EXPECT_EQ(link(rank)->name(), "tcp"); });
}

}  // namespace
}  // namespace gantry
