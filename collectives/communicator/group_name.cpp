#include "collectives/communicator/group_name.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>

#include "core/text/escaped_text.hpp"

namespace gantry {

namespace {

constexpr std::size_t kMostBytes = 47;  // flight::Header::group has 64

}  // namespace

void require_group_name(std::string_view name, std::string_view op) {
  if (name.size() > kMostBytes) {
    throw InvalidArgument(fmt::format("{}: expected a name of at most {} bytes, but got {}", op,
                                      kMostBytes, name.size()));
  }
  const bool is_printable = std::ranges::none_of(
      name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  if (is_printable && (name.empty() || (name.front() != ' ' && name.back() != ' '))) return;
  throw InvalidArgument(
      fmt::format("{}: expected a name of printable characters, without spaces around it, but got "
                  "'{}'",
                  op, escape_control_characters(name)));
}

}  // namespace gantry
