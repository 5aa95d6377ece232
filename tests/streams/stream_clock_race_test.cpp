// Threads that record and wait at random: a clock may miss an order, but never invent one.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/streams/event.hpp>

#include "streams/clock_registry.hpp"
#include "streams/stream_clock.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

constexpr int kThreads = 4;

class StreamClockRaceTest : public testing::DeviceTest {
 protected:
  void TearDown() override {
    ClockRegistry::instance().verify();
    DeviceTest::TearDown();
  }
  template <class Body>
  static void run_threads(Body body) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back([&body, t] { body(t); });
    for (std::thread& thread : threads) thread.join();
  }
};

/// What a driver was told on one stream, in its order.
struct Call {
  enum Kind { work, record, wait, claim } kind;
  int stream = 0;          ///< wait, claim: of the other stream
  std::size_t number = 0;  ///< record, wait: of the record; work, claim: of the work
};

/// A driver that only writes down what it is told.
class Log {
 public:
  void add(const Call& call) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(call);
  }
  [[nodiscard]] const std::vector<Call>& calls() const { return calls_; }

 private:
  std::mutex mutex_;
  std::vector<Call> calls_;
};

/// Number of work items of each stream that come before a place.
using Order = std::vector<std::size_t>;

/// Replays the logs by the textbook; counts the claims that are wrong.
class Oracle {
 public:
  explicit Oracle(const std::vector<Log>& logs) : logs_(logs), at_(logs.size()) {
    orders_.assign(logs.size(), Order(logs.size()));
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < logs.size(); ++s) {
        while (at_[s] < logs[s].calls().size() && step(s, logs[s].calls()[at_[s]])) {
          ++at_[s];
          moved = true;
        }
      }
    }
  }
  [[nodiscard]] bool is_finished() const {
    for (std::size_t s = 0; s < logs_.size(); ++s) {
      if (at_[s] != logs_[s].calls().size()) return false;
    }
    return true;
  }
  [[nodiscard]] std::size_t claims() const { return claims_; }
  [[nodiscard]] std::size_t wrong() const { return wrong_; }

 private:
  bool step(std::size_t s, const Call& call) {
    Order& order = orders_[s];
    switch (call.kind) {
      case Call::work:
        order[s] = call.number;
        return true;
      case Call::record:
        records_[call.number] = order;
        return true;
      case Call::wait: {
        const auto found = records_.find(call.number);
        if (found == records_.end()) return false;
        for (std::size_t i = 0; i < order.size(); ++i) {
          order[i] = std::max(order[i], found->second[i]);
        }
        return true;
      }
      case Call::claim:
        ++claims_;
        if (order[static_cast<std::size_t>(call.stream)] < call.number) ++wrong_;
        return true;
    }
    return true;
  }

  const std::vector<Log>& logs_;
  std::vector<std::size_t> at_;
  std::vector<Order> orders_;
  std::map<std::size_t, Order> records_;
  std::size_t claims_ = 0;
  std::size_t wrong_ = 0;
};

