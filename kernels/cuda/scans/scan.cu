// Scans on the GPU: kernels for rows, long rows and columns, all in the order of Note [Scan order].
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scans/scan_dense_rows.cuh"
#include "kernels/cuda/scans/scan_long_rows.cuh"
#include "kernels/cuda/scans/scan_restart.cuh"
#include "kernels/cuda/scans/scan_thread_columns.hpp"
#include "kernels/input.hpp"

namespace gantry::kernels::cuda {

namespace {

constexpr int kGroups = kRowThreads / kScanGroup;
static_assert(kGroups == kScanGroup);
// Most threads of a block of scan_columns, and the threads of a block whose columns need fewer.
constexpr int kColumnThreads = 512;
constexpr int kFewColumnThreads = 128;
// Fewest columns that fill a GPU without dividing their length.
constexpr std::int64_t kManyColumns = 2048;

// True if the `count` elements from `first` are a whole tile of aligned vectors.
template <class T>
__device__ bool is_wide(const T* first, std::int64_t stride, int count) {
  return stride == 1 && count == kScanTile &&
         reinterpret_cast<std::uintptr_t>(first) % alignof(StoredPack<T, kVector>) == 0;
}

// Blocks of scan_rows that a multiprocessor is to hold: while some wait for the totals before their
// tiles, others read and write. Tiles of wide elements fill the shared memory with fewer.
template <class In, ScanOp kOp>
constexpr bool kIsLight = sizeof(Staged<In>) <= 4 && kOp != ScanOp::log_sum_exp;
template <class In, ScanOp kOp>
constexpr int kRowBlocks = kIsLight<In, kOp> ? 8 : 4;

// A block scans a tile of one fibre. kIsShort: all of several fibres, rows.threads threads each.
template <class In, ScanOp kOp, bool kIsShort>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks<In, kOp>)
    scan_rows(const __grid_constant__ FibrePlan plan, const __grid_constant__ TileTotals totals,
              std::int64_t tiles_of_fibre, const __grid_constant__ DenseRows rows) {
  using Out = ScanOut<In>;
  using Step = ScanStep<ScanAccumulator<In>, kOp>;
  using Acc = typename Step::Acc;
  using S = Staged<In>;
  __shared__ S staged[staged_at<S>(static_cast<int>(kScanTile))];
  __shared__ Acc thread_totals[kRowThreads];
  __shared__ Acc group_totals[kGroups];
  __shared__ std::int64_t taken;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t tiles = kIsShort ? 1 : tiles_of_fibre;
  const int threads_per_fibre = kIsShort ? rows.threads : kRowThreads;
  const int per_block = kRowThreads / threads_per_fibre;
  std::int64_t task = blockIdx.x;
  if (tiles > 1) {
    if (thread == 0) taken = atomicAdd(totals.next_tile, 1u);
    __syncthreads();
    task = taken;
  }
  // A grid has fewer than 2^31 tasks.
  const std::int64_t first_fibre =
      tiles > 1 ? static_cast<std::uint32_t>(task) / static_cast<std::uint32_t>(tiles)
                : task * per_block;
  const std::int64_t tile = tiles > 1 ? task - first_fibre * tiles : 0;
  const std::int64_t first = tile * kScanTile;
  const std::int64_t rest = plan.length - first;
  const int count = static_cast<int>(rest < kScanTile ? rest : kScanTile);
  const int elements_per_fibre = threads_per_fibre * kScanGroup;
  // Calls f(element of the tile, fibre, its position in the fibre) for the elements of the block
  // that neighbouring threads find side by side.
  const auto for_each = [&](const auto& f) {
    if constexpr (!kIsShort) {
#pragma unroll
      for (int i = 0; i < kScanGroup; ++i) {
        const int at = i * kRowThreads + thread;
        if (at < count) f(at, 0, first + at);
      }
    } else {
      for (int i = 0; i < kScanGroup; ++i) {
        const int at = i * kRowThreads + thread;
        const int fibre = at / elements_per_fibre;
        const int position = at - fibre * elements_per_fibre;
        if (position < count && first_fibre + fibre < plan.count) f(at, fibre, position);
      }
    }
  };
  const In* in = static_cast<const In*>(plan.in.data);
  Out* out = static_cast<Out*>(plan.out.data);
  // Elements of the block's rows.
  [[maybe_unused]] const int present =
      count * (plan.count - first_fibre < per_block ? static_cast<int>(plan.count - first_fibre)
                                                    : per_block);
  if constexpr (!kIsShort) {
    in += plan.in.outer.offset(first_fibre);
    out += plan.out.outer.offset(first_fibre);
    if (is_wide<In>(in + first, plan.in.stride, count)) {
      const auto* vectors = reinterpret_cast<const StoredPack<In, kVector>*>(in + first);
      StoredPack<In, kVector> batch[kVectors];
#pragma unroll
      for (int i = 0; i < kVectors; ++i) batch[i] = vectors[i * kRowThreads + thread];
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        S* to = staged + staged_at<S>((i * kRowThreads + thread) * kVector);
#pragma unroll
        for (int v = 0; v < kVector; ++v) to[v] = static_cast<S>(batch[i].values[v]);
      }
    } else {
      In batch[kScanGroup];
#pragma unroll
      for (int i = 0; i < kScanGroup; ++i) {
        const int at = i * kRowThreads + thread;
        if (at < count) batch[i] = in[(first + at) * plan.in.stride];
      }
#pragma unroll
      for (int i = 0; i < kScanGroup; ++i) {
        const int at = i * kRowThreads + thread;
        if (at < count) staged[staged_at<S>(at)] = static_cast<S>(batch[i]);
      }
    }
  } else if (rows.is_dense_in) {
    rows.load(in + first_fibre * plan.length, present, staged);
  } else {
    for_each([&](int at, int fibre, std::int64_t position) {
      staged[staged_at<S>(at)] =
          static_cast<S>(in[plan.in.outer.offset(first_fibre + fibre) + position * plan.in.stride]);
    });
  }
  __syncthreads();

