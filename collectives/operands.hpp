// The tensors of a call, in the form in which ranks compare them.
#pragma once

#include <cstdint>
#include <span>

#include <gantry/tensor/tensor.hpp>

#include "job/operands.hpp"

namespace gantry {

// Note [Operands]
// Calls match if the ranks give equal numbers of tensors of equal dtypes and shapes, in one order.
// Sizes alone are not enough: a list in another order has as many elements, and so has a transposed
// tensor. A 0-dim tensor differs from one of shape [1]. Strides and addresses do not count. Where
// the arrays of a call have two shapes, such as the input and the output of an all_gather, the
// smaller one counts: the larger one follows from it, but for the way in which ranks are joined.
// A call's digest covers the list as given, also if dtypes split it into several transfers.

// The operands of a call on one tensor.
flight::Operands operands_of(const Tensor& tensor);
// The operands of a coalesced call.
flight::Operands list_operands(std::span<const Tensor> tensors);
// The operands of an all_to_all of equal blocks: one of the `ranks` blocks of `tensor`.
flight::Operands block_operands(const Tensor& tensor, int ranks);
// The operands of an all_to_all of unequal blocks: rows of `tensor`, whose number may differ.
flight::Operands row_operands(const Tensor& tensor);

inline constexpr std::uint64_t kHashSeed = 0x9e37'79b9'7f4a'7c15;
// The state of a hash after one more word.
constexpr std::uint64_t mixed(std::uint64_t state, std::uint64_t word) {
  state ^= word;
  state = (state ^ state >> 33) * 0xff51'afd7'ed55'8ccd;
  state = (state ^ state >> 33) * 0xc4ce'b9fe'1a85'ec53;
  return state ^ state >> 33;
}

}  // namespace gantry
