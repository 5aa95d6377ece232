#include <gantry/kernels/launch.hpp>

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>

#include "device/drivers/memory_reclaim.hpp"
#include "device/sim/streams/sim_launch.hpp"
#include "kernels/observed_op.hpp"
#include "kernels/signal_memory.hpp"

namespace gantry::detail {

namespace {

constexpr std::int64_t kMostThreads = 1024;

void check_size(const char* what, const char* dim, std::int64_t value, std::int64_t least,
                std::int64_t most) {
  if (value >= least && value <= most) return;
  throw InvalidArgument(fmt::format("launch: expected {}.{} from {} to {}, but got {}", what, dim,
                                    least, most, value));
}

// The name of F in "const char* text_with_name() [with F = main()::Scale]", as g++ writes it.
// clang++ writes "[F = Scale]" and nvcc's front end "[with F=Scale]". A type of an unnamed
// namespace is named without it; nvcc's host compiler calls one "_GLOBAL__N__", a hash and the
// file.
std::string functor_name(std::string_view text) {
  const std::size_t open = text.find('[');
  const std::size_t equal = text.find('=', open);
  if (open == std::string_view::npos || equal == std::string_view::npos) return "functor";
  text.remove_prefix(text.find_first_not_of(' ', equal + 1));
  int depth = 0;  // of brackets
  std::size_t length = 0;
  for (; length < text.size(); ++length) {
    const char c = text[length];
    if (depth == 0 && (c == ']' || c == ';')) break;
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
  }
  std::string name(text.substr(0, length));
  for (const std::string_view unnamed : {"{anonymous}::", "(anonymous namespace)::"}) {
    for (std::size_t at = 0; (at = name.find(unnamed, at)) != std::string::npos;) {
      name.erase(at, unnamed.size());
    }
  }
  for (std::size_t at = 0; (at = name.find("_GLOBAL__N_", at)) != std::string::npos;) {
    const std::size_t end = name.find("::", at);
    if (end == std::string::npos) break;
    name.erase(at, end + 2 - at);
  }
  return name;
}

struct LaunchCall {
  LaunchCall(const char* op, std::string functor, const Stream& stream, std::string operands)
      : scope(op), observed(kernels::Target::on(stream), std::move(functor), std::move(operands)) {}

  kernels::OpScope scope;
  kernels::ObservedOp observed;
};

}  // namespace

bool ObservedLaunch::is_observed() noexcept { return has_observer(kOpObservers); }

void ObservedLaunch::begin(const char* op, const char* functor, const Stream& stream,
                           std::string operands) noexcept {
  try {
    call_ = new LaunchCall(op, functor_name(functor), stream, std::move(operands));
  } catch (...) {  // without host memory the launch is not observed
  }
}

void ObservedLaunch::end() noexcept { delete static_cast<LaunchCall*>(call_); }

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

void submit_to_simulator(const Stream& stream, std::function<void()> task, bool waits) {
  sim::launch(stream.native(), std::move(task),
              waits ? sim::KernelWaits::by_spinning : sim::KernelWaits::never);
}

bool any_kernel_may_wait() noexcept { return kernels::SignalMemory::exists(); }

void throw_launch_failed(const char* op, const Stream& stream, int code, const char* name,
                         const char* text) {
  const std::string device = stream.device().str();
  throw CudaError(fmt::format("{}: failed to launch the kernel on stream {} of {}: {} ({}): {}", op,
                              fmt::ptr(stream.native_handle()), device, name, code, text),
                  code, name, device);
}

bool reclaim_for_launch(const Stream& stream) noexcept {
  return reclaim_memory(stream.native().device);
}

void throw_device_only(const char* op) {
  throw NotSupported(fmt::format(
      "{}: failed to launch on a simulated device: the lambda is __device__; make it GANTRY_HD",
      op));
}

}  // namespace gantry::detail
