// The other process of driver_ipc_test: checks what it is given, then writes to it.
//
//   driver_ipc_child memory DEVICE EXPECTED VALUE BYTES MEMORY_HANDLE EVENT_HANDLE
//   driver_ipc_child chunk  DEVICE EXPECTED VALUE BYTES DESCRIPTOR
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include <gantry/device/device.hpp>
#include <gantry/extend/driver.hpp>

#include "tests/device/handle_text.hpp"

namespace {

using namespace gantry;

// True if all `bytes` of `data` are `expected`; makes them `value`.
bool check_and_fill(void* data, std::size_t bytes, std::uint8_t expected, std::uint8_t value,
                    NativeStream stream) {
  Driver& native = driver();
  auto* host = static_cast<unsigned char*>(native.allocate_pinned(bytes));
  native.copy(host, data, bytes, stream);
  native.fill(data, value, bytes, stream);
  native.synchronize_stream(stream);
  bool right = true;
  for (std::size_t i = 0; i < bytes; ++i) right = right && host[i] == expected;
  if (!right) std::fprintf(stderr, "expected bytes %d, but got %d\n", expected, host[0]);
  native.deallocate_pinned(host);
  return right;
}

bool use_memory(int device, std::uint8_t expected, std::uint8_t value, std::size_t bytes,
                const char* memory_handle, const char* event_handle) {
  Driver& native = driver();
  const auto memory = testing::from_text<NativeMemoryHandle>(memory_handle);
  const NativeStream stream = native.create_stream(device, 0);
  const NativeEvent event =
      native.open_event(device, testing::from_text<NativeEventHandle>(event_handle));
  void* const data = native.open_memory(device, memory);
  void* const again = native.open_memory(device, memory);
  native.wait_event(stream, event);
  const bool right = check_and_fill(data, bytes, expected, value, stream);
  native.close_memory(again);
  // One of two openings is closed: the memory must still be there.
  const bool still = check_and_fill(data, bytes, value, value, stream);
  native.close_memory(data);
  native.destroy_event(event);
  native.destroy_stream(stream);
  return right && still;
}

bool use_chunk(int device, std::uint8_t expected, std::uint8_t value, std::size_t bytes,
               int descriptor) {
  Driver& native = driver();
  const NativeStream stream = native.create_stream(device, 0);
  const NativeChunk chunk = native.import_chunk(device, descriptor, bytes);
  void* const address = native.reserve_address(bytes, native.chunk_granularity(device));
  native.map_chunk(address, bytes, chunk);
  native.set_access(address, bytes, std::span(&device, 1));
  const bool right = check_and_fill(address, bytes, expected, value, stream);
  native.unmap(address, bytes);
  native.free_address(address, bytes);
  native.release_chunk(chunk);
  native.destroy_stream(stream);
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  const std::string_view kind = argv[1];
  const int device = std::stoi(argv[2]);
  const auto expected = static_cast<std::uint8_t>(std::stoi(argv[3]));
  const auto value = static_cast<std::uint8_t>(std::stoi(argv[4]));
  const std::size_t bytes = std::stoull(argv[5]);
  try {
    const bool right = kind == "memory"
                           ? use_memory(device, expected, value, bytes, argv[6], argv[7])
                           : use_chunk(device, expected, value, bytes, std::stoi(argv[6]));
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
