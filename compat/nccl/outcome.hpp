// The end of a call of NCCL's interface: a number, and a text for ncclGetLastError().
#pragma once

#include <exception>
#include <string>

#include "compat/nccl/tally.hpp"
#include "compat/nccl/types/api.hpp"

namespace gantry::nccl_api {

// NCCL's number of an error, and the error's text.
struct Outcome {
  ncclResult_t result = ncclSuccess;
  std::string text = {};

  static Outcome of(const std::exception_ptr& error) noexcept;
};

// The text of the calling thread's last error; never null.
const char* last_error() noexcept;
// Makes `outcome` the calling thread's last error. Returns its number.
ncclResult_t fail(const char* function, const Outcome& outcome) noexcept;
// Refuses a call that gantry does not carry.
ncclResult_t refuse(const char* function, const char* reason) noexcept;

// Runs the body of a function of the interface, which counts as one call of `tally`.
template <class Body>
ncclResult_t guarded(Tally& tally, Body body) noexcept {
  tally.count();
  try {
    return body();
  } catch (...) {
    return fail(tally.name(), Outcome::of(std::current_exception()));
  }
}

}  // namespace gantry::nccl_api

// Opens the body of an exported function: `return guarded(tally, [&] { … });` with a tally of its
// own.
#define GANTRY_NCCL_TALLY(function) static ::gantry::nccl_api::Tally tally(function)
#define GANTRY_NCCL_API extern "C" __attribute__((visibility("default")))
