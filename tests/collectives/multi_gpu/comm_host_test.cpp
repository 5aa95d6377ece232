// comm::* with tensors on the CPU: the host waits for the copies, except in a capture.
#include <gantry/collectives/comm.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/extend/forwarding_driver.hpp>
#include <gantry/streams/graph.hpp>

#include "tests/collectives/multi_gpu/comm_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using testing::StreamHold;

// Calls `before_wait` in front of every wait of the host.
class WaitingDriver : public ForwardingDriver {
 public:
  explicit WaitingDriver(std::function<void()> before_wait)
      : ForwardingDriver(*exchange_driver(this)), before_wait_(std::move(before_wait)) {}
  ~WaitingDriver() override { exchange_driver(&wrapped()); }

 protected:
  void before_call(const char* call) override {
    if (std::string_view(call).starts_with("synchronize")) before_wait_();
  }

 private:
  std::function<void()> before_wait_;
};

struct Case {
  const char* name;
  double expected;
  std::function<void()> call;
};

class CommHostTest : public testing::CommFixture {
 protected:
  static constexpr std::int64_t kRows = 24;  // of the tensors of a device

  // Calls `body` with all devices' current streams held until the host waits. True if it waited.
  static bool waits(const std::function<void()>& body) {
    const std::vector<Stream> streams = side_streams();
    const MultiStreamGuard guard(streams);
    for (const Device device : devices()) synchronize(device);
    // Objects that a first use makes may wait for the device.
    body();
    for (const Stream& stream : streams) stream.synchronize();
    bool waited = false;
    std::vector<std::unique_ptr<StreamHold>> holds;
    WaitingDriver driver([&] {
      waited = true;
      for (const auto& hold : holds) hold->release();
    });
    for (const Stream& stream : streams) holds.push_back(std::make_unique<StreamHold>(stream));
    body();
    const bool result = waited;
    for (const auto& hold : holds) hold->release();
    for (const Stream& stream : streams) stream.synchronize();
    return result;
  }

  static std::vector<double> values(const Tensor& host) {
    std::vector<double> result;  // past every function that may wait
    const Tensor dense = host.contiguous();
    const auto* first = static_cast<const float*>(dense.data());
    for (std::int64_t i = 0; i < dense.numel(); ++i) result.push_back(first[i]);
    return result;
  }

  // kRows values on every device, each of them `value`.
  static std::vector<Tensor> everywhere(double value) {
    std::vector<Tensor> result;
    for (const Device device : devices()) {
      result.push_back(full({kRows}, value, {.dtype = f32, .device = device}));
    }
    return result;
  }
};

TEST_F(CommHostTest, ResultsOnTheCpuAreThereWhenTheCallReturns) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const bool one : {false, true}) {
    std::vector<Tensor> parts = everywhere(2);
    if (one) parts.erase(parts.begin());  // no input of the current device
    if (one) parts.resize(1);
    const auto count = static_cast<double>(parts.size());
    const auto n = static_cast<std::int64_t>(parts.size());
    std::vector<std::vector<Tensor>> lists;
    for (const Tensor& part : parts) lists.push_back({part, part});
    const TensorOptions pinned{.dtype = f32, .pinned = true};
    const TensorOptions pinned_i64{.dtype = i64, .pinned = true};
    Tensor host;
    const std::vector<Case> cases{
        {"gather", 2, [&] { host = comm::gather(parts, {.destination = "cpu"}); }},
        {"gather into pinned", 2,
         [&] {
           host = zeros({n * kRows}, pinned);
           comm::gather(parts, host);
         }},
        {"gather into strided pinned", 2,
         [&] {
           host = zeros({n * kRows, 2}, pinned).select(1, 0);
           comm::gather(parts, host);
         }},
        {"gather with a cast", 2,
         [&] {
           host = zeros({n * kRows}, pinned_i64);
           comm::gather(parts, host, {.allow_cast = true});
           host = host.to(f32);
         }},
        {"reduce_add", 2 * count, [&] { host = comm::reduce_add(parts, "cpu"); }},
        {"reduce_add into pinned", 2 * count,
         [&] {
           host = zeros({kRows}, pinned);
           comm::reduce_add(parts, host);
         }},
        {"reduce_add into pageable", 2 * count,
         [&] {
           host = zeros({kRows}, f32);
           comm::reduce_add(parts, host);
         }},
        {"reduce_add with a cast", 2 * count,
         [&] {
           host = zeros({kRows}, pinned_i64);
           comm::reduce_add(parts, host, {.allow_cast = true});
           host = host.to(f32);
         }},
        {"reduce_add_coalesced", 2 * count,
         [&] { host = comm::reduce_add_coalesced(lists, "cpu")[1]; }},
        {"reduce_add_coalesced in separate storages", 2 * count,
         [&] { host = comm::reduce_add_coalesced(lists, "cpu", {.separate_storages = true})[1]; }},
        {"reduce_add_coalesced into pinned", 2 * count,
         [&] {
           std::vector<Tensor> outs{zeros({kRows}, pinned), zeros({kRows}, pinned)};
           comm::reduce_add_coalesced(lists, std::span(outs));
           host = outs[1];
         }},
    };
    for (const Case& test : cases) {
      SCOPED_TRACE(std::string(test.name) + (one ? " of one tensor" : ""));
      std::vector<double> seen;
      EXPECT_TRUE(waits([&] {
        test.call();
        seen = values(host);
      }));
      EXPECT_EQ(seen, std::vector<double>(seen.size(), test.expected));
    }
  }
}

