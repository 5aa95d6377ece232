// The calls of NVTX; they do nothing in a build without its headers.
#pragma once

#include <cstdint>
#include <string>

namespace gantry::nvtx {

void call_mark(const char* message) noexcept;
void call_push(const char* message) noexcept;
void call_pop() noexcept;
[[nodiscard]] std::uint64_t call_start(const char* message) noexcept;
void call_end(std::uint64_t range) noexcept;
// Why the profiler in `library`, of NVTX_INJECTION64_PATH, gets no calls; empty if it gets them.
[[nodiscard]] std::string why_not_loaded(const std::string& library);

}  // namespace gantry::nvtx
