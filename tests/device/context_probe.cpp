// Does one thing in a fresh process and says on which GPUs a context exists afterwards.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <string_view>
#include <thread>

#include <gantry/device/driver.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/device/peer.hpp>
#include <gantry/device/properties.hpp>

namespace {

using namespace gantry;

void report() {
  using GetState = CUresult(CUdevice, unsigned*, int*);
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, 12000,
                                       cudaEnableDefault, &found) != cudaSuccess) {
    std::printf("contexts unknown");
    return;
  }
  std::printf("contexts");
  for (int device = 0; device < device_count(); ++device) {
    unsigned flags = 0;
    int active = 0;
    reinterpret_cast<GetState*>(function)(device, &flags, &active);
    if (active != 0) std::printf(" %d", device);
  }
  std::printf("\n");
}

// Every kind of work on one device, from whatever thread this is.
void use(int device) {
  Driver& native = driver();
  const NativeStream stream = native.create_stream(device, 0);
  const NativeStream legacy{.device = device, .handle = nullptr};
  const NativeEvent event = native.create_event(device, {});
  void* const data = native.allocate(device, 4096);
  native.fill(data, 1, 4096, stream);
  native.record_event(event, stream);
  native.wait_event(legacy, event);
  native.fill(data, 2, 4096, legacy);
  native.synchronize_event(event);
  (void)native.query_event(event);
  (void)native.query_stream(stream);
  native.synchronize_stream(stream);
  native.synchronize_stream(legacy);
  (void)native.pointer_info(data);
  (void)native.fault_record(device);
  (void)native.memory_info(device);
  void* const pinned = native.allocate_pinned(4096);
  native.copy(pinned, data, 4096, stream);
  const std::size_t grain = native.chunk_granularity(device);
  void* const address = native.reserve_address(grain, grain);
  const NativeChunk chunk = native.create_chunk(device, grain);
  native.map_chunk(address, grain, chunk);
  native.set_access(address, grain, std::span(&device, 1));
  native.unmap(address, grain);
  native.release_chunk(chunk);
  native.free_address(address, grain);
  native.begin_capture(stream, CaptureMode::thread_local_);
  native.fill(data, 3, 4096, stream);
  const NativeGraph graph = native.end_capture(stream);
  native.launch_graph(graph, stream);
  native.synchronize_device(device);
  native.destroy_graph(graph);
  native.deallocate_pinned(pinned);
  native.deallocate(device, data);
  native.destroy_event(event);
  native.destroy_stream(stream);
}

int cuda_current() {
  int device = -1;
  cudaGetDevice(&device);
  return device;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  const int last = device_count() - 1;
  if (command == "ask") {
    for (int i = 0; i <= last; ++i) (void)device_properties(Device::cuda(i));
    (void)peer_matrix();
    (void)current_device();
    (void)driver().pointer_info(&last);
  } else if (command == "use-last") {
    use(last);
    std::printf("current %d\n", current_device().index);
  } else if (command == "use-last-on-thread") {
    std::thread([&] { use(last); }).join();
  } else if (command == "guard-last") {
    {
      const DeviceGuard guard(Device::cuda(last));
      std::printf("inside %d %d\n", current_device().index, cuda_current());
    }
    std::printf("current %d\n", current_device().index);
  } else if (command == "guard-twice") {
    { const DeviceGuard guard(Device::cuda(last)); }
    {
      // The device that is current on paper becomes current for CUDA, too.
      const DeviceGuard guard(current_device());
      std::printf("inside %d %d\n", current_device().index, cuda_current());
    }
    std::printf("current %d\n", current_device().index);
  } else if (command == "foreign") {
    cudaSetDevice(last);
    { const DeviceGuard guard(Device::cuda(0)); }
    std::printf("current %d %d\n", current_device().index, cuda_current());
    {
      const DeviceGuard guard(Device::cuda(last));
      cudaSetDevice(0);
    }
    std::printf("current %d %d\n", current_device().index, cuda_current());
  } else if (command == "foreign-after-guard") {
    { const DeviceGuard guard(Device::cuda(last)); }
    cudaSetDevice(0);
    std::printf("current %d %d\n", current_device().index, cuda_current());
    cudaSetDevice(last);
    std::printf("then %d %d\n", current_device().index, cuda_current());
  } else {
    return 2;
  }
  report();
  return 0;
}
