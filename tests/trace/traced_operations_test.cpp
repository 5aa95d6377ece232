// Every operation has an event of its name, which begins with its call.
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/support/device_fixture.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/trace/trace_events.hpp"
#include "tests/trace/traced_operations.hpp"

namespace gantry::testing {
namespace {

class TracedOperationsTest : public DeviceTest {
 protected:
  // Runs `body` in a trace, and returns the events of the host.
  template <class Body>
  std::vector<TracedEvent> trace_host(const Body& body) const {
    const std::filesystem::path file = folder_ / "trace.json";
    trace::start(file);
    body();
    trace::stop();
    std::vector<TracedEvent> events = traced_events(file);
    expect_nested(events);
    std::erase_if(events, [](const TracedEvent& event) { return !event.is_on_host(); });
    return events;
  }

  // Each operation in a range of its own.
  void check(Device device) const {
    const TracedInputs inputs(device);
    const std::vector<TracedOperation> operations = traced_operations();
    for (const TracedOperation& operation : operations) operation.call(inputs);
    const std::vector<TracedEvent> events = trace_host([&] {
      for (const TracedOperation& operation : operations) {
        const trace::Range range(operation.text);
        operation.call(inputs);
      }
    });
    std::size_t inside = 0;
    auto operation = operations.begin();
    for (const TracedEvent& event : events) {
      if (event.category != "range") continue;
      ASSERT_NE(operation, operations.end());
      ASSERT_EQ(event.name, operation->text);
      const std::vector<TracedEvent> children = children_of(event, events);
      ASSERT_FALSE(children.empty()) << operation->text << " on " << device;
      const auto is_named = [&](const TracedEvent& child) { return child.name == operation->name; };
      EXPECT_TRUE(std::ranges::any_of(children, is_named))
          << operation->text << " on " << device << " is called " << children.front().name;
      inside += 1 + static_cast<std::size_t>(std::ranges::count_if(events, [&](const auto& other) {
                  return other.category == "op" && event.contains(other);
                }));
      ++operation;
    }
    EXPECT_EQ(operation, operations.end());
    EXPECT_EQ(inside, events.size()) << "an event lies outside of its call";
  }

 private:
  const TemporaryFolder folder_;
};

TEST_F(TracedOperationsTest, EventsBeginWithTheCallAndHaveItsName) { check(Device::cuda(0)); }

TEST_F(TracedOperationsTest, EventsOfTheCpuToo) { check(Device::cpu()); }

TEST_F(TracedOperationsTest, ANameEndsWithItsOperation) {
  const Tensor a = ones({4}, "cuda:0");
  const std::vector<TracedEvent> events = trace_host([&] {
    (void)a.mul(2);
    (void)randn({4}, {.device = "cuda:0"});
    EXPECT_THROW((void)(a + ones({3}, "cuda:0")), ShapeError);
    (void)randn({4}, {.device = "cuda:0"});
    (void)a.cpu();
    (void)rand({4}, {.device = "cuda:0"});
  });
  std::vector<std::string> kernels;
  for (const TracedEvent& event : events) {
    if (event.arguments.is_object() && event.arguments.contains("kernel")) {
      kernels.push_back(event.name);
    }
  }
  EXPECT_EQ(kernels, (std::vector<std::string>{"mul", "normal", "ones", "normal", "uniform"}));
}

TEST_F(TracedOperationsTest, OperationsInsideAnOperationLieInItsEvent) {
  const Tensor a = ones({4, 4}, "cuda:0");
  const std::vector<TracedEvent> events = trace_host([&] { (void)a.var(); });
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.front().name, "var");
  for (const TracedEvent& event : events) EXPECT_TRUE(events.front().contains(event));
}

TEST_F(TracedOperationsTest, ATraceThatStartsInsideAnOperationHasNoEarlierTimes) {
  const TemporaryFolder folder;
  const Tensor a = ones({4}, "cuda:0");
  nvtx::annotate_ops();
  trace::start(folder / "first.json");
  {
    const trace::Range range("across");
    trace::stop();
    trace::start(folder / "second.json");
    (void)a.add(1);
  }
  nvtx::annotate_ops(false);
  trace::stop();
  const std::vector<TracedEvent> events = traced_events(folder / "second.json");
  expect_nested(events);  // checks that no event begins before 0
  EXPECT_TRUE(
      std::ranges::any_of(events, [](const TracedEvent& event) { return event.name == "across"; }));
}

struct Scale {
  float* data;
  GANTRY_HD void operator()(std::int64_t i) const { data[i] *= 2; }
};
struct Fill {
  float* data;
  GANTRY_HD void operator()(Block& block) const { data[block.thread().x] = 1; }
};

TEST_F(TracedOperationsTest, OwnKernelsHaveTheNameOfTheirFunctor) {
  GANTRY_REQUIRE_SIM();
  const Tensor t = ones({64}, "cuda:0");
  const Stream stream = Stream::current("cuda:0");
  synchronize();
  const TemporaryFolder folder;
  trace::start(folder / "trace.json");
  parallel_for(stream, 64, uses().writes(t), Scale{t.data_ptr<float>()});
  launch(stream, {1}, {64}, Fill{t.data_ptr<float>()});
  parallel_for(stream, 64, [data = t.data_ptr<float>()](std::int64_t i) { data[i] += 1; });
  trace::stop();
  const std::vector<TracedEvent> events = traced_events(folder / "trace.json");
  expect_nested(events);
  std::vector<TracedEvent> host;
  std::vector<std::string> device;
  for (const TracedEvent& event : events) {
    if (event.is_on_host()) {
      host.push_back(event);
    } else {
      device.push_back(event.name);
    }
  }
  ASSERT_EQ(host.size(), 3u);
  EXPECT_EQ(host[0].name, "parallel_for");
  EXPECT_EQ(host[0].arguments.at("kernel").as<std::string>(), "gantry::testing::Scale");
  EXPECT_EQ(host[0].arguments.at("operands").as<std::string>(), "f32[64]");
  EXPECT_EQ(host[0].arguments.at("device").as<std::string>(), "cuda:0");
  EXPECT_EQ(host[1].name, "launch");
  EXPECT_EQ(host[1].arguments.at("kernel").as<std::string>(), "gantry::testing::Fill");
  EXPECT_EQ(host[2].name, "parallel_for");
  ASSERT_EQ(device.size(), 3u);
  EXPECT_EQ(device[0], "gantry::testing::Scale");
  EXPECT_EQ(device[1], "gantry::testing::Fill");
  EXPECT_NE(device[2].find("lambda"), std::string::npos) << device[2];
}

}  // namespace
}  // namespace gantry::testing
