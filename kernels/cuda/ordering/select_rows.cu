#include "kernels/cuda/ordering/select_rows.hpp"

#include "kernels/cuda/launch.cuh"
#include "kernels/input.hpp"
#include "kernels/ordering/ordered_key.hpp"

namespace gantry::kernels::cuda {

namespace {

constexpr int kBytes = 256;
static_assert(kThreads == kBytes);
constexpr int kWarps = kThreads / 32;
constexpr unsigned kAll = 0xffffffffu;
// Elements of a wide access, and accesses in flight.
constexpr int kWide = 4;
constexpr int kInFlight = 4;
// Bytes of the longest row. With the counts it is less than the 48 KiB that need no leave.
constexpr std::int64_t kMostRowBytes = 36 << 10;

// Copies the keys of a row to shared memory.
template <class U>
__device__ void load_keys(const U* in, std::int64_t stride, int length, bool is_wide,
                          const KeyOrder<U>& order, U* row) {
  const int thread = static_cast<int>(threadIdx.x);
  if (is_wide) {
    using Vector = StoredPack<U, kWide>;
    const auto* vectors = reinterpret_cast<const Vector*>(in);
    for (int first = thread; first < length / kWide; first += kInFlight * kThreads) {
      Vector batch[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (first + i * kThreads < length / kWide) batch[i] = vectors[first + i * kThreads];
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (first + i * kThreads >= length / kWide) break;
        Vector keys;
#pragma unroll
        for (int v = 0; v < kWide; ++v) keys.values[v] = order.key(batch[i].values[v]);
        reinterpret_cast<Vector*>(row)[first + i * kThreads] = keys;
      }
    }
  } else {
    for (int first = thread; first < length; first += kInFlight * kThreads) {
      U batch[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (first + i * kThreads < length) batch[i] = in[(first + i * kThreads) * stride];
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (first + i * kThreads < length) row[first + i * kThreads] = order.key(batch[i]);
      }
    }
  }
}

// The key of a rank, and the rank among the elements that have it.
template <class U>
struct Sought {
  U key;
  std::uint32_t rank;
};

// Finds the key of rank `rank` in the row. Every thread calls and gets the result.
template <class U>
__device__ Sought<U> find_key(const U* row, int length, std::uint32_t rank) {
  __shared__ std::uint32_t counts[kWarps][kBytes];
  __shared__ std::uint32_t warp_sums[kWarps];
  __shared__ std::uint32_t found_byte;
  __shared__ std::uint32_t found_rank;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  U known = 0;
  for (int shift = static_cast<int>(sizeof(U)) * 8 - 8; shift >= 0; shift -= 8) {
    for (int w = 0; w < kWarps; ++w) counts[w][thread] = 0;
    __syncthreads();
    // The bytes above the current one. A shift by the width of U is undefined.
    const int above = shift + 8;
    const bool is_first = above == static_cast<int>(sizeof(U)) * 8;
#pragma unroll 8
    for (int i = thread; i < length; i += kThreads) {
      const U key = row[i];
      if (is_first || (key >> above) == (known >> above))
        atomicAdd(&counts[warp][(key >> shift) & 0xff], 1u);
    }
    __syncthreads();
    std::uint32_t count = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) count += counts[w][thread];
    std::uint32_t end = count;  // of the ranks of this byte
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const std::uint32_t before = __shfl_up_sync(kAll, end, distance);
      if (lane >= distance) end += before;
    }
    if (lane == 31) warp_sums[warp] = end;
    __syncthreads();
    for (int w = 0; w < warp; ++w) end += warp_sums[w];
    if (end - count <= rank && rank < end) {
      found_byte = static_cast<std::uint32_t>(thread);
      found_rank = rank - (end - count);
    }
    __syncthreads();
    known |= static_cast<U>(static_cast<U>(found_byte) << shift);
    rank = found_rank;
  }
  return {known, rank};
}

// Blocks of a multiprocessor, whose shared memory holds five of the longest rows.
template <class U>
constexpr int kRowBlocks = sizeof(U) == 8 ? 2 : 4;

