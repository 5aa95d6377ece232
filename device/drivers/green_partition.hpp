// Shares of a GPU's multiprocessors.
#pragma once

#include <gantry/device/native_handles.hpp>

namespace gantry {

/// A green context of the CUDA driver.
struct GreenPartition {
  void* context = nullptr;  ///< CUgreenCtx
  int multiprocessors = 0;  ///< that it has
};

/// Reserves at least `multiprocessors` of a GPU. Throws: NotSupported if the driver has no such
/// calls; CudaError.
[[nodiscard]] GreenPartition make_green_partition(int device, int multiprocessors);
/// A stream whose kernels run on the partition. Driver::destroy_stream destroys it.
[[nodiscard]] NativeStream make_green_stream(int device, const GreenPartition& partition,
                                             int priority);
/// Frees a partition whose streams are destroyed. A failure is logged.
void destroy_green_partition(const GreenPartition& partition) noexcept;

}  // namespace gantry
