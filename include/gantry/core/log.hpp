#pragma once

#include <string_view>

#include <gantry/core/export.hpp>

// Not called "log": that is the natural logarithm of a tensor.
namespace gantry::logging {

/// Importance of a message. Messages go to standard error.
///
/// GANTRY_LOG=trace|debug|info|warn|error|off sets the lowest level that is written (default:
/// warn). The first message reports an invalid GANTRY_LOG, once, and the default holds.
/// @since 0.1
enum class Level {
  trace,  ///< steps of single calls
  debug,  ///< failures that change nothing, such as those of a clean-up
  info,   ///< how devices and communicators were set up
  warn,   ///< an option without effect, or a slow path taken
  error,  ///< a failure that no exception reports
  off,    ///< as the lowest level: nothing is written
};

/// Lowest level that is written. Throws: InvalidArgument if GANTRY_LOG is invalid.
/// @since 0.1
[[nodiscard]] GANTRY_API Level level();
/// Sets the lowest level that is written. Throws: as level().
/// @since 0.1
GANTRY_API void set_level(Level level);
/// True if a message of this level is written. Call it before building an expensive text.
/// Throws: as level().
/// @since 0.1
[[nodiscard]] GANTRY_API bool enabled(Level level);
/// Writes one line. Never throws: a destructor may call it.
/// @since 0.1
GANTRY_API void write(Level level, std::string_view message) noexcept;

/// Writes one line at the level of the function's name; never throws.
/// @{
/// @since 0.1
inline void debug(std::string_view message) noexcept { write(Level::debug, message); }
inline void info(std::string_view message) noexcept { write(Level::info, message); }
inline void warn(std::string_view message) noexcept { write(Level::warn, message); }
inline void error(std::string_view message) noexcept { write(Level::error, message); }
/// @}

}  // namespace gantry::logging
