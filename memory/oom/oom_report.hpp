// The text of an out-of-memory error, and its observers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>

namespace gantry::memory {

/// The purpose of memory for a captured stream.
inline constexpr std::string_view kCapturePurpose = "a capture";

/// A report of `device` for a request of `bytes`, with the driver's numbers and without a limit.
[[nodiscard]] OomReport report_of_driver(int device, std::size_t bytes);

/// The text of an OutOfMemoryError. `may_split_less`: max_split_size_mb is not set yet. `purpose`
/// names the memory of a direct allocation, or is kCapturePurpose; else it is empty.
[[nodiscard]] std::string out_of_memory_text(int device, const OomReport& report,
                                             bool may_split_less, std::string_view purpose = {});

/// Calls the observers, then throws OutOfMemoryError. To be called without a lock.
[[noreturn]] void throw_out_of_memory(int device, const OomReport& report, bool may_split_less,
                                      std::string_view purpose = {});

/// Number of OutOfMemoryErrors about `device` so far whose request would have exceeded the limit of
/// this process, which is below what the device has.
[[nodiscard]] std::int64_t limit_rejections(int device);

using OomObserver = std::function<void(Device, const OomReport&)>;
/// Adds an observer until the process ends.
void register_oom_observer(OomObserver observer);

}  // namespace gantry::memory
