#pragma once

#include <cstddef>

namespace gantry::kernels {

// Memory through which kernels of the program may wait for kernels of other ranks, such as a
// window's memory. Launches that name it count as launches that wait: see MemoryUses.
//
// Thread safety: any thread.
class SignalMemory {
 public:
  // Throws: std::bad_alloc.
  SignalMemory(const void* data, std::size_t bytes);
  ~SignalMemory();
  SignalMemory(const SignalMemory&) = delete;
  SignalMemory& operator=(const SignalMemory&) = delete;

  // True if there is such memory in this process; one load.
  [[nodiscard]] static bool exists() noexcept;
  // True if `data` lies in such memory.
  [[nodiscard]] static bool contains(const void* data);

 private:
  const void* data_;
};

}  // namespace gantry::kernels
