#pragma once

#include <cstdint>

#include <gantry/core/macros.hpp>

namespace gantry {

/// Calls that other threads may make during a stream capture; the names are CUDA's.
/// @since 0.1
enum class CaptureMode : std::uint8_t {
  global,         ///< no thread may make a call that captures forbid
  thread_local_,  ///< the capturing thread may not make such a call
  relaxed,        ///< every thread may make such calls
};

}  // namespace gantry
