// Whether a stream has work, for callers that must not see its errors.
#pragma once

#include <gantry/device/native_handles.hpp>

namespace gantry {

/// True if all work submitted to `stream` so far is complete. Unlike Driver::query_stream() it
/// throws nothing, leaves faults and errors pending, and is allowed while other streams are
/// captured. False for a stream that failed, and for one that cannot be queried.
[[nodiscard]] bool is_idle(const NativeStream& stream) noexcept;

/// False for a default stream while a stream that synchronizes with it is being captured: a look at
/// the default stream, or a record on it, would spoil that capture. True for every other stream.
[[nodiscard]] bool may_look_at(const NativeStream& stream) noexcept;

}  // namespace gantry
