#pragma once

#include <cuda.h>

#include <gantry/device/native_handles.hpp>

namespace gantry::cuda {

/// Lets `peer` reach the stream-ordered memory of `owner`, what is there and what will come.
void open_pool(int owner, int peer);

/// Lets the pools give back what was freed before `event`, which is reached. Does nothing while the
/// process has no pool. See Note [Observed frees].
void observe_reached(CUevent event) noexcept;
/// As above, for a stream that had no work at the caller's last look. Never waits for later work.
void observe_idle(NativeStream stream) noexcept;

}  // namespace gantry::cuda