  S* own = staged + staged_at<S>(thread * kScanGroup);
  // The last block may have threads without a fibre. Their part of `staged` was never written.
  const bool has_fibre = first_fibre + thread / threads_per_fibre < plan.count;
  const int left = has_fibre ? count - thread % threads_per_fibre * kScanGroup : 0;
  const int own_count = left < 0 ? 0 : left < kScanGroup ? left : kScanGroup;
  // Sums are computed again: registers are for more blocks, and wide values would not fit in.
  constexpr bool kKeeps = sizeof(Acc) <= 4 && !kIsLight<In, kOp>;
  Acc kept[kKeeps ? kScanGroup : 1];
  Acc total = Step::neutral();
#pragma unroll
  for (int i = 0; i < kScanGroup; ++i) {
    if (i < own_count) total = Step::combine(total, static_cast<Acc>(own[i]));
    if constexpr (kKeeps) kept[i] = total;
  }
  thread_totals[thread] = total;
  __syncthreads();
  // The threads of a fibre before this one: the threads of its group of 16, then the groups.
  const int in_fibre = thread % threads_per_fibre;
  const int in_group = in_fibre % kScanGroup;
  const Acc in_group_before = running_value<Step>(thread_totals + (thread - in_group), in_group);
  if (in_group == kScanGroup - 1) {
    group_totals[thread / kScanGroup] = Step::combine(in_group_before, total);
  }
  __syncthreads();
  const int group = in_fibre / kScanGroup;
  const Acc groups_before =
      running_value<Step>(group_totals + (thread / kScanGroup - group), group);
  Acc before = groups_before;
  if (tiles > 1) {
    __shared__ Acc tile_total;
    if (thread == kRowThreads - 1) {
      tile_total = Step::combine(groups_before, group_totals[kGroups - 1]);
    }
    __syncthreads();
    before = Step::combine(value_before_tile<Step>(totals, first_fibre, tile, tiles, tile_total),
                           groups_before);
  }
  before = Step::combine(before, in_group_before);
  Acc running = Step::neutral();
  Acc result = before;
  [[maybe_unused]] bool fails = false;
#pragma unroll
  for (int i = 0; i < kScanGroup; ++i) {
    if (i < own_count) {
      if constexpr (kKeeps) {
        running = kept[i];
      } else {
        running = Step::combine(running, static_cast<Acc>(own[i]));
      }
      result = Step::combine(before, running);
      own[i] = from_accumulator<Out>(result);
      if constexpr (kBeginsAgain<In, kOp>) fails |= !is_finite(own[i]);
    }
  }
  if constexpr (kRestarts<In, kOp>) {
    if constexpr (!kBeginsAgain<In, kOp>) fails = own_count > 0 && !is_finite(result);
    if (tiles > 1) {
      if (fails) totals.restart_at(first_fibre, kBeginsAgain<In, kOp> ? 0 : tile, tiles);
      if (thread == kRowThreads - 1) totals.lasts[task] = result;
    }
  }
  __syncthreads();
  if constexpr (kIsShort) {
    if (rows.is_dense_out) {
      rows.store(out + first_fibre * plan.length, present, staged);
    } else {
      for_each([&](int at, int fibre, std::int64_t position) {
        out[plan.out.outer.offset(first_fibre + fibre) + position * plan.out.stride] =
            staged[staged_at<S>(at)];
      });
    }
  } else if (is_wide<Out>(out + first, plan.out.stride, count)) {
    auto* vectors = reinterpret_cast<StoredPack<Out, kVector>*>(out + first);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const S* from = staged + staged_at<S>((i * kRowThreads + thread) * kVector);
      StoredPack<Out, kVector> result;
#pragma unroll
      for (int v = 0; v < kVector; ++v) result.values[v] = from[v];
      vectors[i * kRowThreads + thread] = result;
    }
  } else {
    for_each([&](int at, int, std::int64_t position) {
      out[position * plan.out.stride] = staged[staged_at<S>(at)];
    });
  }
  if constexpr (kRestarts<In, kOp>) {
    if (tiles == 1) restart_short_rows<In, kOp>(plan, first_fibre, threads_per_fibre, fails);
  }
}

