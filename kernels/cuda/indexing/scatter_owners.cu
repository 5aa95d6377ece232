// Note [Owners of destinations]
// A sort of few writes takes longer than all else, because its passes wait for each other. Here
// each lane of a warp owns one of 32 neighbouring destinations of a fibre, and makes the writes to
// it in their order. A block loads the positions and the values of its fibres into shared memory.
// Its warps vote on 32 positions at once whether one of their destinations is among them. The lanes
// read only groups of positions that have one.
#include <algorithm>

#include "kernels/cuda/elementwise/offset_calculator.cuh"
#include "kernels/cuda/indexing/index_fault.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/impl/scatter.inl"
#include "kernels/input.hpp"

namespace gantry::kernels::cuda {

namespace {

constexpr int kWarps = kThreads / 32;
// Writes that the lanes of a warp read one after the other.
constexpr int kGroup = 8;
// Indices and values of a thread that are in flight together.
constexpr int kBatch = 8;
// Shared memory of a block without leave.
constexpr std::int64_t kPlainBytes = 48 << 10;
// Most warps: two for each that 132 multiprocessors hold at once. More of them take turns, and a
// sort has fewer.
constexpr std::int64_t kMostWarps = 2 * 132 * 64;
// Most votes of all warps, which take 5 instructions each: 5 us of 528 instructions a cycle.
constexpr std::int64_t kMostVotes = std::int64_t{1} << 20;
// Longest fibre: every warp reads all its positions. 4099 writes took 42 us, and a sort of them 23.
constexpr std::int64_t kMostLength = 1024;
// Most destinations for each write: all of them are read.
constexpr std::int64_t kMostPerWrite = 8;
// A write whose index is out of range, and the padding. No warp owns it.
constexpr std::uint32_t kNowhere = 0xffffffff;

struct OwnerPlan {
  OffsetCalculator<3> fibres;
  std::uint32_t count;      // fibres
  std::uint32_t slices;     // warps that own the destinations of a fibre
  std::uint32_t per_fibre;  // blocks of a fibre, one after the other
  std::int32_t tile;        // fibres of a block, a power of two
  std::int32_t warps;       // of a fibre in a block
  std::int32_t pitch;       // writes from a fibre in shared memory to the next one
  bool has_columns;         // neighbouring fibres are closer together than the writes of one
};

// The pitch of a fibre's writes: whole votes, and a part that moves fibres to other banks.
constexpr std::int64_t pitch_of(std::int64_t length) { return (length + 31) / 32 * 32 + kGroup; }

template <class Update>
__global__ void __launch_bounds__(kThreads)
    scatter_owners_kernel(const __grid_constant__ IndexingPlan plan,
                          const __grid_constant__ OwnerPlan owners) {
  using T = typename Update::Element;
  extern __shared__ __align__(16) unsigned char scatter_owners_memory[];
  auto* const positions = reinterpret_cast<std::uint32_t*>(scatter_owners_memory);
  auto* const values = reinterpret_cast<T*>(positions + owners.tile * owners.pitch);
  auto* const offsets = reinterpret_cast<std::int64_t(*)[3]>(values + owners.tile * owners.pitch);
  const int thread = static_cast<int>(threadIdx.x);
  const std::uint32_t tile = blockIdx.x / owners.per_fibre;
  const std::uint32_t part = blockIdx.x - tile * owners.per_fibre;
  const std::uint32_t first = tile * static_cast<std::uint32_t>(owners.tile);
  const std::uint32_t rest = owners.count - first;
  const int fibres =
      rest < static_cast<std::uint32_t>(owners.tile) ? static_cast<int>(rest) : owners.tile;
  if (thread < fibres) owners.fibres.offsets(first + thread, offsets[thread]);
  __syncthreads();

  // The destination of the lane is read early.
  const int fibre = thread / 32 / owners.warps;
  const std::uint32_t slice = part * owners.warps + thread / 32 % owners.warps;
  const std::uint32_t own = slice * 32 + thread % 32;
  const bool is_owner = fibre < fibres && own < plan.index_size;
  T* const element =
      is_owner ? static_cast<T*>(plan.indexed) + offsets[fibre][1] + own * plan.index_stride
               : nullptr;
  T value = is_owner ? *element : T{};

  const int step = kThreads / owners.tile;
  const int loaded = owners.has_columns ? thread % owners.tile : thread / step;
  const int length = static_cast<int>(plan.fibre_length);
  if (loaded < fibres) {
    const std::int64_t direct = offsets[loaded][0];
    const std::int64_t index_offset = offsets[loaded][2];
    for (int begin = owners.has_columns ? thread / owners.tile : thread % step;
         begin < owners.pitch; begin += kBatch * step) {
      std::int64_t indices[kBatch];
      T batch[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const std::int64_t at = begin + b * step;
        if (at >= length) break;
        indices[b] = load_index(plan, index_offset + at * plan.indices_stride);
        batch[b] = static_cast<const T*>(plan.direct)[direct + at * plan.direct_stride];
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int at = begin + b * step;
        if (at >= owners.pitch) break;
        std::uint32_t position = kNowhere;
        if (at < length) {
          position = static_cast<std::uint32_t>(checked_position(plan, indices[b]));
          values[loaded * owners.pitch + at] = batch[b];
        }
        positions[loaded * owners.pitch + at] = position;
      }
    }
  }
  __syncthreads();

  if (fibre >= fibres || slice >= owners.slices) return;
  const std::uint32_t* const to = positions + fibre * owners.pitch;
  const T* const from = values + fibre * owners.pitch;
  bool is_written = false;
#pragma unroll 2
  for (int vote = 0; vote < length; vote += 32) {
    const std::uint32_t position = to[vote + thread % 32];
    const unsigned found = __ballot_sync(0xffffffffu, position / 32 == slice);
    if (found == 0) continue;
#pragma unroll 1
    for (int g = 0; g < 32; g += kGroup) {
      if ((found >> g & ((1u << kGroup) - 1)) == 0) continue;
      const auto group =
          *reinterpret_cast<const StoredPack<std::uint32_t, kGroup / 2>*>(to + vote + g);
      const auto later = *reinterpret_cast<const StoredPack<std::uint32_t, kGroup / 2>*>(
          to + vote + g + kGroup / 2);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const std::uint32_t at = i < kGroup / 2 ? group.values[i] : later.values[i - kGroup / 2];
        if (at != own) continue;
        value = Update::apply(value, from[vote + g + i]);
        is_written = true;
      }
    }
  }
  if (is_written) *element = value;
}

// The blocks and their parts of `plan`. `tile` is 0 if its fibres do not fit.
OwnerPlan owner_plan(const IndexingPlan& plan) {
  OwnerPlan owners = {};
  const std::int64_t fibres = plan.fibres.numel;
  const std::int64_t length = plan.fibre_length;
  if (length > kMostLength || plan.index_size > kMostPerWrite * length) return owners;
  const std::int64_t slices = (plan.index_size + 31) / 32;
  const std::int64_t pitch = pitch_of(length);
  const std::int64_t fibre_bytes =
      pitch * (plan.element_bytes + static_cast<std::int64_t>(sizeof(std::uint32_t))) +
      static_cast<std::int64_t>(sizeof(std::int64_t[3]));
  if (fibre_bytes > kPlainBytes || fibres > kMostWarps || fibres * slices > kMostWarps ||
      fibres * slices * ((length + 31) / 32) > kMostVotes) {
    return owners;
  }
  int tile = 1;
  while (tile < kWarps && slices * tile * 2 <= kWarps && tile < fibres &&
         tile * 2 * fibre_bytes <= kPlainBytes) {
    tile *= 2;
  }
  owners.fibres = OffsetCalculator<3>(plan.fibres);
  owners.count = static_cast<std::uint32_t>(fibres);
  owners.slices = static_cast<std::uint32_t>(slices);
  owners.tile = tile;
  owners.warps = kWarps / tile;
  owners.per_fibre = static_cast<std::uint32_t>((slices + owners.warps - 1) / owners.warps);
  owners.pitch = static_cast<std::int32_t>(pitch);
  owners.has_columns = plan.fibres.strides[0][0] < plan.direct_stride;
  return owners;
}

}  // namespace

bool has_owners(const IndexingPlan& plan, ScatterMode mode) {
  return mode != ScatterMode::replace && is_floating_point(plan.dtype) && owner_plan(plan).tile > 0;
}

void scatter_owners(void* stream, const IndexingPlan& plan, ScatterMode mode) {
  const OwnerPlan owners = owner_plan(plan);
  const auto tile = static_cast<std::uint32_t>(owners.tile);
  const unsigned blocks = (owners.count + tile - 1) / tile * owners.per_fibre;
  const std::size_t bytes =
      static_cast<std::size_t>(owners.tile) *
      (static_cast<std::size_t>(owners.pitch) *
           (static_cast<std::size_t>(plan.element_bytes) + sizeof(std::uint32_t)) +
       sizeof(std::int64_t[3]));
  dispatch_scatter(mode, plan.dtype, plan.element_bytes, [&](auto tag) {
    using Update = typename decltype(tag)::type;
    if constexpr (kRounds<Update>) {
      launch("scatter_owners", stream, blocks, kThreads, bytes, scatter_owners_kernel<Update>, plan,
             owners);
    }
  });
}

}  // namespace gantry::kernels::cuda
