#include "compat/nccl/outcome.hpp"

#include <exception>
#include <string>
#include <system_error>

#include <gantry/collectives/collective_mismatch.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "compat/nccl/fallback.hpp"

namespace gantry::nccl_api {

namespace {

thread_local std::string thread_error;

}  // namespace

Outcome Outcome::of(const std::exception_ptr& error) noexcept {
  try {
    if (!error) return {};
    try {
      std::rethrow_exception(error);
    } catch (const TheirFailure& caught) {
      return {caught.result(), caught.what()};
    } catch (const CollectiveMismatch& caught) {
      return {ncclInvalidUsage, caught.what()};
    } catch (const InvalidArgument& caught) {
      return {ncclInvalidArgument, caught.what()};
    } catch (const ShapeError& caught) {
      return {ncclInvalidArgument, caught.what()};
    } catch (const DTypeError& caught) {
      return {ncclInvalidArgument, caught.what()};
    } catch (const DeviceMismatchError& caught) {
      return {ncclInvalidArgument, caught.what()};
    } catch (const PeerLostError& caught) {
      return {ncclRemoteError, caught.what()};
    } catch (const TimeoutError& caught) {
      return {ncclTimeout, caught.what()};
    } catch (const NotSupported& caught) {
      return {ncclInvalidUsage, caught.what()};
    } catch (const CaptureError& caught) {
      return {ncclInvalidUsage, caught.what()};
    } catch (const CudaError& caught) {
      return {ncclUnhandledCudaError, caught.what()};
    } catch (const OutOfMemoryError& caught) {
      return {ncclUnhandledCudaError, caught.what()};
    } catch (const std::system_error& caught) {
      return {ncclSystemError, caught.what()};
    } catch (const std::bad_alloc& caught) {
      return {ncclSystemError, caught.what()};
    } catch (const std::exception& caught) {
      return {ncclInternalError, caught.what()};
    }
  } catch (...) {
    return {ncclInternalError, {}};
  }
}

const char* last_error() noexcept { return thread_error.c_str(); }

ncclResult_t fail(const char* function, const Outcome& outcome) noexcept {
  try {
    thread_error = std::string(function) + ": " + outcome.text;
    logging::info(thread_error);
  } catch (...) {
    thread_error.clear();
  }
  return outcome.result;
}

ncclResult_t refuse(const char* function, const char* reason) noexcept {
  return fail(function, {ncclInvalidUsage, reason});
}

}  // namespace gantry::nccl_api
