// Does one thing in a fresh process and says on which GPUs a context exists afterwards.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <string_view>
#include <thread>

#include <gantry/device/guard.hpp>
#include <gantry/device/peer.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/extend/driver.hpp>

namespace {

using namespace gantry;

// Whether a context exists on `device`, asked without creating one.
bool has_context(int device) {
  using GetState = CUresult(CUdevice, unsigned*, int*);
  static GetState* const get_state = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, 12000,
                                     cudaEnableDefault, &found);
    return reinterpret_cast<GetState*>(function);
  }();
  unsigned flags = 0;
  int active = 0;
  return get_state != nullptr && get_state(device, &flags, &active) == CUDA_SUCCESS && active != 0;
}

void report() {
  std::printf("contexts");
  for (int device = 0; device < device_count(); ++device) {
    if (has_context(device)) std::printf(" %d", device);
  }
  std::printf("\n");
}

// Every kind of work on one device, from whatever thread this is.
void use(int device) {
  bool reported = false;
  // Names the first call after which another device has a context.
  const auto after = [&](const char* call) {
    for (int other = 0; other < device_count() && !reported; ++other) {
      if (other == device || !has_context(other)) continue;
      std::printf("%s created a context on %d\n", call, other);
      reported = true;
    }
  };
  Driver& native = driver();
  const NativeStream stream = native.create_stream(device, 0);
  after("create_stream");
  const NativeStream legacy{.device = device, .handle = nullptr};
  const NativeEvent event = native.create_event(device, {});
  after("create_event");
  void* const data = native.allocate(device, 4096);
  after("allocate");
  native.fill(data, 1, 4096, stream);
  after("fill");
  native.record_event(event, stream);
  after("record_event");
  native.wait_event(legacy, event);
  after("wait_event");
  native.fill(data, 2, 4096, legacy);
  after("fill");
  native.synchronize_event(event);
  after("synchronize_event");
  (void)native.query_event(event);
  after("query_event");
  (void)native.query_stream(stream);
  after("query_stream");
  native.synchronize_stream(stream);
  after("synchronize_stream");
  native.synchronize_stream(legacy);
  after("synchronize_stream");
  (void)native.pointer_info(data);
  after("pointer_info");
  (void)native.fault_record(device);
  after("fault_record");
  (void)native.memory_info(device);
  after("memory_info");
  void* const pinned = native.allocate_pinned(4096);
  after("allocate_pinned");
  auto* const word = static_cast<std::uint32_t*>(pinned);
  *word = 1;
  native.wait_for_word(stream, word, 1);
  native.wait_for_word(legacy, word, 1);
  after("wait_for_word");
  native.copy(pinned, data, 4096, stream);
  after("copy");
  const std::size_t grain = native.chunk_granularity(device);
  after("chunk_granularity");
  void* const address = native.reserve_address(grain, grain);
  after("reserve_address");
  const NativeChunk chunk = native.create_chunk(device, grain);
  after("create_chunk");
  native.map_chunk(address, grain, chunk);
  after("map_chunk");
  native.set_access(address, grain, std::span(&device, 1));
  after("set_access");
  native.unmap(address, grain);
  after("unmap");
  native.release_chunk(chunk);
  after("release_chunk");
  native.free_address(address, grain);
  after("free_address");
  native.begin_capture(stream, CaptureMode::thread_local_);
  after("begin_capture");
  native.fill(data, 3, 4096, stream);
  after("fill");
  const NativeGraph graph = native.end_capture(stream);
  after("end_capture");
  native.launch_graph(graph, stream);
  after("launch_graph");
  native.synchronize_device(device);
  after("synchronize_device");
  native.destroy_graph(graph);
  after("destroy_graph");
  native.deallocate_pinned(pinned);
  after("deallocate_pinned");
  native.deallocate(device, data);
  after("deallocate");
  native.destroy_event(event);
  after("destroy_event");
  native.destroy_stream(stream);
  after("destroy_stream");
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
