// Bodies of conditions in captures.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

// Note [Memory of bodies]
// A body is captured on a separate stream. All bodies of one outer stream use the same one, and run
// one after the other. Blocks that a body frees are therefore reused only by bodies of the same
// outer stream. Each round of a loop writes a block before it reads it, so reuse between rounds is
// safe, too. Driver::capture_id gives bodies the number of the capture around them, so their memory
// belongs to its graph.

/// The body of a condition, which is captured while the scope lives.
class ConditionScope {
 public:
  /// Throws: NotSupported where the driver has no conditions; CudaError, also unless `around` is
  /// being captured.
  ConditionScope(const Stream& around, const NativeCondition& condition);
  /// Abandons the body unless end() was called: the capture around it is spoilt.
  ~ConditionScope();
  ConditionScope(const ConditionScope&) = delete;
  ConditionScope& operator=(const ConditionScope&) = delete;

  /// Ends the body, then calls the functions of at_end_of_condition().
  /// Throws: CudaError, and then the capture is spoilt; what the functions throw.
  void end();
  /// Where the body is captured.
  [[nodiscard]] const Stream& stream() const { return body_; }

 private:
  const Stream body_;
  bool is_open_ = true;
};

/// The outermost stream around the body that is captured on `body`: where its capture goes on
/// behind it. nullopt if `body` is not the stream of a body.
[[nodiscard]] std::optional<Stream> stream_around(const Stream& body);

/// Calls `submit(around)` behind the end of the body that is captured on `body`: it may submit work
/// to `around`, the stream behind the condition. Of equal keys in one body the first one counts.
/// Precondition: `body` is the stream of a body.
void at_end_of_condition(const Stream& body, const void* key,
                         std::function<void(const Stream& around)> submit);

/// True if work that is submitted to `stream` now belongs to the body of a condition.
[[nodiscard]] bool is_in_condition(const Stream& stream);

}  // namespace gantry