TEST_F(StreamClockRaceTest, NoOrderIsClaimedThatTheDriverWasNotTold) {
  constexpr std::size_t kStreams = 5;
  constexpr int kSteps = 20'000;
  std::vector<StreamClock*> clocks;
  for (std::size_t i = 0; i < kStreams; ++i) {
    clocks.push_back(&StreamClock::of(Stream::from_pool()));
  }
  struct Shared {
    std::mutex mutex;
    Timestamp timestamp;
    std::size_t record = 0;
  };
  std::vector<Log> logs(kStreams);
  std::vector<Shared> events(8);
  std::atomic<std::size_t> records{0};
  // The last work of each stream and its number, as an allocator would keep them for a freed block.
  struct Freed {
    std::mutex mutex;
    std::size_t stream = 0;
    std::size_t work = 0;
    std::uint64_t sequence = 0;
  };
  std::vector<Freed> freed(16);
  std::vector<std::mutex> submitting(kStreams);
  std::vector<std::size_t> works(kStreams);

  run_threads([&](int thread) {
    std::mt19937 random(static_cast<unsigned>(thread) + 1);
    for (int step = 0; step < kSteps; ++step) {
      const std::size_t s = random() % kStreams;
      switch (random() % 4) {
        case 0: {  // work, then free
          std::size_t work = 0;
          {
            const std::lock_guard lock(submitting[s]);
            work = ++works[s];
            logs[s].add({Call::work, 0, work});
          }
          const std::uint64_t sequence = clocks[s]->next_sequence();
          Freed& slot = freed[random() % freed.size()];
          const std::lock_guard lock(slot.mutex);
          slot.stream = s;
          slot.work = work;
          slot.sequence = sequence;
          break;
        }
        case 1: {
          Timestamp timestamp;
          clocks[s]->begin_timestamp(timestamp);
          if (random() % 4 == 0) std::this_thread::yield();
          const std::size_t record = ++records;
          logs[s].add({Call::record, 0, record});
          Shared& event = events[random() % events.size()];
          const std::lock_guard lock(event.mutex);
          event.timestamp = std::move(timestamp);
          event.record = record;
          break;
        }
        case 2: {
          Shared& event = events[random() % events.size()];
          Timestamp timestamp;
          std::size_t record = 0;
          {
            const std::lock_guard lock(event.mutex);
            timestamp = event.timestamp;
            record = event.record;
          }
          if (timestamp.clock == nullptr) break;
          logs[s].add({Call::wait, 0, record});
          if (random() % 4 == 0) std::this_thread::yield();
          clocks[s]->join(timestamp);
          break;
        }
        default: {
          Freed& slot = freed[random() % freed.size()];
          std::size_t stream = 0;
          std::size_t work = 0;
          std::uint64_t sequence = 0;
          {
            const std::lock_guard lock(slot.mutex);
            stream = slot.stream;
            work = slot.work;
            sequence = slot.sequence;
          }
          if (work == 0 || stream == s || !clocks[s]->happens_after(*clocks[stream], sequence))
            break;
          logs[s].add({Call::claim, static_cast<int>(stream), work});
        }
      }
    }
  });

  const Oracle oracle(logs);
  EXPECT_TRUE(oracle.is_finished());
  EXPECT_GT(oracle.claims(), 100u) << "the clocks are too shy for this test to say anything";
  EXPECT_EQ(oracle.wrong(), 0u) << "of " << oracle.claims() << " claims";
}