// A block scans blockDim.x / parts neighbouring columns, from the top down in steps of
// 16 * parts rows. `parts`, a power of two of at most 16, threads share a column.
template <class In, ScanOp kOp>
__global__ void __launch_bounds__(kColumnThreads)
    scan_columns(const __grid_constant__ FibrePlan plan, int parts) {
  using Out = ScanOut<In>;
  using Step = ScanStep<ScanAccumulator<In>, kOp>;
  using Acc = typename Step::Acc;
  __shared__ Acc totals[kColumnThreads];
  __shared__ Acc step_before[kColumnThreads];
  // Note [Restarted scans]: the value before an even and an odd tile, and the tile that fails.
  constexpr bool kHasTiles = kRestarts<In, kOp> && !kBeginsAgain<In, kOp>;
  __shared__ Acc tile_before[kRestarts<In, kOp> ? 2 : 1][kHasTiles ? kColumnThreads : 1];
  __shared__ std::int64_t failing[kRestarts<In, kOp> ? kColumnThreads : 1];
  if constexpr (kRestarts<In, kOp>) {
    if (kHasTiles || threadIdx.x == 0) tile_before[0][threadIdx.x] = Step::neutral();
    failing[threadIdx.x] = -1;
    __syncthreads();
  }
  const int columns = static_cast<int>(blockDim.x) / parts;
  const int c = static_cast<int>(threadIdx.x) % columns;
  const int part = static_cast<int>(threadIdx.x) / columns;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * columns + c;
  const bool is_present = column < plan.count;
  const In* in = static_cast<const In*>(plan.in.data);
  Out* out = static_cast<Out*>(plan.out.data);
  if (is_present) {
    in += plan.in.outer.offset(column);
    out += plan.out.outer.offset(column);
  }
  const std::int64_t length = is_present ? plan.length : 0;
  ScanCarry<Step> carry;  // used by part 0
  for (std::int64_t first = 0; first < plan.length; first += parts * kScanGroup) {
    const std::int64_t own_first = first + part * kScanGroup;
    const std::int64_t rest = length - own_first;
    const int count = static_cast<int>(rest < 0 ? 0 : rest < kScanGroup ? rest : kScanGroup);
    In elements[kScanGroup];
#pragma unroll
    for (int i = 0; i < kScanGroup; ++i) {
      if (i < count) elements[i] = in[(own_first + i) * plan.in.stride];
    }
    Acc total = Step::neutral();
#pragma unroll
    for (int i = 0; i < kScanGroup; ++i) {
      if (i < count) total = Step::combine(total, static_cast<Acc>(elements[i]));
    }
    totals[threadIdx.x] = total;
    if (part == 0) step_before[c] = carry.before();
    // Read ahead of the barrier: threads of the column write it behind.
    [[maybe_unused]] const bool has_failed = kHasTiles && failing[kHasTiles ? c : 0] >= 0;
    __syncthreads();
    Acc running = Step::neutral();
    for (int p = 0; p < part; ++p) running = Step::combine(running, totals[p * columns + c]);
    const Acc before = Step::combine(step_before[c], running);
    running = Step::neutral();
    Acc result = before;
    [[maybe_unused]] bool fails = false;
#pragma unroll
    for (int i = 0; i < kScanGroup; ++i) {
      if (i < count) {
        running = Step::combine(running, static_cast<Acc>(elements[i]));
        result = Step::combine(before, running);
        const Out rounded = from_accumulator<Out>(result);
        out[(own_first + i) * plan.out.stride] = rounded;
        if constexpr (kBeginsAgain<In, kOp>) fails |= !is_finite(rounded);
      }
    }
    if constexpr (kBeginsAgain<In, kOp>) {
      if (fails) failing[c] = 0;
    } else if constexpr (kRestarts<In, kOp>) {
      const std::int64_t tile = first / kScanTile;
      // All threads of a column that fail in this step write the same number.
      if (count > 0 && !is_finite(result) && !has_failed) failing[c] = tile;
      // The value before a tile that failed in an earlier step stays.
      if (part == parts - 1 && (first + parts * kScanGroup) % kScanTile == 0 && !has_failed) {
        tile_before[(tile + 1) % 2][c] = result;
      }
    }
    if (part == 0 && parts == kScanGroup) {
      Acc step_total = Step::neutral();
      for (int p = 0; p < kScanGroup; ++p)
        step_total = Step::combine(step_total, totals[p * columns + c]);
      carry.push(step_total);
    }
    __syncthreads();
  }
  if constexpr (kRestarts<In, kOp>) {
    if (part == 0 && failing[c] >= 0) {
      const std::int64_t first = failing[c] * kScanTile;
      scan_left_to_right<Step>(out + first * plan.out.stride, plan.out.stride,
                               in + first * plan.in.stride, plan.in.stride, length - first,
                               tile_before[failing[c] % 2][kHasTiles ? c : 0]);
    }
  }
}

