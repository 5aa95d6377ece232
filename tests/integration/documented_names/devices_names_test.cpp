// The documented names of devices, streams and tools, each used as a program uses it.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

class DocumentedNames : public testing::DeviceTest {};

TEST_F(DocumentedNames, Devices) {
  EXPECT_EQ(Device("cpu"), Device::cpu());
  EXPECT_EQ(Device("cuda:0"), Device::cuda(0));
  EXPECT_EQ(Device("cuda").type, DeviceType::cuda);
  const Device first = Device::cuda(0);
  EXPECT_EQ(first.index, 0);
  EXPECT_EQ(first.str(), "cuda:0");
  EXPECT_EQ(std::hash<Device>{}(first), std::hash<Device>{}(Device("cuda:0")));
  std::ostringstream text;
  text << first;
  EXPECT_EQ(text.str(), "cuda:0");

  init();
  EXPECT_TRUE(is_initialized());
  EXPECT_TRUE(is_available());
  EXPECT_GT(device_count(), 0);
  EXPECT_NE(platform(), Platform::none);
  const Device before = current_device();
  set_device(first);
  EXPECT_EQ(current_device(), first);
  synchronize(first);
  synchronize();
  { const DeviceGuard guard(first); }
  { const OptionalDeviceGuard guard; }
  { const OptionalDeviceGuard guard(first); }
  set_device(before);

  const DeviceProperties& properties = device_properties(first);
  EXPECT_FALSE(properties.name.empty());
  EXPECT_FALSE(properties.uuid.empty());
  EXPECT_FALSE(properties.pci_bus_id.empty());
  EXPECT_GE(properties.major, 0);
  EXPECT_GE(properties.minor, 0);
  EXPECT_GT(properties.total_memory, 0U);
  EXPECT_GT(properties.multiprocessors, 0);
  EXPECT_GE(properties.l2_bytes, 0U);
  EXPECT_GT(properties.warp_size, 0);

  if (device_count() > 1) {
    const Device second = Device::cuda(1);
    if (can_access_peer(first, second)) enable_peer_access(first, second);
  }
  const PeerMatrix peers = peer_matrix();
  static_cast<void>(peers);
  const std::vector<std::string> architectures = arch_list();
  const std::string flags = gencode_flags();
  EXPECT_EQ(architectures.empty(), flags.empty());
  EXPECT_FALSE(in_bad_fork());

  const std::vector<DeviceIdentity> all(2);
  const VisibleDevices visible = parse_visible_devices("1", std::span<const DeviceIdentity>(all));
  EXPECT_EQ(visible.visible.size(), 1U);
  EXPECT_TRUE(visible.dropped.empty());
  for (const auto& dropped : parse_visible_devices("x", all).dropped) {
    const std::string token = dropped.token;
    const std::string reason = dropped.reason;
    EXPECT_FALSE(token.empty() || reason.empty());
  }
}

TEST_F(DocumentedNames, Monitor) {
  // Simulated devices and machines without NVML have no figures.
  const auto asked = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const NotSupported&) {
    }
  };
  const Device first = Device::cuda(0);
  asked([&] { static_cast<void>(utilization(first)); });
  asked([&] { static_cast<void>(memory_usage(first)); });
  asked([&] { static_cast<void>(temperature(first)); });
  asked([&] { static_cast<void>(power_draw(first)); });
  asked([&] { static_cast<void>(clock_rate(first)); });
  asked([&] { static_cast<void>(list_gpu_processes(first)); });
  static_assert(std::is_same_v<decltype(machine::plan(std::declval<const machine::Topology&>(),
                                                      machine::PlanOptions{})),
                               machine::Plan>);
}