TEST_F(StreamClockRaceTest, ClaimedOrderIsTheOrderOfExecution) {
  constexpr std::size_t kStreams = 4;
  constexpr int kSteps = 1'500;
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < kStreams; ++i) {
    streams.push_back(Stream::from_pool(Device::cuda(static_cast<int>(i) % device_count())));
  }
  // Work n of stream s raises done[s] to n; a checker behind a claim looks whether it is so.
  std::vector<std::atomic<std::size_t>> done(kStreams);
  std::atomic<int> claims{0};
  std::atomic<int> wrong{0};
  struct Work {
    std::atomic<std::size_t>* done;
    std::size_t number;
    std::atomic<int>* wrong;
  };
  std::vector<std::mutex> submitting(kStreams);
  std::vector<std::size_t> works(kStreams);
  const auto submit = [&](std::size_t s) {
    const std::lock_guard lock(submitting[s]);
    const std::size_t number = ++works[s];
    auto* work = new Work{&done[s], number, nullptr};
    driver().launch_host_function(
        streams[s].native(),
        [](void* data) {
          const std::unique_ptr<Work> own(static_cast<Work*>(data));
          own->done->store(own->number);
        },
        work);
    return number;
  };
  run_threads([&](int thread) {
    std::mt19937 random(static_cast<unsigned>(thread) + 77);
    Event event;
    std::vector<Event> events(kStreams);
    for (int step = 0; step < kSteps; ++step) {
      const std::size_t s = random() % kStreams;
      const std::size_t t = (s + 1 + random() % (kStreams - 1)) % kStreams;
      StreamClock& clock = StreamClock::of(streams[t]);
      StreamClock& waiter = StreamClock::of(streams[s]);
      std::size_t work = 0;
      {
        // The number is read under the lock, so that it is known which work it stands for.
        const std::lock_guard lock(submitting[t]);
        work = works[t];
      }
      const std::uint64_t sequence = clock.next_sequence();
      switch (random() % 6) {
        case 0:
          static_cast<void>(submit(t));
          break;
        case 1:
          if (!events[t].is_created() || events[t].device() == streams[t].device()) {
            events[t].record(streams[t]);
          }
          break;
        case 2:
          streams[s].wait(events[t]);
          break;
        case 3:
          clock.poll(sequence);
          break;
        case 4:
          clock.make_wait(waiter, sequence);
          break;
        default:
          if (random() % 8 == 0) streams[t].synchronize();
      }
      if (!waiter.happens_after(clock, sequence)) continue;
      ++claims;
      driver().launch_host_function(
          streams[s].native(),
          [](void* data) {
            const std::unique_ptr<Work> own(static_cast<Work*>(data));
            if (own->done->load() < own->number) ++*own->wrong;
          },
          new Work{&done[t], work, &wrong});
    }
  });
  for (const Stream& stream : streams) stream.synchronize();
  EXPECT_GT(claims.load(), 100);
  EXPECT_EQ(wrong.load(), 0) << "of " << claims.load();
}

// A driver whose first call submits work, as another thread may, after it has looked at the stream.
class LateWork final : public testing::FaultDriver {
 public:
  explicit LateWork(const Stream& stream) : stream_(stream) {}

  void record_event(NativeEvent event, NativeStream stream) override {
    FaultDriver::record_event(event, stream);
    submit();
  }
  void synchronize_stream(NativeStream stream) override {
    FaultDriver::synchronize_stream(stream);
    submit();
  }
  bool query_stream(NativeStream stream) override {
    const bool is_complete = FaultDriver::query_stream(stream);
    submit();
    return is_complete;
  }
  void synchronize_device(int device) override {
    FaultDriver::synchronize_device(device);
    submit();
  }

  void let_go() {
    hold_->release();
    stream_.synchronize();
  }
  /// The number of the work; 0 if no call has come.
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }

 private:
  void submit() {
    if (hold_) return;
    hold_.emplace(stream_);
    sequence_ = StreamClock::of(stream_).next_sequence();
  }

  const Stream stream_;
  std::optional<testing::StreamHold> hold_;
  std::uint64_t sequence_ = 0;
};

TEST_F(StreamClockRaceTest, WorkThatComesDuringACallOfTheDriverIsNotComplete) {
  for (const int device : {0, device_count() - 1}) {
    const Stream stream = Stream::from_pool(Device::cuda(device));
    StreamClock& clock = StreamClock::of(stream);
    const std::vector<std::pair<const char*, std::function<void()>>> calls{
        {"record", [&] { stream.record().synchronize(); }},
        {"wait of the host", [&] { clock.wait_for(clock.next_sequence()); }},
        {"synchronize", [&] { stream.synchronize(); }},
        {"query", [&] { EXPECT_TRUE(stream.query()); }},
        {"synchronize the device", [&] { synchronize(Device::cuda(device)); }},
    };
    for (const auto& [what, call] : calls) {
      LateWork late(stream);
      call();
      ASSERT_NE(late.sequence(), 0u) << what;
      EXPECT_LT(clock.completed(), late.sequence()) << what << ", device " << device;
      late.let_go();
      EXPECT_GE(clock.completed(), late.sequence()) << what;
    }
  }
}

}  // namespace
}  // namespace gantry
