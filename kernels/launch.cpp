#include <gantry/kernels/launch.hpp>

#include <fmt/format.h>

#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>

#include "device/sim/sim_launch.hpp"

namespace gantry::detail {

namespace {

constexpr std::int64_t kMostThreads = 1024;

void check_size(const char* what, const char* dim, std::int64_t value, std::int64_t least,
                std::int64_t most) {
  if (value >= least && value <= most) return;
  throw InvalidArgument(fmt::format("launch: expected {}.{} from {} to {}, but got {}", what, dim,
                                    least, most, value));
}

}  // namespace

void check_parallel_for(std::int64_t n) {
  if (n >= 0) return;
  throw InvalidArgument(
      fmt::format("parallel_for: expected a number of calls of at least 0, but got {}", n));
}

void check_launch(const Stream& stream, const Grid& grid, const BlockSize& block) {
  check_size("grid", "x", grid.x, 0, (std::int64_t{1} << 31) - 1);
  check_size("grid", "y", grid.y, 0, 65535);
  check_size("grid", "z", grid.z, 0, 65535);
  check_size("block", "x", block.x, 1, kMostThreads);
  check_size("block", "y", block.y, 1, kMostThreads);
  check_size("block", "z", block.z, 1, 64);
  if (const std::int64_t threads = block.x * block.y * block.z; threads > kMostThreads) {
    throw InvalidArgument(fmt::format("launch: expected at most {} threads in a block, but got {}",
                                      kMostThreads, threads));
  }
  if (block.shared_bytes == 0) return;
  const std::size_t most = device_properties(stream.device()).shared_memory_per_block_optin;
  if (block.shared_bytes > most) {
    throw InvalidArgument(
        fmt::format("launch: expected at most {} bytes of shared memory in a block, but got {}",
                    most, block.shared_bytes),
        stream.device().str());
  }
}

bool runs_on_simulator(const char* op, const Stream& stream, bool compiled_for_gpu) {
  if (platform() == Platform::simulated) return true;
  if (compiled_for_gpu) return false;
  throw NotSupported(
      fmt::format("{}: failed to launch on {}: the functor is compiled for the host only; compile "
                  "its file with nvcc",
                  op, stream.device().str()),
      stream.device().str());
}

void submit_to_simulator(const Stream& stream, std::function<void()> task) {
  sim::launch(stream.native(), std::move(task));
}

void throw_launch_failed(const char* op, const Stream& stream, int code, const char* name,
                         const char* text) {
  const std::string device = stream.device().str();
  throw CudaError(fmt::format("{}: failed to launch the kernel on stream {} of {}: {} ({}): {}", op,
                              fmt::ptr(stream.native_handle()), device, name, code, text),
                  code, name, device);
}

void throw_device_only(const char* op) {
  throw NotSupported(fmt::format(
      "{}: failed to launch on a simulated device: the lambda is __device__; make it GANTRY_HD",
      op));
}

}  // namespace gantry::detail