// True for fibres that lie side by side, if they are many or short.
bool by_columns(const FibrePlan& plan) {
  return plan.is_column_wise() && plan.count >= 16 &&
         (plan.count >= kManyColumns || plan.length <= kScanTile);
}

std::int64_t tiles_of(const FibrePlan& plan) {
  return by_columns(plan) ? 1 : (plan.length + kScanTile - 1) / kScanTile;
}

// The smallest power of two of at least `count`, at most `most`.
int power_of_two(std::int64_t count, int most) {
  int result = 1;
  while (result < most && result < count) result *= 2;
  return result;
}

template <class In, ScanOp kOp>
void launch_scan(void* stream, const FibrePlan& plan, const TileTotals& totals) {
  const std::int64_t groups = (plan.length + kScanGroup - 1) / kScanGroup;
  if (by_columns(plan)) {
    const int parts = power_of_two(groups, kScanGroup);
    // Small blocks: some wait for their loads while others write.
    constexpr int kLeastColumns = 32;
    const int own_threads = kLeastColumns * parts;
    const int threads = own_threads < kFewColumnThreads ? kFewColumnThreads : own_threads;
    const std::int64_t columns = threads / parts;
    launch("scan_columns", stream, static_cast<unsigned>((plan.count + columns - 1) / columns),
           threads, 0, scan_columns<In, kOp>, plan, parts);
    return;
  }
  const std::int64_t tiles = tiles_of(plan);
  if constexpr (kHasLongScan<In, kOp>) {
    if (launch_long_scan<In, kOp>(stream, plan, totals, tiles)) {
      launch_restart<In, kOp>(stream, plan, totals, tiles);
      return;
    }
  }
  const int threads_per_fibre = power_of_two(groups, kRowThreads);
  const std::int64_t per_block = kRowThreads / threads_per_fibre;
  const std::int64_t blocks =
      tiles > 1 ? plan.count * tiles : (plan.count + per_block - 1) / per_block;
  launch("scan_rows", stream, static_cast<unsigned>(blocks), kRowThreads, 0,
         per_block > 1 ? scan_rows<In, kOp, true> : scan_rows<In, kOp, false>, plan, totals, tiles,
         make_dense_rows(plan, threads_per_fibre));
  if (tiles > 1) launch_restart<In, kOp>(stream, plan, totals, tiles);
}

