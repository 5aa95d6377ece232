// Rows about devices.
#include "tests/torch_map/torch_map_fixture.hpp"

namespace {

using namespace gantry;
using gantry::testing::TorchCudaMapTest;

TEST_F(TorchCudaMapTest, Availability) {
  EXPECT_TRUE(is_available());
  EXPECT_EQ(is_available(), device_count() > 0);
}

TEST_F(TorchCudaMapTest, DeviceCount) { EXPECT_GE(device_count(), 1); }

TEST_F(TorchCudaMapTest, Init) {
  init();
  EXPECT_TRUE(is_initialized());
}

TEST_F(TorchCudaMapTest, CurrentDevice) {
  const Device last = Device::cuda(device_count() - 1);
  set_device(last);
  EXPECT_EQ(current_device(), last);
}

TEST_F(TorchCudaMapTest, DeviceScope) {
  const Device last = Device::cuda(device_count() - 1);
  {
    DeviceGuard guard(last);
    EXPECT_EQ(current_device(), last);
  }
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(TorchCudaMapTest, DeviceOf) {
  const Tensor t = zeros({2}, Device::cuda(device_count() - 1));
  {
    const auto guard = device_of(t);
    EXPECT_EQ(current_device(), t.device());
  }
  EXPECT_EQ(current_device(), Device::cuda(0));
  const auto guard = device_of(zeros({2}));
  EXPECT_EQ(current_device(), Device::cuda(0)) << "a CPU tensor changes nothing";
}

TEST_F(TorchCudaMapTest, Synchronize) {
  const Tensor t = ones({2}, "cuda:0").add_(1);
  synchronize("cuda:0");
  EXPECT_TRUE(Stream::current().query());
}

TEST_F(TorchCudaMapTest, Properties) {
  EXPECT_GT(device_properties("cuda:0").total_memory, 0u);
  EXPECT_GT(device_properties("cuda:0").multiprocessors, 0);
}

TEST_F(TorchCudaMapTest, Name) { EXPECT_FALSE(device_properties("cuda:0").name.empty()); }

TEST_F(TorchCudaMapTest, Capability) {
  const auto& p = device_properties("cuda:0");
  EXPECT_GE((std::pair(p.major, p.minor)), std::pair(1, 0));
}

TEST_F(TorchCudaMapTest, PeerAccess) {
  GANTRY_REQUIRE_DEVICES(2);
  EXPECT_EQ(can_access_peer("cuda:0", "cuda:1"), peer_matrix().can_access(0, 1));
}

TEST_F(TorchCudaMapTest, Architectures) {
  EXPECT_EQ(arch_list().empty(), gencode_flags().empty());
  for (const std::string& name : arch_list()) EXPECT_NE(name.find('_'), std::string::npos);
}

TEST_F(TorchCudaMapTest, Bf16) {
  EXPECT_EQ(ones({2}, {.dtype = bf16, .device = "cuda"}).sum().item<float>(), 2);
}

TEST_F(TorchCudaMapTest, Half) {
  EXPECT_EQ(ones({2}, {.dtype = f16, .device = "cuda"}).sum().item<float>(), 2);
}

TEST_F(TorchCudaMapTest, TypedTensors) {
  EXPECT_EQ(empty({2}, {.dtype = f64, .device = "cuda"}).dtype(), f64);
}

TEST_F(TorchCudaMapTest, TypedStorages) {
  const Tensor t = zeros({2}, {.dtype = f64, .device = "cuda"});
  EXPECT_EQ(t.storage().bytes(), 2 * sizeof(double));
}

TEST_F(TorchCudaMapTest, Handles) {
  // What a program passes to calls of the CUDA runtime.
  EXPECT_EQ(Stream::current().native_handle(), nullptr);
  EXPECT_NE(zeros({2}, "cuda").data_ptr<float>(), nullptr);
}

TEST_F(TorchCudaMapTest, Errors) {
  Tensor t = zeros({2}, "cuda:0");
  Graph graph;
  {
    GraphCapture capture(graph);
    t.add_(1);
  }
  try {
    graph.debug_dump("/no/such/folder/graph.dot");
    ADD_FAILURE() << "the folder does not exist";
  } catch (const CudaError& error) {
    EXPECT_NE(error.code(), 0);
    EXPECT_FALSE(error.name().empty());
  }
}

TEST_F(TorchCudaMapTest, DeferredErrors) {
  EXPECT_THROW(set_device(Device::cuda(device_count())), InvalidArgument);
}

TEST_F(TorchCudaMapTest, OutOfMemory) {
  const auto total = static_cast<std::int64_t>(device_properties("cuda:0").total_memory);
  try {
    (void)empty({2 * total}, {.dtype = u8, .device = "cuda:0"});
    ADD_FAILURE() << "more than there is was allocated";
  } catch (const OutOfMemoryError& error) {
    EXPECT_GE(error.breakdown().requested, 2 * total);
  }
}

TEST_F(TorchCudaMapTest, Utilization) {
  expect_measured([] { return utilization("cuda:0"); });
}

TEST_F(TorchCudaMapTest, MemoryUsage) {
  expect_measured([] { return memory_usage("cuda:0"); });
}

TEST_F(TorchCudaMapTest, DeviceMemoryUsed) {
  const memory::MemInfo info = memory::mem_get_info("cuda:0");
  EXPECT_LE(info.total - info.free, info.total);
}

TEST_F(TorchCudaMapTest, Temperature) {
  expect_measured([] { return temperature("cuda:0"); });
}

TEST_F(TorchCudaMapTest, PowerDraw) {
  expect_measured([] { return power_draw("cuda:0"); });
}

TEST_F(TorchCudaMapTest, ClockRate) {
  expect_measured([] { return clock_rate("cuda:0"); });
}

TEST_F(TorchCudaMapTest, GpuProcesses) {
  expect_measured([] { return static_cast<int>(list_gpu_processes("cuda:0").processes.size()); });
}

TEST_F(TorchCudaMapTest, BlasHandle) {
  try {
    void* handle = current_blas_handle();
    EXPECT_NE(handle, nullptr);
    EXPECT_EQ(handle, current_blas_handle()) << "one handle of a thread and device";
  } catch (const NotSupported& error) {
    EXPECT_NE(platform(), Platform::cuda) << error.what();
  }
}

TEST_F(TorchCudaMapTest, GreenContexts) {
  try {
    GreenContext green(1, "cuda:0");
    const Stream stream = green.make_stream();
    EXPECT_GE(green.multiprocessors(), 1);
    StreamGuard guard(stream);
    EXPECT_EQ(ones({2}, "cuda:0").add(1).sum().item<float>(), 4);
  } catch (const NotSupported& error) {
    EXPECT_NE(platform(), Platform::cuda) << error.what();
  }
}

}  // namespace
