#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>

namespace gantry {

// Kinds of collective operation.
enum class CollectiveKind : std::uint8_t {
  barrier,
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  send,
  recv,
};
inline constexpr int kCollectiveKinds = 11;

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
  ll,           // small: data and flag travel in one packet, no barrier
  ll128,        // as ll, in lines of which less is flags
  ll128_relay,  // as relay, in such lines
  direct,       // everyone pushes what it has to the staging of those who need it
  relay,        // sources push one part to each owner, who pushes what it makes of it to everyone
  chain,        // every rank passes on to the next what it makes of what comes
  in_place,     // registered: kernels read and write all ranks' tensors
  copy,         // registered: what is only moved is sent by copy engines
  nccl,
  host,  // through host memory and messages between hosts
};

std::string_view name(Algorithm algorithm);

// The description of a call; it must be equal on all ranks. No padding: compared as bytes.
struct Descriptor {
  std::int64_t call = 0;    // number of the call in its group, from 1
  std::int64_t count = 0;   // elements, as defined by the operation
  double scale = 1;         // factor of every input of a reduction
  std::uint64_t place = 0;  // of the input, as flight::pack_place() has it, if peers read it there
  std::int32_t root = -1;   // or the peer of a send or recv; -1: none
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::u8;
  std::uint8_t reproducible = 1;

  // "all_reduce sum f32[4096]".
  std::string str() const;
  // A hash of all fields but the number.
  std::uint32_t hash() const;
  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};
static_assert(sizeof(Descriptor) == 40);

}  // namespace gantry
