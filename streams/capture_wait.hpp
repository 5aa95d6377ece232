// Waits for events, whose refusal in a capture names both streams.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry {

/// The stream where an event was recorded.
struct RecordPlace {
  int device = 0;
  std::optional<std::uint64_t> stream = {};  ///< Stream::id(); none: unknown
};

/// "stream 3 of cuda:0" or "the default stream of cuda:0".
[[nodiscard]] std::string name_of(const Stream& stream);

/// Driver::wait_event. If a capture is the reason of a refusal, the error also names the streams
/// and the remedy. Throws: CudaError.
void wait_event(const Stream& waiter, NativeEvent event, const RecordPlace& recorded);

}  // namespace gantry
