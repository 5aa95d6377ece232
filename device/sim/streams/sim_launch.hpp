// How kernels run on simulated devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include <gantry/extend/driver.hpp>

namespace gantry::sim {

/// The body of a kernel, a copy or a host function. An exception that leaves it becomes the sticky
/// error of its stream. It runs, and is destroyed, on the stream's thread, so it should own plain
/// values: a shared_ptr whose other owners live on host threads orders them with the stream and
/// hides races. It must not call the driver.
using Task = std::function<void()>;

/// Waits of a running kernel, in ascending order.
enum class KernelWaits : std::uint8_t {
  never,
  for_peers,    ///< kernels of other ranks, which the launching thread may launch later
  by_spinning,  ///< may wait as above, without pause_task(): a kernel of the program
};

/// For a task that waits for peers, between two looks: gives its turn to other tasks, if
/// GANTRY_SIM_SCHEDULE is set. False if not; then the task pauses by itself.
bool pause_task();

/// Enqueues `task` on `stream`; captures it if the stream is being captured. Note [Launch blocking]
/// Throws: CudaError 400 if there is no such stream; while launches block, what the task throws.
void launch(NativeStream stream, Task task, KernelWaits waits = KernelWaits::never);

/// Checks that kernels on `device` may touch [data, data + bytes): its own memory, memory of a peer
/// with enabled access, memory mapped with access for it, or pinned host memory. Call it on the
/// host thread, before launch(). No bytes are always fine.
/// Throws: CudaError, 1 for host memory that is not pinned, 700 for memory that is out of reach,
/// freed or shorter than `bytes`.
void check_device_access(int device, const void* data, std::size_t bytes);

}  // namespace gantry::sim
