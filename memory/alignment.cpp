#include "memory/alignment.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>

namespace gantry::memory {

void check_alignment(std::size_t alignment) {
  // Not std::has_single_bit: without an instruction for it, that is a call.
  if (alignment != 0 && (alignment & (alignment - 1)) == 0) return;
  throw InvalidArgument(
      fmt::format("allocate: expected an alignment that is a power of two, but got {}", alignment));
}

}  // namespace gantry::memory