TEST_F(CommHostTest, SourcesOnTheCpuMayBeOverwrittenWhenTheCallReturns) {
  GANTRY_REQUIRE_DEVICES(2);
  const auto n = static_cast<std::int64_t>(devices().size());
  for (const bool pinned : {false, true}) {
    const Tensor source = empty({n * kRows, 2}, {.dtype = f32, .pinned = pinned});
    const Tensor column = source.select(1, 1);
    std::vector<Tensor> made;
    const auto fresh = [&](DType dtype) {
      std::vector<Tensor> result;
      for (const Device device : devices()) {
        result.push_back(zeros({kRows, 2}, {.dtype = dtype, .device = device}));
      }
      return result;
    };
    std::vector<Tensor> outs = fresh(f32);
    std::vector<Tensor> wide = fresh(f64);
    std::vector<Tensor> copies;
    for (const Device device : devices()) {
      copies.push_back(zeros({n * kRows, 2}, {.dtype = f32, .device = device}));
    }
    const std::vector<Stream> own = side_streams();
    const std::vector<Case> cases{
        {"scatter", 3, [&] { made = comm::scatter(source, devices()); }},
        {"scatter on streams", 3,
         [&] {
           made = comm::scatter(source, devices(), {.streams = own});
           for (std::size_t i = 0; i < made.size(); ++i) {
             Stream::current(made[i].device()).wait(own[i]);
           }
         }},
        {"scatter of a strided source", 3, [&] { made = comm::scatter(column, devices()); }},
        {"scatter into outputs", 3,
         [&] {
           comm::scatter(source, std::span(outs));
           made = outs;
         }},
        {"scatter with a cast", 3,
         [&] {
           comm::scatter(source, std::span(wide), {.allow_cast = true});
           made = wide;
         }},
        {"broadcast", 3, [&] { made = comm::broadcast(source, devices()); }},
        {"broadcast into outputs", 3,
         [&] {
           comm::broadcast(source, std::span(copies));
           made = copies;
         }},
    };
    for (const Case& test : cases) {
      SCOPED_TRACE(std::string(test.name) + (pinned ? ", pinned" : ", pageable"));
      EXPECT_TRUE(waits([&] {
        source.fill_(3);
        test.call();
        source.fill_(-1);
      }));
      for (const Tensor& tensor : made) {
        EXPECT_EQ(tensor.amin().item<double>(), test.expected);
        EXPECT_EQ(tensor.amax().item<double>(), test.expected);
      }
    }
  }
}

TEST_F(CommHostTest, ACaptureDoesNotWait) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Stream> streams = side_streams();
  const MultiStreamGuard guard(streams);
  const std::vector<Tensor> parts = everywhere(0);
  const auto n = static_cast<std::int64_t>(parts.size());
  const Tensor source = zeros({n * kRows}, {.dtype = f32, .pinned = true});
  Tensor into = zeros({kRows}, {.dtype = f32, .pinned = true});
  Tensor joined;
  Tensor sum;
  std::vector<Tensor> sums;
  std::vector<Tensor> chunks;
  std::vector<Tensor> copies;
  std::vector<std::vector<Tensor>> lists;
  for (const Tensor& part : parts) lists.push_back({part});
  Graph graph;
  {
    const GraphCapture capture(graph, {.stream = streams[0]});
    for (std::size_t i = 1; i < streams.size(); ++i) streams[i].wait(streams[0]);
    joined = comm::gather(parts, {.destination = "cpu"});
    sum = comm::reduce_add(parts, "cpu");
    comm::reduce_add(parts, into);
    sums = comm::reduce_add_coalesced(lists, "cpu");
    chunks = comm::scatter(source, devices());
    copies = comm::broadcast(source, devices());
    for (std::size_t i = 1; i < streams.size(); ++i) streams[0].wait(streams[i]);
  }
  for (int round = 1; round < 4; ++round) {
    for (const Tensor& part : parts) part.fill_(round);
    source.fill_(10 * round);
    graph.replay();
    for (const Stream& stream : streams) stream.synchronize();
    EXPECT_EQ(values(joined), std::vector<double>(static_cast<std::size_t>(n * kRows), round));
    const std::vector<double> total(kRows, static_cast<double>(n) * round);
    EXPECT_EQ(values(sum), total);
    EXPECT_EQ(values(into), total);
    EXPECT_EQ(values(sums[0]), total);
    for (const Tensor& tensor : {chunks.back(), copies.front(), copies.back()}) {
      EXPECT_EQ(tensor.amin().item<double>(), 10 * round);
      EXPECT_EQ(tensor.amax().item<double>(), 10 * round);
    }
  }
}

}  // namespace
}  // namespace gantry
