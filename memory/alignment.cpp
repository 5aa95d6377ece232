#include "memory/alignment.hpp"

#include <fmt/format.h>

#include <bit>

#include <gantry/core/error.hpp>

namespace gantry::memory {

void check_alignment(std::size_t alignment) {
  if (std::has_single_bit(alignment)) return;
  throw InvalidArgument(
      fmt::format("allocate: expected an alignment that is a power of two, but got {}", alignment));
}

}  // namespace gantry::memory