template <class U>
__global__ void __launch_bounds__(kThreads, kRowBlocks<U>)
    select_rows_kernel(const __grid_constant__ SortPlan plan, KeyOrder<U> order, bool is_wide,
                       U* all_keys, std::uint32_t* all_positions) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ int smaller_of[kWarps];
  __shared__ int equal_of[kWarps];
  U* const row = reinterpret_cast<U*>(memory);
  const int length = static_cast<int>(plan.fibres.length);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  // A warp takes candidates of its own part of the row.
  const int part = (length + kThreads - 1) / kThreads * 32;
  const int begin = warp * part;
  const int end = begin + part < length ? begin + part : length;
  for (std::int64_t fibre = blockIdx.x; fibre < plan.fibres.count; fibre += gridDim.x) {
    const U* in = sort_input<U>(plan, fibre);
    load_keys(in, plan.fibres.in.stride, length, is_wide, order, row);
    const auto [sought, equal_rank] =
        find_key(row, length, static_cast<std::uint32_t>(first_rank(plan, fibre) + plan.count - 1));
    int smaller = 0;
    int equal = 0;
    for (int i = begin + lane; i < end; i += 32) {
      smaller += row[i] < sought;
      equal += row[i] == sought;
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      smaller += __shfl_xor_sync(kAll, smaller, distance);
      equal += __shfl_xor_sync(kAll, equal, distance);
    }
    if (lane == 0) {
      smaller_of[warp] = smaller;
      equal_of[warp] = equal;
    }
    __syncthreads();
    smaller = 0;
    equal = 0;
    for (int w = 0; w < warp; ++w) {
      smaller += smaller_of[w];
      equal += equal_of[w];
    }
    const int wanted_equal = static_cast<int>(equal_rank) + 1;  // equal elements to take
    const bool takes_one = plan.count == 1;
    const int all_smaller = static_cast<int>(plan.count) - wanted_equal;
    U* keys = all_keys + fibre * plan.count;
    std::uint32_t* positions = all_positions + fibre * plan.count;
    const unsigned before_lane = (1u << lane) - 1;
    for (int first = begin; first < end; first += 32) {
      const int i = first + lane;
      const U key = i < end ? row[i] : U(0);
      const bool is_equal = i < end && key == sought;
      const bool is_smaller = i < end && key < sought && !takes_one;
      const unsigned equals = __ballot_sync(kAll, is_equal);
      const unsigned smallers = __ballot_sync(kAll, is_smaller);
      const int equal_at = equal + __popc(equals & before_lane);
      if (takes_one) {
        if (is_equal && equal_at == wanted_equal - 1) {
          sort_output<U>(plan, fibre)
              .write(0, order.stored(in[static_cast<std::int64_t>(i) * plan.fibres.in.stride]), i);
        }
      } else if (is_smaller || (is_equal && equal_at < wanted_equal)) {
        const int at =
            is_smaller ? smaller + __popc(smallers & before_lane) : all_smaller + equal_at;
        keys[at] = key;
        positions[at] = static_cast<std::uint32_t>(i);
      }
      equal += __popc(equals);
      smaller += __popc(smallers);
    }
    __syncthreads();  // the next row overwrites this one
  }
}

// True if all rows are dense and begin on a wide access.
bool has_wide_rows(const FibrePlan& fibres) {
  const auto bytes = static_cast<std::uintptr_t>(kWide * element_size(fibres.dtype));
  if (fibres.in.stride != 1 || fibres.length % kWide != 0) return false;
  if (reinterpret_cast<std::uintptr_t>(fibres.in.data) % (bytes < 16 ? bytes : 16) != 0)
    return false;
  for (int d = 0; d < fibres.in.outer.ndim; ++d) {
    if (fibres.in.outer.strides[d] % kWide != 0) return false;
  }
  return true;
}

}  // namespace

bool fits_select_rows(const SortPlan& plan) {
  return plan.fibres.length * static_cast<std::int64_t>(element_size(plan.fibres.dtype)) <=
         kMostRowBytes;
}

void select_rows(void* stream, const SortPlan& plan, void* keys, std::uint32_t* positions) {
  dispatch_keys(plan.fibres.dtype, [&](auto tag) {
    using U = typename decltype(tag)::type;
    const auto order = make_key_order<U>(plan.fibres.dtype, plan.largest_first);
    const std::int64_t blocks = plan.fibres.count < kMaxBlocks ? plan.fibres.count : kMaxBlocks;
    launch("select_rows", stream, static_cast<unsigned>(blocks), kThreads,
           static_cast<std::size_t>(plan.fibres.length) * sizeof(U), select_rows_kernel<U>, plan,
           order, has_wide_rows(plan.fibres), static_cast<U*>(keys), positions);
  });
}

}  // namespace gantry::kernels::cuda
