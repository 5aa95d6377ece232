#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string>
#include <string_view>

#include <gantry/extend/driver.hpp>

namespace gantry::cuda {

/// The operation and the place of a failed call.
struct Activity {
  std::string text;    ///< "recording event on stream 3 of cuda:1"
  std::string device;  ///< "cuda:1", or empty
};

[[nodiscard]] Activity activity(std::string_view doing);
[[nodiscard]] Activity activity(std::string_view doing, int device);
[[nodiscard]] Activity activity(std::string_view doing, NativeStream stream);

/// For a call that found no memory: true if cached memory was released for it; see Note [Memory of
/// the driver]. The arguments are as for activity().
[[nodiscard]] bool is_worth_repeating(std::string_view doing, int device = -1) noexcept;
[[nodiscard]] bool is_worth_repeating(std::string_view doing, NativeStream stream) noexcept;

/// Throws the CudaError for `status`; `call` is the function's name or the source text of the call.
[[noreturn]] void raise(cudaError_t status, std::string_view call, const Activity& activity,
                        std::source_location where = std::source_location::current());

/// Logs `status` as a warning, unless CUDA is shutting down. For destructors.
void warn(cudaError_t status, std::string_view call, const char* doing) noexcept;

/// True for the statuses of calls made while the process ends: there is nothing left to free.
[[nodiscard]] bool is_shutting_down(cudaError_t status) noexcept;

/// Forgets the calling thread's last CUDA error, so that foreign code does not stumble over it.
void clear_error() noexcept;

}  // namespace gantry::cuda

/// Evaluates a CUDA runtime or driver call and throws CudaError if it failed. A call that finds no
/// memory is evaluated again as long as cached memory is released for it.
///
/// The rest are the arguments of gantry::cuda::activity; they are evaluated only on failure.
#define GANTRY_CUDA_CHECK(call, ...)                                                      \
  do {                                                                                    \
    auto gantry_status = static_cast<cudaError_t>(call);                                  \
    while (gantry_status == cudaErrorMemoryAllocation &&                                  \
           ::gantry::cuda::is_worth_repeating(__VA_ARGS__)) {                             \
      gantry_status = static_cast<cudaError_t>(call);                                     \
    }                                                                                     \
    if (gantry_status != cudaSuccess) [[unlikely]] {                                      \
      ::gantry::cuda::raise(gantry_status, #call, ::gantry::cuda::activity(__VA_ARGS__)); \
    }                                                                                     \
  } while (false)

/// GANTRY_CUDA_CHECK of a status that was looked at already; `function` names what returned it.
#define GANTRY_CUDA_CHECK_STATUS(status, function, ...)                                      \
  do {                                                                                       \
    const auto gantry_status = static_cast<cudaError_t>(status);                             \
    if (gantry_status != cudaSuccess) [[unlikely]] {                                         \
      ::gantry::cuda::raise(gantry_status, function, ::gantry::cuda::activity(__VA_ARGS__)); \
    }                                                                                        \
  } while (false)

/// GANTRY_CUDA_CHECK for destructors and noexcept functions: logs instead of throwing and says
/// nothing while CUDA shuts down.
#define GANTRY_CUDA_WARN(call, doing)                          \
  do {                                                         \
    const auto gantry_status = static_cast<cudaError_t>(call); \
    if (gantry_status != cudaSuccess) [[unlikely]] {           \
      ::gantry::cuda::warn(gantry_status, #call, doing);       \
    }                                                          \
  } while (false)

/// GANTRY_CUDA_CHECK for calls that free something: silent while CUDA shuts down, which freed it.
#define GANTRY_CUDA_CHECK_FREE(call, ...)                                                   \
  do {                                                                                      \
    const auto gantry_status = static_cast<cudaError_t>(call);                              \
    if (gantry_status != cudaSuccess && !::gantry::cuda::is_shutting_down(gantry_status)) { \
      ::gantry::cuda::raise(gantry_status, #call, ::gantry::cuda::activity(__VA_ARGS__));   \
    }                                                                                       \
  } while (false)
