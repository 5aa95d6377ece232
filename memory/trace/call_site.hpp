// Call stacks as small numbers; names are looked up on demand.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gantry/memory/snapshot.hpp>

namespace gantry::memory {

/// How much of a stack a capture keeps.
enum class StackDepth : std::uint8_t { call_site, full };

/// At most so many functions of a stack are kept.
inline constexpr std::size_t kMaxFrames = 64;

/// Does what the first capture would have to: loads the unwinder, learns where gantry's code lies.
void prepare_call_sites();

/// The number of the calling thread's stack, without the allocator's own functions; equal stacks
/// have equal numbers, for the life of the process. 0 if there is no memory to note a new one.
[[nodiscard]] std::uint32_t intern_call_stack(StackDepth depth) noexcept;

/// The functions of a stack, innermost first; none for 0. Slow at first sight of a module:
/// debug information is read. Thread safety: any thread.
[[nodiscard]] Frames frames_of(std::uint32_t call_site);

}  // namespace gantry::memory
