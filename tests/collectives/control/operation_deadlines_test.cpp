// Deadlines of operations whose kernels report no progress.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/control/operation_deadlines.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using testing::expect_throws;
using testing::StreamHold;

class OperationDeadlinesTest : public testing::DeviceTest {
 protected:
  struct Failure {
    std::uint64_t call;
    std::exception_ptr why;
  };
  // What the threads of the deadlines share with a test.
  struct Shared {
    std::promise<Failure> failure;
    std::atomic<int> looks{0};
    std::atomic<bool> has_error{false};
    std::atomic<int> failures{0};
  };

  std::unique_ptr<OperationDeadlines> make(std::chrono::milliseconds timeout) {
    return std::make_unique<OperationDeadlines>(
        0, timeout,
        OperationDeadlines::Actions{
            .find_error = [shared = shared_](const std::string& text) -> std::exception_ptr {
              ++shared->looks;
              if (!shared->has_error) return nullptr;
              return std::make_exception_ptr(NcclError(text + ": failed: unhandled system error"));
            },
            .on_failure =
                [shared = shared_](std::uint64_t call, std::exception_ptr why) {
                  if (shared->failures++ == 0) shared->failure.set_value({call, std::move(why)});
                },
            .cause = "a rank did not come"});
  }
  Failure await() { return shared_->failure.get_future().get(); }

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

TEST_F(OperationDeadlinesTest, AnOperationThatDoesNotEndIsLate) {
  const auto deadlines = make(std::chrono::milliseconds(300));
  const Stream stream = Stream::from_pool(Device::cuda(0));
  for (std::uint64_t call = 1; call <= 3; ++call) {
    deadlines->begin(stream, call, "before");
    deadlines->end(stream);
  }
  deadlines->begin(stream, 7, "collective: #7 all_reduce");
  StreamHold hold(stream);
  deadlines->end(stream);
  deadlines->begin(stream, 8, "behind");
  deadlines->end(stream);
  const Failure failure = await();
  EXPECT_EQ(failure.call, 7u);
  expect_throws<TimeoutError>([&] { std::rethrow_exception(failure.why); },
                              "collective: #7 all_reduce did not finish within 300 ms: a rank did "
                              "not come (GANTRY_COLL_TIMEOUT sets the deadline)");
  hold.release();
  stream.synchronize();
  EXPECT_EQ(shared_->failures, 1);
}

TEST_F(OperationDeadlinesTest, TimeBehindOtherWorkDoesNotCount) {
  constexpr auto kTimeout = std::chrono::milliseconds(300);
  const auto deadlines = make(kTimeout);
  const Stream stream = Stream::from_pool(Device::cuda(0));
  StreamHold before(stream);
  deadlines->begin(stream, 1, "an operation");
  deadlines->end(stream);
  const auto enough = std::chrono::steady_clock::now() + 3 * kTimeout;
  while (std::chrono::steady_clock::now() < enough || shared_->looks < 20) {
    std::this_thread::yield();
  }
  EXPECT_EQ(shared_->failures, 0);
  before.release();
  stream.synchronize();
  // The next one, which does not end, is the first to be late.
  deadlines->begin(stream, 2, "another");
  StreamHold inside(stream);
  deadlines->end(stream);
  EXPECT_EQ(await().call, 2u);
}

TEST_F(OperationDeadlinesTest, AnErrorThatTheLibraryFindsEndsTheWait) {
  const auto deadlines = make(std::chrono::hours(1));
  const Stream stream = Stream::from_pool(Device::cuda(0));
  deadlines->begin(stream, 5, "collective: #5 broadcast");
  StreamHold hold(stream);
  deadlines->end(stream);
  shared_->has_error = true;
  const Failure failure = await();
  EXPECT_EQ(failure.call, 5u);
  expect_throws<NcclError>([&] { std::rethrow_exception(failure.why); },
                           "collective: #5 broadcast: failed: unhandled system error");
}

TEST_F(OperationDeadlinesTest, ACallThatFailedBeforeItsEndIsForgotten) {
  const auto deadlines = make(std::chrono::milliseconds(300));
  const Stream stream = Stream::from_pool(Device::cuda(0));
  deadlines->begin(stream, 1, "failed");
  deadlines->begin(stream, 2, "late");
  StreamHold hold(stream);
  deadlines->end(stream);
  EXPECT_EQ(await().call, 2u);
}

TEST_F(OperationDeadlinesTest, WithoutALibraryOnlyTheDeadlineEndsTheWait) {
  OperationDeadlines deadlines(0, std::chrono::milliseconds(100),
                               {.find_error = nullptr,
                                .on_failure =
                                    [shared = shared_](std::uint64_t call, std::exception_ptr why) {
                                      shared->failure.set_value({call, std::move(why)});
                                    },
                                .cause = "a rank did not come"});
  const Stream stream = Stream::from_pool(Device::cuda(0));
  deadlines.begin(stream, 1, "a signal");
  StreamHold hold(stream);
  deadlines.end(stream);
  EXPECT_EQ(await().call, 1u);
}

TEST_F(OperationDeadlinesTest, ItsOwnerFindsTheLateRankByTheNumberOfTheOperation) {
  std::atomic<int> finds{0};
  std::promise<std::uint64_t> all_begun;
  OperationDeadlines deadlines(
      0, std::chrono::milliseconds(100),
      {.find_error = nullptr,
       .on_failure =
           [shared = shared_](std::uint64_t call, std::exception_ptr why) {
             shared->failure.set_value({call, std::move(why)});
           },
       .cause = {},
       .find_lateness = [&](std::uint64_t number, std::chrono::milliseconds timeout,
                            std::string_view source) -> std::exception_ptr {
         EXPECT_EQ(number, 3U);
         EXPECT_EQ(timeout, std::chrono::milliseconds(150));
         EXPECT_EQ(source, "the call's timeout sets the deadline");
         if (++finds < 2) return nullptr;  // then the deadline begins anew
         return std::make_exception_ptr(TimeoutError("rank 4 is late", {4}));
       },
       .on_progress =
           [&](std::uint64_t begun, std::uint64_t finished) {
             if (begun == 3) all_begun.set_value(finished);
           }});
  const Stream stream = Stream::from_pool(Device::cuda(0));
  for (std::uint64_t call = 11; call <= 12; ++call) {
    deadlines.begin(stream, call, "before");
    deadlines.end(stream);
  }
  deadlines.begin(stream, 13, "late", std::chrono::milliseconds(150));
  StreamHold hold(stream);
  deadlines.end(stream);
  EXPECT_EQ(all_begun.get_future().get(), 2U);
  const Failure failure = await();
  EXPECT_EQ(failure.call, 13U);
  expect_throws<TimeoutError>([&] { std::rethrow_exception(failure.why); }, "rank 4 is late");
  EXPECT_EQ(finds, 2);
}

// A second object, whose deadline is later, tells when the deadline of the destroyed one is over.
TEST_F(OperationDeadlinesTest, NoActionAfterDestruction) {
  auto destroyed = make(std::chrono::milliseconds(50));
  const std::shared_ptr<Shared> of_destroyed = std::exchange(shared_, std::make_shared<Shared>());
  const auto later = make(std::chrono::milliseconds(600));
  const Stream stream = Stream::from_pool(Device::cuda(0));
  destroyed->begin(stream, 1, "destroyed");
  later->begin(stream, 2, "later");
  StreamHold hold(stream);
  destroyed->end(stream);
  later->end(stream);
  destroyed.reset();
  EXPECT_EQ(await().call, 2u);
  EXPECT_EQ(of_destroyed->failures, 0);
  hold.release();
  stream.synchronize();
}

}  // namespace
}  // namespace gantry
