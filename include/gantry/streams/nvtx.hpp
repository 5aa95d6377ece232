// Marks and ranges for NVIDIA's profilers (NVTX).
#pragma once

#include <cstdint>
#include <string>

#include <gantry/core/export.hpp>

/// Marks and ranges that profilers such as Nsight Systems show on the time line of the host.
///
/// They work on every platform, also without devices. Without a profiler a call costs some
/// nanoseconds. In a build without NVTX's headers the calls only check their arguments. A warning
/// is logged if the profiler of NVTX_INJECTION64_PATH gets no calls. Throws: InvalidArgument for a
/// message that contains a null character.
/// @since 0.3
namespace gantry::nvtx {

/// A range that range_start() began.
/// @since 0.3
enum class RangeId : std::uint64_t {
  none = 0  ///< no range
};

/// Marks the present moment. Thread safety: any thread.
GANTRY_API void mark(const std::string& message);
/// Begins a range of the calling thread, inside its other ones. Returns its depth: 0 for the
/// outermost range.
GANTRY_API int range_push(const std::string& message);
/// Ends the innermost range of the calling thread that range_push() began. Returns its depth.
/// Throws: InvalidArgument if there is none.
GANTRY_API int range_pop();
/// Begins a range that any thread may end. Such ranges need not nest. Thread safety: any thread.
[[nodiscard]] GANTRY_API RangeId range_start(const std::string& message);
/// Ends a range of range_start(). Thread safety: any thread. Throws: InvalidArgument if it is not
/// open.
GANTRY_API void range_end(RangeId range);

/// A scope that is a range of the calling thread.
/// Example: `const nvtx::Range range("forward");`
/// @since 0.3
class GANTRY_API Range {
 public:
  /// range_push(message).
  explicit Range(const std::string& message);
  /// Ends the range.
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

/// Turns on, or off, a range around each kernel that a tensor operation submits. Off at first. The
/// text is the operation's name with the dtypes and shapes of its operands, such as "add f32[2, 3]
/// f32[3]".
/// Thread safety: any thread; other threads follow at their next operation.
GANTRY_API void annotate_ops(bool enabled = true);
/// True if annotate_ops() is on.
[[nodiscard]] GANTRY_API bool annotates_ops() noexcept;

}  // namespace gantry::nvtx
