// The tensors of a collective call, as flight files and ranks' messages hold them.
#pragma once

#include <cstdint>
#include <string>

namespace gantry::flight {

/// The shapes that all ranks of a collective give alike. Plain words only. All zero for a call
/// without them, such as a message.
struct Operands {
  std::uint64_t hash;  ///< of the number of tensors, and of each one's dtype and shape, in order
  /// Tensors of a coalesced call; 0: the call has one tensor and no list.
  std::uint32_t list_size;
  /// "[2,3]", or of a list "f32[2,3]+f16[5]". Tensors that do not fit are left out: "f32[2,3]+…".
  char shapes[52];

  /// True if `shapes` names each tensor.
  [[nodiscard]] bool is_complete() const;
  /// `shapes`, for people. It names the number of tensors and the hash if some are left out. Empty
  /// if the call has none.
  [[nodiscard]] std::string text() const;
};
static_assert(sizeof(Operands) == 64);

/// Stands in Operands::shapes for tensors that do not fit.
inline constexpr const char kMoreOperands[] = "…";

}  // namespace gantry::flight
