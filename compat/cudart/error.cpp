#include "compat/cudart/error.hpp"

#include <new>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/device.hpp>

#include "compat/cudart/next.hpp"

namespace gantry::cudart_api {

namespace {

thread_local cudaError_t thread_error = cudaSuccess;

cudaError_t number_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Refusal& caught) {
    return caught.number();
  } catch (const CudaError& caught) {
    return static_cast<cudaError_t>(caught.code());
  } catch (const OutOfMemoryError&) {
    return cudaErrorMemoryAllocation;
  } catch (const InvalidArgument&) {
    return cudaErrorInvalidValue;
  } catch (const ShapeError&) {
    return cudaErrorInvalidValue;
  } catch (const IndexError&) {  // a kernel of gantry's met it
    return cudaErrorAssert;
  } catch (const CaptureError&) {
    return cudaErrorStreamCaptureUnsupported;
  } catch (const ForkError&) {
    return cudaErrorInitializationError;
  } catch (const NotSupported&) {
    // No device is visible, or this one cannot do it.
    return is_available() ? cudaErrorNotSupported : cudaErrorNoDevice;
  } catch (const TimeoutError&) {
    return cudaErrorTimeout;
  } catch (const std::bad_alloc&) {
    return cudaErrorMemoryAllocation;
  } catch (...) {
    return cudaErrorUnknown;
  }
}

void log(const char* function, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    logging::info(std::string(function) + ": " + caught.what());
  } catch (...) {
  }
}

}  // namespace

cudaError_t fail(cudaError_t number) noexcept { return thread_error = number; }

cudaError_t fail(const char* function, const std::exception_ptr& error) noexcept {
  try {
    log(function, error);
    return fail(number_of(error));
  } catch (...) {
    return fail(cudaErrorUnknown);
  }
}

GANTRY_CUDART_API cudaError_t cudaGetLastError() {
  if (is_simulated()) return std::exchange(thread_error, cudaSuccess);
  GANTRY_CUDART_PASS_ON(cudaGetLastError, ());
}

GANTRY_CUDART_API cudaError_t cudaPeekAtLastError() {
  if (is_simulated()) return thread_error;
  GANTRY_CUDART_PASS_ON(cudaPeekAtLastError, ());
}

}  // namespace gantry::cudart_api
