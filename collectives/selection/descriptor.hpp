// The description of a call, which ranks compare.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>
#include <gantry/tensor/tensor.hpp>

#include "job/flight_file.hpp"
#include "job/operands.hpp"

namespace gantry {

// The kinds of operations between ranks.
enum class CollectiveKind : std::uint8_t {
#define KIND(name, ...) name,
#include "collectives/selection/kinds.def"
#undef KIND
};
inline constexpr int kCollectiveKinds = static_cast<int>(CollectiveKind::recv) + 1;

std::string_view name(CollectiveKind kind);

// True for kinds that reduce elements.
constexpr bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce ||
         kind == CollectiveKind::reduce_scatter;
}

// True for kinds between two ranks.
constexpr bool is_message(CollectiveKind kind) {
  return kind == CollectiveKind::send || kind == CollectiveKind::recv;
}

// The algorithms of operations between ranks, on one machine or across machines.
enum class Algorithm : std::uint8_t {
  automatic,
#define ALGORITHM(name, ...) name,
#include "collectives/selection/algorithms.def"
#undef ALGORITHM
};
// All that can be chosen, in the order in which tables and texts list them.
inline constexpr Algorithm kAllAlgorithms[] = {
#define ALGORITHM(name, ...) Algorithm::name,
#include "collectives/selection/algorithms.def"
#undef ALGORITHM
};

std::string_view name(Algorithm algorithm);

// The description of a call; it must be equal on all ranks. No padding: compared as bytes, so that
// a scale of NaN equals itself and -0 differs from 0, as in hash().
struct Descriptor {
  std::int64_t call = 0;   // number of the call in its group, from 1
  std::int64_t count = 0;  // elements, as defined by the operation
  double scale = 1;        // factor of every input of a reduction
  // Of the tensor in registered memory, see flight::pack_window_offset(); 0: peers do not access
  // it.
  std::uint64_t window_offset = 0;
  std::int32_t root = -1;  // or the peer of a send or recv; -1: none
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::u8;
  std::uint8_t reproducible = 1;
  // The algorithm and the blocks that the caller wants; automatic, 0: it wants none.
  Algorithm algorithm = Algorithm::automatic;
  std::uint8_t blocks = 0;
  // 1: a barrier behind a body of graph_if() or graph_while() that has operations of the group.
  std::uint8_t ends_condition = 0;
  std::uint8_t reserved[5] = {};
  // The tensors as the caller gave them, see operands.hpp. All zero for messages and barriers, and
  // for a part of another call.
  flight::Operands operands = {};

  // Of `count` elements.
  std::int64_t bytes() const { return count * static_cast<std::int64_t>(element_size(dtype)); }
  // "all_reduce sum f32[4096]".
  std::string str() const;
  // A hash of all fields but the number.
  std::uint32_t hash() const;
  friend bool operator==(const Descriptor& a, const Descriptor& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
  }
};
static_assert(sizeof(Descriptor) == 112);

// Returns the style of a call's text, for flight files.
std::uint8_t style_of(CollectiveKind kind);
// Converts a descriptor to the flight file's type, which has the same bytes.
flight::Call to_call(const Descriptor& descriptor);

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
// The operands of another operation on blocks of unequal sizes: `rows` of `tensor` of each rank,
// which all ranks give alike. Its text is "[2+0+3,5]".
flight::Operands block_operands(const Tensor& tensor, std::span<const std::int64_t> rows);

inline constexpr std::uint64_t kHashSeed = 0x9e37'79b9'7f4a'7c15;
// The state of a hash after one more word.
constexpr std::uint64_t mixed(std::uint64_t state, std::uint64_t word) {
  state ^= word;
  state = (state ^ state >> 33) * 0xff51'afd7'ed55'8ccd;
  state = (state ^ state >> 33) * 0xc4ce'b9fe'1a85'ec53;
  return state ^ state >> 33;
}

}  // namespace gantry
