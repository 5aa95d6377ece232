// Random programs of operations, events and waits, against happens-before by exhaustive search.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gantry/streams/event.hpp>

#include "tests/streams/sanitizer_fixture.hpp"

namespace gantry::testing {
namespace {

// A step of a program: an operation, an event record or a wait. Edges lead to steps that run
// before.
struct Step {
  std::vector<int> before;
  bool is_operation = false;
  bool is_write = false;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// The steps of a program and the last one of each stream; no clocks.
class Oracle {
 public:
  explicit Oracle(std::size_t streams) : last_(streams, -1) {}

  int add(std::size_t stream, std::vector<int> also_before, Step step = {}) {
    step.before = std::move(also_before);
    if (last_[stream] >= 0) step.before.push_back(last_[stream]);
    step.before.insert(step.before.end(), host_.begin(), host_.end());
    steps_.push_back(std::move(step));
    return last_[stream] = static_cast<int>(steps_.size()) - 1;
  }
  [[nodiscard]] int last(std::size_t stream) const { return last_[stream]; }
  void host_waits_for(int step) {
    if (step >= 0) host_.push_back(step);
  }
  // The operations that race with `step`.
  [[nodiscard]] std::set<int> races_of(int step) const {
    std::set<int> reached;
    std::vector<int> open{step};
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      for (const int before : steps_[static_cast<std::size_t>(at)].before) {
        if (reached.insert(before).second) open.push_back(before);
      }
    }
    std::set<int> races;
    const Step& own = steps_[static_cast<std::size_t>(step)];
    for (int other = 0; other < step; ++other) {
      const Step& earlier = steps_[static_cast<std::size_t>(other)];
      if (earlier.is_operation && (earlier.is_write || own.is_write) && earlier.begin < own.end &&
          own.begin < earlier.end && !reached.contains(other)) {
        races.insert(other);
      }
    }
    return races;
  }

 private:
  std::vector<Step> steps_;
  std::vector<int> last_;
  std::vector<int> host_;
};

class SanitizerOrder : public SanitizerTest {
 protected:
  // Runs a program. Returns how many of its operations race.
  int run(std::uint32_t seed) {
    sanitizer::enable(sanitizer::Mode::off);
    sanitizer::enable(sanitizer::Mode::warn);  // forgets the last program
    std::mt19937 random(seed);
    const auto draw = [&](int count) {
      return std::uniform_int_distribution<int>(0, count - 1)(random);
    };
    const int devices = std::min(device_count(), 2);
    std::vector<Stream> streams;
    for (int i = 0; i < 5; ++i) {
      const Device device = Device::cuda(i % devices);
      streams.push_back(i < devices ? Stream::default_stream(device) : Stream::from_pool(device));
    }
    std::array<Event, 4> events;
    std::array<int, 4> records{-1, -1, -1, -1};
    Oracle oracle(streams.size());
    int racy = 0;
    for (int step = 0; step < 80; ++step) {
      const auto s = static_cast<std::size_t>(draw(static_cast<int>(streams.size())));
      const Stream& stream = streams[s];
      const auto e = static_cast<std::size_t>(draw(4));
      const int kind = draw(20);
      if (kind < 10) {
        const int begin = draw(24);
        Step made{.before = {},
                  .is_operation = true,
                  .is_write = draw(3) == 0,
                  .begin = begin,
                  .end = begin + 1 + draw(8)};
        const int number = oracle.add(s, {}, made);
        sanitizer::clear();
        // NOLINTNEXTLINE(performance-no-int-to-ptr): no one reads there
        const sanitizer::Region region(reinterpret_cast<const void*>(std::uintptr_t{4096} + begin),
                                       static_cast<std::size_t>(made.end - made.begin));
        sanitizer::uses(std::to_string(number), stream, {{region, made.is_write}});
        const std::set<int> expected = oracle.races_of(number);
        const sanitizer::Report report = sanitizer::report();
        EXPECT_EQ(report.races.empty(), expected.empty())
            << "seed " << seed << ", step " << step << ": " << report.str();
        for (const sanitizer::Race& race : report.races) {
          EXPECT_TRUE(expected.contains(std::stoi(race.first.operation)))
              << "seed " << seed << ", step " << step << ": " << report.str();
        }
        racy += expected.empty() ? 0 : 1;
      } else if (kind < 13) {
        const auto other = static_cast<std::size_t>(draw(static_cast<int>(streams.size())));
        if (other == s) continue;
        stream.wait(streams[other]);
        if (oracle.last(other) >= 0) oracle.add(s, {oracle.last(other)});
      } else if (kind < 16) {
        // An event belongs to the device of its first record.
        if (records[e] >= 0 && events[e].device() != stream.device()) continue;
        events[e].record(stream);
        records[e] = oracle.add(s, {});
      } else if (kind < 18) {
        stream.wait(events[e]);
        if (records[e] >= 0) oracle.add(s, {records[e]});
      } else if (kind == 18 && draw(3) == 0) {
        stream.synchronize();
        oracle.host_waits_for(oracle.last(s));
      } else if (kind == 19 && draw(3) == 0) {
        if (draw(2) == 0) {
          events[e].synchronize();
          oracle.host_waits_for(records[e]);
        } else {
          synchronize(stream.device());
          for (std::size_t i = 0; i < streams.size(); ++i) {
            if (streams[i].device() == stream.device()) oracle.host_waits_for(oracle.last(i));
          }
        }
      }
      if (HasFailure()) break;
    }
    return racy;
  }
};

TEST_F(SanitizerOrder, AgreesWithAnExhaustiveSearch) {
  const char* const rounds = std::getenv("GANTRY_TEST_ROUNDS");
  const std::uint32_t count =
      rounds == nullptr ? 300 : static_cast<std::uint32_t>(std::stoul(rounds));
  int racy = 0;
  for (std::uint32_t seed = 1; seed <= count && !HasFailure(); ++seed) racy += run(seed);
  EXPECT_GT(racy, static_cast<int>(count));
}

}  // namespace
}  // namespace gantry::testing
