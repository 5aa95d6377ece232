// comm::* on memory that only its own device may use, as other libraries' pools and virtual memory.
#include <gantry/collectives/comm.hpp>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "tests/collectives/multi_gpu/comm_fixture.hpp"
#include "tests/support/closed_memory.hpp"

namespace gantry {
namespace {

using testing::all_tunings;
using testing::ClosedMemory;
using testing::TuningScope;

class CommClosedMemoryTest : public testing::CommFixture {
 protected:
  void SetUp() override {
    CommFixture::SetUp();
    if (IsSkipped()) return;
    for (const Device device : devices()) {
      if (!driver().supports_virtual_memory(device.index)) GTEST_SKIP() << "needs virtual memory";
    }
    GANTRY_REQUIRE_DEVICES(2);
    for (const Device device : devices()) {
      closed_.push_back(std::make_shared<ClosedMemory>(device));
    }
  }
  void TearDown() override {
    for (const Device device : devices()) synchronize(device);
    closed_.clear();
    CommFixture::TearDown();
  }

  // The same elements in closed memory that is no allocator's.
  Tensor close(const Tensor& tensor) {
    memory::Allocator& memory = *closed_[static_cast<std::size_t>(tensor.device().index)];
    void* data = memory.allocate(Stream::current(tensor.device()), tensor.nbytes()).data;
    Tensor result =
        from_blob(data, tensor.sizes(), {.dtype = tensor.dtype(), .device = tensor.device()});
    result.copy_(tensor);
    return result;
  }

  // What every function makes of inputs and outputs that went through `place`.
  using Place = std::function<Tensor(const Tensor&)>;
  static std::vector<Tensor> results_of_all(const Place& place) {
    const std::vector<Device> all = devices();
    const auto count = static_cast<std::int64_t>(all.size());
    std::vector<Tensor> results;
    const auto keep = [&](std::span<const Tensor> made) {
      for (const Tensor& tensor : made) results.push_back(tensor.cpu());
    };
    const auto make = [&](const Shape& shape) {
      std::vector<Tensor> tensors;
      for (const Device device : all) tensors.push_back(place(ramp(shape, device, device.index)));
      return tensors;
    };
    const std::vector<Tensor> inputs = make({count * 8, 4});
    keep(comm::broadcast(inputs[0], all));
    std::vector<Tensor> outputs = make({count * 8, 4});
    comm::broadcast(inputs[0], std::span(outputs).subspan(1));
    keep(outputs);
    keep(comm::scatter(inputs[0], all));
    outputs = make({8, 4});
    comm::scatter(inputs[0], outputs);
    keep(outputs);
    keep({{comm::gather(inputs)}});
    Tensor joined = place(zeros({count * count * 8, 4}, {.device = all.back()}));
    comm::gather(inputs, joined);
    keep({{joined}});
    keep({{comm::reduce_add(inputs), comm::reduce_add(inputs, all.back())}});
    std::vector<Tensor> summed = make({100});
    comm::all_reduce(summed);
    keep(summed);
    outputs = make({count * count * 8, 4});
    comm::all_gather(outputs, inputs);
    keep(outputs);
    outputs = make({8, 4});
    comm::reduce_scatter(outputs, inputs);
    keep(outputs);
    outputs = make({count * 8, 4});
    comm::all_to_all(outputs, inputs);
    keep(outputs);
    std::vector<Tensor> list;
    std::vector<std::vector<Tensor>> lists;
    for (std::int64_t i = 1; i < 6; ++i) list.push_back(place(ramp({i, 7}, all[0], 3)));
    for (const Device device : all) {
      std::vector<Tensor>& part = lists.emplace_back();
      for (std::int64_t i = 1; i < 6; ++i) part.push_back(place(ramp({i, 7}, device, 1)));
    }
    for (const bool separate : {false, true}) {
      const comm::CoalesceOptions options{.separate_storages = separate};
      for (const auto& copies : comm::broadcast_coalesced(list, all, options)) keep(copies);
      keep(comm::reduce_add_coalesced(lists, all.back(), options));
    }
    return results;
  }
  static void expect_equal(const std::vector<Tensor>& results,
                           const std::vector<Tensor>& expected) {
    ASSERT_EQ(results.size(), expected.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_TRUE(results[i].equal(expected[i])) << "result " << i;
    }
  }

  std::vector<std::shared_ptr<ClosedMemory>> closed_;
};

TEST_F(CommClosedMemoryTest, TensorsOfOthersGiveTheSameResults) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    const std::vector<Tensor> expected = results_of_all([](const Tensor& t) { return t; });
    expect_equal(results_of_all([this](const Tensor& t) { return close(t); }), expected);
    // Every second one, so that open and closed memory meet.
    int number = 0;
    expect_equal(results_of_all([&](const Tensor& t) { return ++number % 2 == 0 ? close(t) : t; }),
                 expected);
  }
}

TEST_F(CommClosedMemoryTest, AllocatorsOfOthersGiveTheSameResults) {
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    const std::vector<Tensor> expected = results_of_all([](const Tensor& t) { return t; });
    for (const Device device : devices()) {
      memory::set_allocator(device, closed_[static_cast<std::size_t>(device.index)]);
    }
    expect_equal(results_of_all([](const Tensor& t) { return t; }), expected);
    for (const Device device : devices()) memory::set_allocator(device, nullptr);
  }
}

}  // namespace
}  // namespace gantry