TEST_F(DocumentedNames, Streams) {
  const Device first = Device::cuda(0);
  const Stream current = Stream::current(first);
  const Stream pooled = Stream::from_pool(first, StreamPriority::high);
  const Stream external = Stream::external(pooled.native_handle(), first);
  EXPECT_EQ(Stream::default_stream(first).id(), 0U);
  EXPECT_EQ(external.device(), first);
  static_cast<void>(pooled.query());
  pooled.synchronize();
  pooled.wait(current);
  Event recorded = pooled.record();
  pooled.record(recorded);
  pooled.wait(recorded);
  { const StreamGuard guard(pooled); }
  { const MultiStreamGuard guard({pooled}); }
  set_stream(pooled);
  set_stream(current);

  Event begin({.timing = true, .blocking = false, .interprocess = false});
  Event end({.timing = true});
  begin.record(pooled);
  end.record(pooled);
  end.wait(current);
  end.synchronize();
  EXPECT_TRUE(end.query());
  EXPECT_GE(begin.elapsed_ms(end), 0);
  Event shared({.interprocess = true});
  shared.record(pooled);
  const auto handle = shared.ipc_handle();
  static_assert(std::is_same_v<decltype(Event::from_ipc(handle, first)), Event>);
}

TEST_F(DocumentedNames, Graphs) {
  const Device first = Device::cuda(0);
  const Stream side = Stream::from_pool(first);
  const Tensor numbers = zeros({4}, {.dtype = f32, .device = first});
  const MemPoolId pool = graph_pool_handle();
  Graph graph;
  {
    const StreamGuard guard(side);
    graph.capture_begin({.pool = pool, .stream = side, .mode = CaptureMode::thread_local_});
    EXPECT_TRUE(is_current_stream_capturing());
    Tensor(numbers).add_(1);
    graph.capture_end();
  }
  graph.replay();
  synchronize(first);
  EXPECT_EQ(numbers.sum().item<int>(), 4);
  static_cast<void>(graph.pool());
  Graph other;
  {
    GraphCapture capture(other, {.stream = side});
    Tensor(numbers).add_(2);
  }
  static_cast<void>(graph.update(other));
  const testing::TemporaryFolder folder;
  graph.debug_dump((folder.path() / "graph.dot").string());
  graph.reset();

  const std::vector<Tensor> samples{numbers};
  auto doubled = make_graphed(
      [](std::span<const Tensor> inputs) { return std::vector<Tensor>{inputs[0] * 2}; },
      std::span<const Tensor>(samples));
  EXPECT_EQ(doubled(std::span<const Tensor>(samples)).size(), 1U);
}

struct Ascending {
  float* out;
  GANTRY_HD void operator()(std::int64_t i) const { out[i] = static_cast<float>(i); }
  GANTRY_HD void operator()(Block& block) const {
    out[block.flat_index()] = static_cast<float>(block.flat_index());
  }
};

// The host's compiler makes kernels of simulated devices only.
TEST_F(DocumentedNames, Kernels) {
  GANTRY_REQUIRE_SIM();
  const Device first = Device::cuda(0);
  const Tensor out = zeros({8}, {.dtype = f32, .device = first});
  const Tensor expected = arange(8, {.dtype = f32, .device = first});
  const Ascending ascending{out.data_ptr<float>()};
  parallel_for(Stream::current(first), 8, ascending);
  EXPECT_TRUE(out.equal(expected));
  Tensor(out).zero_();
  launch(Stream::current(first), Grid(2), BlockSize(4), ascending);
  EXPECT_TRUE(out.equal(expected));
}

TEST_F(DocumentedNames, Tools) {
  set_sync_debug_mode(SyncDebug::warn);
  EXPECT_EQ(sync_debug_mode(), SyncDebug::warn);
  set_sync_debug_mode(SyncDebug::error);
  set_sync_debug_mode(SyncDebug::off);
  nvtx::mark("here");
  EXPECT_EQ(nvtx::range_push("outer"), 0);
  EXPECT_EQ(nvtx::range_pop(), 0);
  { const nvtx::Range range("scope"); }
  static_assert(std::is_invocable_v<decltype([](sanitizer::Mode mode) { sanitizer::enable(mode); }),
                                    sanitizer::Mode>);
  static_assert(std::is_same_v<decltype(sanitizer::report()), sanitizer::Report>);
}

}  // namespace
}  // namespace gantry
