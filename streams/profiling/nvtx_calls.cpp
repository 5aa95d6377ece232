#include "streams/profiling/nvtx_calls.hpp"

#include <nvtx3/nvToolsExt.h>

namespace gantry::nvtx {

void call_mark(const char* message) noexcept { nvtxMarkA(message); }
void call_push(const char* message) noexcept { static_cast<void>(nvtxRangePushA(message)); }
void call_pop() noexcept { static_cast<void>(nvtxRangePop()); }
std::uint64_t call_start(const char* message) noexcept { return nvtxRangeStartA(message); }
void call_end(std::uint64_t range) noexcept { nvtxRangeEnd(range); }

}  // namespace gantry::nvtx
