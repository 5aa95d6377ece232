#include "job/operands.hpp"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "core/text/escaped_text.hpp"

namespace gantry::flight {

bool Operands::is_complete() const {
  return !std::string_view(shapes, strnlen(shapes, sizeof shapes)).ends_with(kMoreOperands);
}

std::string Operands::text() const {
  const std::string text = escaped_field(shapes);
  if (is_complete()) return text;
  // Calls that look alike differ in the hash.
  const auto digest = static_cast<std::uint32_t>(hash ^ hash >> 32);
  return list_size == 0 ? fmt::format("{} (digest {:08x})", text, digest)
                        : fmt::format("{} ({} tensors, digest {:08x})", text, list_size, digest);
}

}  // namespace gantry::flight
