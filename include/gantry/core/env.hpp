#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/export.hpp>

namespace gantry::env {

/// One environment variable that gantry reads.
/// @since 0.1
struct Variable {
  std::string_view name;     ///< name, such as GANTRY_RANK
  std::string_view values;   ///< accepted values
  std::string_view meaning;  ///< one sentence
};

/// Every environment variable that gantry reads or sets, in the order of
/// docs/reference/environment.md.
/// @since 0.1
[[nodiscard]] GANTRY_API const std::vector<Variable>& variables();

/// Value of `name`, none if unset. Reads the environment anew at each call. Programs with more
/// rights than their caller, such as set-user-id programs, have no variables.
/// @since 0.1
[[nodiscard]] GANTRY_API std::optional<std::string> get(const char* name);
/// Value of `name` as a whole decimal number in [min, max], none if unset or empty.
/// Throws: InvalidArgument that names the variable, its value and the range.
/// @since 0.1
[[nodiscard]] GANTRY_API std::optional<std::int64_t> get_int(const char* name, std::int64_t min,
                                                             std::int64_t max);
/// Value of `name` as a byte count. A number may have a suffix K, M or G, in either case, for
/// powers of 1024. "B" or "iB" may follow. None if unset or empty.
/// Throws: InvalidArgument that names the variable and its value.
/// @since 0.1
[[nodiscard]] GANTRY_API std::optional<std::size_t> get_bytes(const char* name);
/// Value of `name` as a boolean: 1/0, true/false, on/off or yes/no. `fallback` if unset or empty.
/// Throws: InvalidArgument.
/// @since 0.1
[[nodiscard]] GANTRY_API bool get_bool(const char* name, bool fallback);

}  // namespace gantry::env
