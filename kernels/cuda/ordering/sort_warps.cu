// Note [Sorting networks in warps]
// A fibre of at most kWarpSort elements lies in the registers of 4 to 32 lanes, so a warp sorts up
// to eight fibres at once. A slot holds a key and its place in the fibre. All slots of a fibre
// differ, so a network, which is not stable by itself, gives the one stable order. Slot i is in
// lane i % kLanes: loads and stores of a warp are side by side. The network is bitonic. The first
// step of a merge compares slots i and size - 1 - i, so every step moves smaller slots to the
// front.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ordering/sort_slot.cuh"
#include "kernels/ordering/sort_plan.hpp"

namespace gantry::kernels::cuda {

namespace {

constexpr int kWarps = kThreads / 32;

// Lanes of a fibre, slots of a lane for it, and fibres that these lanes sort at the same time.
template <int kLanesOf, int kSlotsOf, int kFibresOf>
struct NetworkShape {
  static constexpr int kLanes = kLanesOf;
  static constexpr int kSlots = kSlotsOf;
  static constexpr int kFibres = kFibresOf;
  static constexpr int kGroups = 32 / kLanes;
  static constexpr int kWarpFibres = kGroups * kFibres;
};

template <class U, class Shape>
__global__ void __launch_bounds__(kThreads)
    sort_warps_kernel(const __grid_constant__ SortPlan plan, KeyOrder<U> order,
                      SortCandidates candidates) {
  constexpr int kLanes = Shape::kLanes;
  constexpr int kSlots = Shape::kSlots;
  constexpr int kFibres = Shape::kFibres;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int group = static_cast<int>(threadIdx.x) % 32 / kLanes;
  const int length = static_cast<int>(plan.fibres.length);
  const std::int64_t stride = plan.fibres.in.stride;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps * Shape::kWarpFibres;
  // The condition is uniform in a warp.
  for (std::int64_t first =
           (static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32) * Shape::kWarpFibres;
       first < plan.fibres.count; first += step) {
    SortSlot<U> slots[kFibres][kSlots];
#pragma unroll
    for (int f = 0; f < kFibres; ++f) {
      const std::int64_t fibre = first + f * Shape::kGroups + group;
      const bool is_present = fibre < plan.fibres.count;
      const U* const in = sort_input<U>(plan, is_present ? fibre : first);
      const U* const ready = static_cast<const U*>(candidates.keys) + fibre * length;
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const int place = s * kLanes + lane;
        // Behind the elements: the largest key, which its place keeps there.
        U key = static_cast<U>(~U(0));
        if (is_present && place < length) {
          key = candidates.keys != nullptr ? ready[place] : order.key(in[place * stride]);
        }
        slots[f][s] = SortSlot<U>::make(key, static_cast<std::uint32_t>(place));
      }
    }
    sort_slots<kLanes>(slots, lane);
#pragma unroll
    for (int f = 0; f < kFibres; ++f) {
      const std::int64_t fibre = first + f * Shape::kGroups + group;
      if (fibre >= plan.fibres.count) break;
      const std::int64_t first_written = first_rank(plan, fibre);
      const SortOutput<U> out = sort_output<U>(plan, fibre);
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const int rank = s * kLanes + lane;
        const std::int64_t at = rank - first_written;
        if (rank >= length || at < 0 || at >= plan.count) continue;
        const U key = slots[f][s].key();
        std::int64_t position = slots[f][s].place();
        if (candidates.keys != nullptr) position = candidates.positions[fibre * length + position];
        const U value = order.is_exact(key) ? order.element(key)
                                            : sort_input<U>(plan, fibre)[position * stride];
        out.write(at, value, position);
      }
    }
  }
}

template <class U, class Shape>
void launch_warps(void* stream, const SortPlan& plan, const SortCandidates& candidates) {
  constexpr std::int64_t kBlockFibres = kWarps * Shape::kWarpFibres;
  const std::int64_t blocks = (plan.fibres.count + kBlockFibres - 1) / kBlockFibres;
  launch("sort_warps", stream, static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks),
         kThreads, 0, sort_warps_kernel<U, Shape>, plan,
         make_key_order<U>(plan.fibres.dtype, plan.largest_first), candidates);
}

}  // namespace

void sort_in_warps(void* stream, const SortPlan& plan, const SortCandidates& candidates) {
  static_assert(kWarpSort == 32 * 4);
  const std::int64_t length = plan.fibres.length;
  dispatch_keys(plan.fibres.dtype, [&](auto tag) {
    using U = typename decltype(tag)::type;
    constexpr int kMany = sizeof(U) == 8 ? 2 : 4;
    if (length <= 4) return launch_warps<U, NetworkShape<4, 1, kMany>>(stream, plan, candidates);
    if (length <= 8) return launch_warps<U, NetworkShape<8, 1, kMany>>(stream, plan, candidates);
    if (length <= 16) return launch_warps<U, NetworkShape<16, 1, 2>>(stream, plan, candidates);
    if (length <= 32) return launch_warps<U, NetworkShape<32, 1, 2>>(stream, plan, candidates);
    if (length <= 64) return launch_warps<U, NetworkShape<32, 2, 1>>(stream, plan, candidates);
    launch_warps<U, NetworkShape<32, 4, 1>>(stream, plan, candidates);
  });
}

}  // namespace gantry::kernels::cuda
