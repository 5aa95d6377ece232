// Call stacks as small numbers; names are looked up on demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <gantry/core/frames.hpp>

namespace gantry::stacks {

/// How much of a stack a capture keeps.
enum class StackDepth : std::uint8_t { call_site, full };

/// The most functions of a stack that are kept.
inline constexpr std::size_t kMaxFrames = 64;

/// Loads the unwinder and finds gantry's code, so that the first capture costs no more than others.
void prepare_call_sites();

/// Returns the number of the calling thread's stack, without the allocator's own functions. Equal
/// stacks have equal numbers as long as the process runs. Returns 0 without host memory.
/// Of a call site the first `frames` functions outside gantry are kept: the caller may be one of
/// the C++ library, such as the destructor of a shared_ptr. Functions of namespace gantry in the
/// program do not count.
[[nodiscard]] std::uint32_t intern_call_stack(StackDepth depth, std::size_t frames = 1) noexcept;

/// Returns the functions of a stack, innermost first; none for 0. The first call for a module is
/// slow: it reads the debug information. Thread safety: any thread.
[[nodiscard]] Frames frames_of(std::uint32_t call_site);

/// Returns "file:line function" of a call site; empty if it is unknown. As slow as frames_of().
[[nodiscard]] std::string name_of_call_site(std::uint32_t call_site);

}  // namespace gantry::stacks
