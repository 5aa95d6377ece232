// Reductions on the GPU: one kernel per memory layout, all in the order of Note [Reduction order].
#pragma once

#include "kernels/cuda/reductions/reduce_column_parts.cuh"
#include "kernels/cuda/reductions/reduce_columns.cuh"
#include "kernels/cuda/reductions/reduce_few.cuh"
#include "kernels/cuda/reductions/reduce_narrow_columns.cuh"
#include "kernels/cuda/reductions/reduce_row_tiles.cuh"
#include "kernels/cuda/reductions/reduce_rows.cuh"
#include "kernels/cuda/reductions/reduce_tiny_rows.cuh"

namespace gantry::kernels::cuda {

namespace {

// True if every output's elements begin on a multiple of `elements`, for vector loads of them.
template <class In>
bool is_aligned(const ReducePlan& plan, int elements) {
  const std::size_t bytes = sizeof(In) * static_cast<std::size_t>(elements);
  if (reinterpret_cast<std::uintptr_t>(plan.in) % (bytes < 16 ? bytes : 16) != 0) return false;
  for (int d = 0; d < plan.kept.ndim; ++d) {
    if (plan.kept.strides[d] % elements != 0) return false;
  }
  return true;
}

// True if V neighbouring columns form aligned packs.
template <class In, int V>
bool has_packs(const ReducePlan& plan) {
  const int last = plan.kept.ndim - 1;
  if (last < 0 || plan.kept.strides[last] != 1 || plan.kept.sizes[last] % V != 0 ||
      plan.reduced.strides[0] % V != 0) {
    return false;
  }
  ReducePlan others = plan;
  --others.kept.ndim;
  return is_aligned<In>(others, V);
}

// The blocks of reduce_columns with tiles of `columns` columns.
inline std::int64_t tile_count(const ReducePlan& plan, int columns) {
  return (plan.outputs + columns - 1) / columns * plan.chunks;
}

template <class In, class Acc, class R, int V, int kPacks>
void launch_tile_columns(void* stream, const ReducePlan& plan, const R& reducer) {
  launch("reduce_columns", stream, limited(tile_count(plan, V * kPacks)),
         dim3(kPacks, kRingThreads / kPacks), 0, reduce_columns<In, Acc, R, V, kPacks>, plan,
         reducer);
}

// Reduces at most kSubtree rows, one thread for each output or pack of outputs.
template <class In, class Acc, class R>
void launch_few_rows(void* stream, const ReducePlan& plan, const R& reducer) {
  constexpr int V = kFewPack<In, R>;
  const auto run = [&](auto kernel, int columns) {
    launch("reduce_few_rows", stream, blocks_for(plan.outputs / columns), kThreads, 0, kernel, plan,
           reducer);
  };
  if constexpr (V > 1) {
    if (has_packs<In, V>(plan)) return run(reduce_few_rows<In, Acc, R, V, 1>, V);
  }
  if constexpr (V > 2) {
    if (has_packs<In, V / 2>(plan)) return run(reduce_few_rows<In, Acc, R, V / 2, 1>, V / 2);
  }
  constexpr int kColumns = kFewColumns<In, R>;
  constexpr int kStep = kColumns == 1 ? 1 : kThreads;
  launch("reduce_few_rows", stream, blocks_for((plan.outputs + kColumns - 1) / kColumns), kThreads,
         0, reduce_few_rows<In, Acc, R, kColumns, kStep>, plan, reducer);
}

// Reduces at most kAccumulators rows with a ring for each thread. Returns false if the columns form
// no packs for one.
template <class In, class Acc, class R>
bool launch_few_packs(void* stream, const ReducePlan& plan, const R& reducer) {
  if constexpr (constexpr int V = kFewPack<In, R>; V > 1 && kHasOnly<In, R> && !kHasState<R>) {
    const auto run = [&](auto kernel, int columns) {
      launch("reduce_few_packs", stream, blocks_for(plan.outputs / columns), kThreads, 0, kernel,
             plan, reducer, subtree_bits(kSubtree, plan.length, kAccumulators));
      return true;
    };
    if (has_packs<In, V>(plan)) return run(reduce_few_packs<In, Acc, R, V>, V);
    if constexpr (kHasRing<StoredPack<In, V / 2>>) {
      if (has_packs<In, V / 2>(plan)) return run(reduce_few_packs<In, Acc, R, V / 2>, V / 2);
    }
  }
  return false;
}

template <class In, class Acc, class R>
void launch_dense_chunks(void* stream, const ReducePlan& plan, const R& reducer) {
  const std::int64_t tasks = plan.outputs * plan.chunks;
  const std::int64_t per_warp = (tasks + kMostWarps - 1) / kMostWarps;
  const std::int64_t per_block = kRowWarps * per_warp;
  const std::int64_t blocks = (plan.chunks + per_block - 1) / per_block;
  launch("reduce_dense_chunks", stream, static_cast<unsigned>(plan.outputs * blocks), kRowThreads,
         0, reduce_dense_chunks<In, Acc, R>, plan, reducer, static_cast<std::uint32_t>(blocks),
         static_cast<int>(per_warp));
}

// Reduces columns of at most a chunk with a thread for each pack, or kParts threads. Returns false
// if more threads are better.
template <class In, class Acc, class R>
bool launch_shared_columns(void* stream, const ReducePlan& plan, const R& reducer) {
  // Columns of at most an element for each accumulator are not worth more levels of the tree.
  const auto fills = [&](int columns) {
    return plan.length <= kAccumulators || plan.outputs > (kManyPartTiles - 1) * columns;
  };
  if (plan.length <= kAccumulators && plan.outputs >= kManyColumns &&
      launch_few_packs<In, Acc>(stream, plan, reducer)) {
    return true;
  }
  if constexpr (constexpr int V = kPartPack<In, R>; V > 1) {
    if (has_packs<In, V>(plan)) {
      if constexpr (kHasWideParts<In, R>) {
        if (!fills(kPartTile<V, kParts>)) return false;
        launch_column_parts<In, Acc, R, V, kParts>(stream, plan, reducer);
        return true;
      } else {
        return false;
      }
    }
  }
  if (plan.outputs > (kManyPartTiles - 1) * kPartTile<1, 1>) {
    launch_column_parts<In, Acc, R, 1, 1>(stream, plan, reducer);
    return true;
  }
  // A warp reads 64 bytes of a row of 16-bit elements: the ring took 57 us for variances of 1031
  // rows, and this 64.
  const bool is_long = sizeof(In) == 2 && plan.length > 1024;
  if (is_long || !fills(kPartTile<1, kParts>)) return false;
  launch_column_parts<In, Acc, R, 1, kParts>(stream, plan, reducer);
  return true;
}

// Reduces outputs that are closer together than the elements of one.
template <class In, class Acc, class R>
void launch_columns(void* stream, const ReducePlan& plan, const R& reducer) {
  if (plan.length <= kSubtree) {
    launch_few_rows<In, Acc>(stream, plan, reducer);
  } else if (plan.chunks == 1 && launch_shared_columns<In, Acc>(stream, plan, reducer)) {
  } else if (has_narrow_columns(plan)) {
    const int columns = narrow_tile(plan);
    launch("reduce_columns", stream,
           static_cast<unsigned>((plan.outputs + columns - 1) / columns * plan.chunks),
           dim3(columns, kAccumulators), 0, reduce_narrow_columns<In, Acc, R>, plan, reducer);
  } else if (constexpr int V = kPackColumns<In>; has_packs<In, V>(plan)) {
    if constexpr (kHasNarrowTiles<In>) {
      if (!kHasWideTiles<R> || tile_count(plan, V * kTilePacks) < kManyTiles) {
        launch_tile_columns<In, Acc, R, V, kNarrowTilePacks>(stream, plan, reducer);
        return;
      }
    }
    if constexpr (!kHasNarrowTiles<In> || kHasWideTiles<R>) {
      launch_tile_columns<In, Acc, R, V, kTilePacks>(stream, plan, reducer);
    }
  } else if (tile_count(plan, kSingleTile) < kManyTiles) {
    launch_tile_columns<In, Acc, R, 1, kSmallSingleTile>(stream, plan, reducer);
  } else {
    launch_tile_columns<In, Acc, R, 1, kSingleTile>(stream, plan, reducer);
  }
}

// True if the elements of an output are contiguous.
inline bool is_dense(const ReducePlan& plan) {
  return plan.reduced.ndim == 0 || plan.reduced.strides[0] == 1;
}

// Reduces rows of a few bytes with a thread for each. Returns false for longer ones.
template <class In, class Acc, class R>
bool launch_tiny_rows(void* stream, const ReducePlan& plan, const R& reducer) {
  constexpr int V = kTinyPack<In, R>;
  const auto run = [&](auto kernel) {
    launch("reduce_tiny_rows", stream, blocks_for((plan.outputs + V - 1) / V), kThreads, 0, kernel,
           plan, reducer);
    return true;
  };
  if (has_tiny_rows<In, V>(plan)) {
    if (plan.length == 1) return run(reduce_tiny_rows<In, Acc, R, V, 1>);
    if (plan.length == 2) return run(reduce_tiny_rows<In, Acc, R, V, 2>);
    if (plan.length == 3) return run(reduce_tiny_rows<In, Acc, R, V, 3>);
    if (plan.length == 4) return run(reduce_tiny_rows<In, Acc, R, V, 4>);
  }
  // The threads of a warp find neighbouring rows of a few bytes in the same lines of the cache.
  if (plan.length * static_cast<std::int64_t>(sizeof(In)) > kTinyRowBytes) return false;
  if (plan.length <= kSubtree) {
    launch_few_rows<In, Acc>(stream, plan, reducer);
  } else {
    launch_column_parts<In, Acc, R, 1, 1>(stream, plan, reducer);
  }
  return true;
}

// Reduces dense rows in shared memory. Returns false if they are not short, or few.
template <class In, class Acc, class R>
bool launch_tiles(void* stream, const ReducePlan& plan, const R& reducer) {
  if (plan.chunks != 1) return false;
  // A warp has four reads of 32 bytes a thread of such a row under way, and no block to wait for.
  constexpr std::int64_t kWideRow = 256;
  if (sizeof(In) == 8 && !kHasState<R> && plan.length >= kWideRow && is_aligned<In>(plan, 4)) {
    return false;
  }
  constexpr int V = kTilePack<In>;
  if (const RowTiling tiling = row_tiling<In, R, V>(plan); tiling.tiles > 0) {
    launch_row_tiles<In, Acc, R, V>(stream, plan, reducer, tiling);
    return true;
  }
  if (is_aligned<In>(plan, V) && plan.length % V == 0) return false;
  const RowTiling tiling = row_tiling<In, R, 1>(plan);
  if (tiling.tiles == 0) return false;
  launch_row_tiles<In, Acc, R, 1>(stream, plan, reducer, tiling);
  return true;
}

// Reduces rows of one dim with a warp or less for each. Returns false if a block is better.
template <class In, class Acc, class R>
bool launch_short_rows(void* stream, const ReducePlan& plan, const R& reducer) {
  if (is_dense(plan) && launch_tiny_rows<In, Acc>(stream, plan, reducer)) return true;
  if (is_dense(plan) && launch_tiles<In, Acc>(stream, plan, reducer)) return true;
  if (is_dense(plan) && plan.chunks == 1 && is_aligned<In>(plan, 4) &&
      (plan.length <= kShortRow || plan.outputs >= kManyRows)) {
    int group = 1;
    while (group < 32 && 4 * group < plan.length) group *= 2;
    const std::int64_t threads = plan.outputs * group;
    launch("reduce_dense_rows", stream, limited((threads + kRowThreads - 1) / kRowThreads),
           kRowThreads, 0, reduce_dense_rows<In, Acc, R>, plan, reducer, group);
    return true;
  }
  if (plan.length > kShortRow) return false;
  int group = 1;
  while (group < 32 && group < plan.length) group *= 2;
  launch("reduce_short_rows", stream, blocks_for(plan.outputs * group), kThreads, 0,
         reduce_short_rows<In, Acc, R>, plan, reducer, group);
  return true;
}

template <class In, class Acc, class R>
void launch_rows(void* stream, const ReducePlan& plan, const R& reducer) {
  const std::int64_t tasks = plan.outputs * plan.chunks;
  if (plan.reduced.ndim > 1) {
    launch("reduce_rows", stream, limited(tasks), kRowThreads, 0,
           reduce_rows<In, Acc, R, RowLayout::dims>, plan, reducer);
  } else if (sizeof(In) < 4 && is_dense(plan) && plan.chunks > 1 && is_aligned<In>(plan, 4) &&
             tasks >= kManyRows && tasks < (std::int64_t{1} << 31)) {
    if constexpr (sizeof(In) < 4) launch_dense_chunks<In, Acc, R>(stream, plan, reducer);
  } else if (is_dense(plan)) {
    launch("reduce_rows", stream, limited(tasks), kRowThreads, 0,
           reduce_rows<In, Acc, R, RowLayout::dense>, plan, reducer);
  } else {
    launch("reduce_rows", stream, limited(tasks), kRowThreads, 0,
           reduce_rows<In, Acc, R, RowLayout::strided>, plan, reducer);
  }
}

template <class In, class Acc, class R>
void reduce_with(void* stream, const ReducePlan& plan) {
  const R reducer(plan);
  if (plan.length == 1 && launch_tiny_rows<In, Acc>(stream, plan, reducer)) return;
  if (plan.is_column_wise()) return launch_columns<In, Acc>(stream, plan, reducer);
  if (plan.reduced.ndim > 1 || !launch_short_rows<In, Acc>(stream, plan, reducer)) {
    launch_rows<In, Acc>(stream, plan, reducer);
  }
}

// Calls reduce_with for the dtype of plan.in.
template <template <class> class R>
void reduce_elements(void* stream, const ReducePlan& plan) {
  dispatch_stored(plan.in_dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    reduce_with<In, AccumulatorType<In>, R<AccumulatorType<In>>>(stream, plan);
  });
}

// Calls reduce_with for a floating dtype of plan.in, with states of R.
template <template <class> class R>
void reduce_states(void* stream, const ReducePlan& plan) {
  dispatch_floating("reduce", plan.in_dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    using Reducer = StateReducer<R<AccumulatorType<In>>>;
    reduce_with<In, typename Reducer::State, Reducer>(stream, plan);
  });
}

}  // namespace

}  // namespace gantry::kernels::cuda
