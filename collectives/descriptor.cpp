#include "collectives/descriptor.hpp"

#include <cstddef>
#include <cstring>

#include "collectives/operands.hpp"
#include "collectives/protocol/layout.hpp"

namespace gantry {

static_assert(sizeof(Descriptor) == sizeof(flight::Call) &&
              offsetof(Descriptor, call) == offsetof(flight::Call, number) &&
              offsetof(Descriptor, count) == offsetof(flight::Call, count) &&
              offsetof(Descriptor, scale) == offsetof(flight::Call, scale) &&
              offsetof(Descriptor, window_offset) == offsetof(flight::Call, window_offset) &&
              offsetof(Descriptor, root) == offsetof(flight::Call, root) &&
              offsetof(Descriptor, kind) == offsetof(flight::Call, kind) &&
              offsetof(Descriptor, op) == offsetof(flight::Call, op) &&
              offsetof(Descriptor, dtype) == offsetof(flight::Call, dtype) &&
              offsetof(Descriptor, reproducible) == offsetof(flight::Call, reproducible) &&
              offsetof(Descriptor, operands) == offsetof(flight::Call, operands));

std::string_view name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::barrier:
      return "barrier";
    case CollectiveKind::all_reduce:
      return "all_reduce";
    case CollectiveKind::reduce:
      return "reduce";
    case CollectiveKind::broadcast:
      return "broadcast";
    case CollectiveKind::all_gather:
      return "all_gather";
    case CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case CollectiveKind::gather:
      return "gather";
    case CollectiveKind::scatter:
      return "scatter";
    case CollectiveKind::all_to_all:
      return "all_to_all";
    case CollectiveKind::send:
      return "send";
    case CollectiveKind::recv:
      return "recv";
  }
  __builtin_unreachable();
}

std::string_view name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::automatic:
      return "auto";
    case Algorithm::ll:
      return "ll";
    case Algorithm::ll128:
      return "ll128";
    case Algorithm::ll128_two_shot:
      return "ll128_two_shot";
    case Algorithm::one_shot:
      return "one_shot";
    case Algorithm::two_shot:
      return "two_shot";
    case Algorithm::zero_copy:
      return "zero_copy";
    case Algorithm::copy:
      return "copy";
    case Algorithm::nccl:
      return "nccl";
    case Algorithm::host:
      return "host";
  }
  __builtin_unreachable();
}

std::uint8_t style_of(CollectiveKind kind) {
  std::uint8_t style = kind == CollectiveKind::barrier ? flight::kBare : flight::kTyped;
  if (reduces(kind)) style |= flight::kReduces;
  switch (kind) {
    case CollectiveKind::reduce:
    case CollectiveKind::broadcast:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      return style | flight::kRooted;
    case CollectiveKind::send:
      return style | flight::kTo;
    case CollectiveKind::recv:
      return style | flight::kFrom;
    case CollectiveKind::barrier:
    case CollectiveKind::all_reduce:
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all:
      return style;
  }
  __builtin_unreachable();
}

flight::Call to_call(const Descriptor& descriptor) {
  flight::Call call;
  std::memcpy(&call, &descriptor, sizeof call);
  return call;
}

std::string Descriptor::str() const {
  return flight::call_text(gantry::name(kind), style_of(kind), gantry::name(op), to_call(*this));
}

std::uint32_t Descriptor::hash() const {
  std::uint64_t words[offsetof(Descriptor, operands) / 8];
  std::memcpy(words, this, sizeof words);
  std::uint64_t state = kHashSeed;
  for (std::size_t i = 1; i < std::size(words); ++i) {  // word 0 is the number
    state = mixed(state, words[i]);
  }
  // The operands' text is in their hash.
  state = mixed(state, operands.hash);
  state = mixed(state, operands.list_size);
  return protocol::digest_of(static_cast<std::uint32_t>(state ^ state >> 32));
}

}  // namespace gantry
