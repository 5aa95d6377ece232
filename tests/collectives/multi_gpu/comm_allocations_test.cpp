// The allocations of the C++ heap in a call of comm::*.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include <gantry/collectives/comm.hpp>
#include <gantry/extend/forwarding_driver.hpp>

#include "tests/collectives/multi_gpu/comm_fixture.hpp"
#include "tests/support/counted_new.hpp"
#include "tests/support/scheduled.hpp"

namespace gantry {
namespace {

using testing::TuningScope;

// Events of the simulator have tasks and names, events of a GPU do not.
class UncountedEvents : public ForwardingDriver {
 public:
  UncountedEvents() : ForwardingDriver(*exchange_driver(this)) {}
  ~UncountedEvents() override { exchange_driver(&wrapped()); }

  void record_event(NativeEvent event, NativeStream stream) override {
    const std::uint64_t before = testing::allocations;
    wrapped().record_event(event, stream);
    testing::allocations = before;
  }
  void wait_event(NativeStream stream, NativeEvent event) override {
    const std::uint64_t before = testing::allocations;
    wrapped().wait_event(stream, event);
    testing::allocations = before;
  }
};

class CommAllocationsTest : public testing::CommFixture {
 protected:
  // The allocations of one call, whose caches are warm.
  static std::uint64_t allocations_of(const std::function<void()>& call) {
    for (int i = 0; i < 3; ++i) call();
    const UncountedEvents driver;
    call();
    const std::uint64_t before = testing::allocations;
    call();
    const std::uint64_t made = testing::allocations - before;
    for (const Device device : devices()) synchronize(device);
    return made;
  }

  // 4 KiB on each of the first `count` devices.
  static std::vector<Tensor> small(int count, std::int64_t elements = 1024) {
    std::vector<Tensor> tensors;
    for (const Device device : devices(count))
      tensors.push_back(ones({elements}, {.device = device}));
    return tensors;
  }
};

// One of them is the kernel's parameters, which a simulated stream keeps, and one its task.
TEST_F(CommAllocationsTest, SmallCallsMakeFew) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(2);
  GANTRY_REQUIRE_COUNTED_NEW();
  if (testing::is_scheduled()) GTEST_SKIP() << "a schedule allocates for its own decisions";
  const TuningScope scope({.cached_output_bytes = 0});
  const std::vector<Device> pair = devices(2);
  const std::vector<Tensor> inputs = small(2);
  std::vector<Tensor> outputs = small(2);
  std::vector<Tensor> wide = small(2, 2048);
  std::vector<Tensor> narrow = small(2, 512);
  const Tensor rows = wide[0].view({2, 1024});
  struct Row {
    const char* name;
    std::uint64_t most;
    std::function<void()> call;
  };
  const std::array rows_of_calls{
      Row{"reduce_add", 4, [&] { (void)comm::reduce_add(inputs, pair[0]); }},
      Row{"reduce_add into", 4, [&] { comm::reduce_add(inputs, outputs[0]); }},
      Row{"broadcast", 8, [&] { (void)comm::broadcast(inputs[0], pair); }},
      Row{"broadcast into", 4, [&] { comm::broadcast(inputs[0], std::span(outputs).subspan(1)); }},
      Row{"scatter", 9, [&] { (void)comm::scatter(rows, pair); }},
      Row{"gather", 5, [&] { (void)comm::gather(inputs, {.destination = pair[0]}); }},
      Row{"all_reduce", 4, [&] { comm::all_reduce(outputs); }},
      Row{"all_gather", 10, [&] { comm::all_gather(wide, inputs); }},
      Row{"reduce_scatter", 7, [&] { comm::reduce_scatter(narrow, inputs); }},
      Row{"all_to_all", 7, [&] { comm::all_to_all(outputs, inputs); }},
  };
  for (const Row& row : rows_of_calls) EXPECT_LE(allocations_of(row.call), row.most) << row.name;
}

}  // namespace
}  // namespace gantry