// The parts of the scratch memory: the number of the next tile, totals, restarts, and lasts.
struct ScratchParts {
  std::size_t restarts;
  std::size_t lasts;
  std::size_t end;

  ScratchParts(const FibrePlan& plan, std::int64_t tiles)
      : restarts(static_cast<std::size_t>(plan.count * totals_per_fibre(tiles) + 1) *
                 sizeof(PublishedTotal)),
        lasts(restarts +
              static_cast<std::size_t>(plan.count + plan.count % 2) * sizeof(std::uint32_t)),
        end(lasts + static_cast<std::size_t>(plan.count * tiles) * sizeof(double)) {}
};

}  // namespace

std::size_t scan_scratch_bytes(const FibrePlan& plan) {
  const std::int64_t tiles = tiles_of(with_merged_dims(plan));
  return tiles == 1 ? 0 : ScratchParts(plan, tiles).end;
}

void scan(void* stream, ScanOp op, const FibrePlan& unmerged, void* scratch) {
  const FibrePlan plan = with_merged_dims(unmerged);
  if (scan_thread_columns(stream, op, plan)) return;
  TileTotals totals;
  if (scratch != nullptr) {
    const ScratchParts parts(plan, tiles_of(plan));
    const cudaError_t status =
        cudaMemsetAsync(scratch, 0, parts.lasts, static_cast<cudaStream_t>(stream));
    if (status != cudaSuccess) {
      (void)cudaGetLastError();
      throw_launch_error("scan", stream, status);
    }
    auto* bytes = static_cast<unsigned char*>(scratch);
    totals.next_tile = reinterpret_cast<std::uint32_t*>(bytes);
    totals.totals = reinterpret_cast<PublishedTotal*>(bytes) + 1;
    totals.per_fibre = totals_per_fibre(tiles_of(plan));
    totals.restarts = reinterpret_cast<std::uint32_t*>(bytes + parts.restarts);
    totals.lasts = reinterpret_cast<double*>(bytes + parts.lasts);
  }
  dispatch_stored(plan.dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    if (op == ScanOp::sum) launch_scan<In, ScanOp::sum>(stream, plan, totals);
    if (op == ScanOp::product) launch_scan<In, ScanOp::product>(stream, plan, totals);
    if constexpr (is_floating_point(dtype_of<In>)) {
      if (op == ScanOp::log_sum_exp) launch_scan<In, ScanOp::log_sum_exp>(stream, plan, totals);
    }
  });
}

}  // namespace gantry::kernels::cuda
