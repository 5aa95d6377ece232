#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <gantry/core/export.hpp>

namespace gantry::env {

/// Parses a whole decimal number in [min, max]; `what` names it in the error.
/// Throws: InvalidArgument.
[[nodiscard]] GANTRY_API std::int64_t parse_int(std::string_view text, std::string_view what,
                                                std::int64_t min, std::int64_t max);
/// Parses a byte count as env::get_bytes() does; `what` names it in the error. Throws:
/// InvalidArgument.
[[nodiscard]] GANTRY_API std::size_t parse_bytes(std::string_view text, std::string_view what);

}  // namespace gantry::env
