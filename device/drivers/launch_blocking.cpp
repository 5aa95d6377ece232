#include "device/drivers/launch_blocking.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "core/env/settings.hpp"
#include "core/stacks/call_place.hpp"

namespace gantry {

namespace {

std::string with_call_place(const Error& error) {
  const std::string call = describe_call_place(capture_call_place()).describe();
  return call.empty() ? error.what() : fmt::format("{}, in {}", error.what(), call);
}

}  // namespace

bool reads_launch_blocking() {
  const bool of_cuda = env::kCudaLaunchBlocking.get();
  return env::kLaunchBlocking.get() || of_cuda;
}

bool launches_block() {
  static const bool kBlock = reads_launch_blocking();
  return kBlock;
}

void pass_launch_blocking_to_cuda() {
  if (env::kLaunchBlocking.get()) ::setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
}

void rethrow_with_call_place() {
  try {
    throw;
  } catch (const IndexError& error) {
    throw IndexError(with_call_place(error), error.device());
  } catch (const CudaError& error) {
    throw CudaError(with_call_place(error), error.code(), error.name(), error.device());
  }
}

void raise_fault_of_launch(const NativeStream& stream) {
  if (!launches_block()) return;
  Driver& driver = gantry::driver();
  // Simulated devices raise it in the launch, which may also wait for peers and not block.
  if (driver.platform() == Platform::simulated || driver.is_capturing(stream)) return;
  try {
    driver.synchronize_stream(stream);
  } catch (...) {
    rethrow_with_call_place();
  }
}

}  // namespace gantry
