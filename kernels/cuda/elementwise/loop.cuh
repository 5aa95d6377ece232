// The elementwise loop on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/cuda/elementwise/loop_kernels.cuh"
#include "kernels/cuda/elementwise/offset_calculator.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/input.hpp"
#include "kernels/strided.hpp"

namespace gantry::kernels::cuda {

// The elementwise loop on the GPU, with the interface of host::Loop.
class Loop {
 public:
  // Results of 16 bits take the brief version of an op, if it has one.
  static constexpr bool kIsBrief = true;

  explicit Loop(void* stream) : stream_(stream) {}

  template <class Out, class Op, class... Sources>
  void run(const char* name, const Op& op, const TensorRef& out,
           const Input<Sources>&... inputs) const {
    if constexpr (detail::ReplayableOp<Op>) {
      if (op.stream.is_replayed()) {
        run<Out>(name, detail::Replayed<Op>(op), out, inputs...);
        return;
      }
    }
    constexpr int N = 1 + sizeof...(Sources);
    const std::int64_t* const strides[N] = {out.strides, inputs.strides...};
    const StridedPlan<N> plan = make_plan<N>(out.ndim, out.sizes, strides);
    auto* data = static_cast<Out*>(out.data);
    if constexpr (kHasDenseLoop<Op, Out>) {
      constexpr int V = detail::vector_size<Out, typename detail::StoredTypeOf<Sources>::type...>();
      constexpr int U =
          detail::vectors_in_flight<Out, typename detail::StoredTypeOf<Sources>::type...>();
      int k = 0;
      if (plan.is_dense(0) && is_aligned<V>(data) &&
          (is_dense<V>(plan, ++k, inputs.source) && ...)) {
        void* arguments[] = {address(plan.numel), address(op), address(data),
                             address(inputs.source)...};
        // The batches of a thread share its preparation.
        const int in_turn =
            detail::LongOp<Op> && plan.numel / V >= kManyItems ? kItemsInTurn * U : U;
        launch_untyped(name, stream_, blocks_for_batches(plan.numel / V, in_turn), kThreads,
                       kernel_address(detail::dense_kernel<V, U, Out, Op, Sources...>), arguments);
        return;
      }
      // Elements of 8 bytes gain nothing. Those of one byte make vectors of 4 bytes.
      constexpr int W = V < 16 ? V : 4;
      if constexpr (sizeof...(Sources) > 0 && W > 2) {
        if (has_vectors<W>(plan, data)) {
          run_vectors<W>(name, op, data, plan, std::index_sequence_for<Sources...>{},
                         inputs.source...);
          return;
        }
      }
    }
    for (const PlanPiece<N>& piece : pieces_of(plan)) {
      run_strided(name, op, data + piece.offsets[0], piece, std::index_sequence_for<Sources...>{},
                  inputs.source...);
    }
  }

  template <class Out, class Op>
  void run_blocks(const char* name, const Op& op, const TensorRef& out) const {
    if constexpr (detail::ReplayableOp<Op>) {
      if (op.stream.is_replayed()) {
        run_blocks<Out>(name, detail::Replayed<Op>(op), out);
        return;
      }
    }
    if (!out.is_contiguous()) {
      run<Out>(name, op, out, index_input(out));
      return;
    }
    auto* data = static_cast<Out*>(out.data);
    const std::int64_t n = out.numel();
    const std::int64_t whole = is_aligned<Op::kSize>(data) ? n / Op::kSize : 0;
    void* arguments[] = {address(n), address(whole), address(op), address(data)};
    launch_untyped(name, stream_, blocks_of_work<Op>(n), kThreads,
                   kernel_address(detail::blocks_kernel<Out, Op>), arguments);
  }

  template <class Out, class Op, class Source>
  void run_drawn(const char* name, const Op& op, const TensorRef& out, const Source& source) const {
    auto* data = static_cast<Out*>(out.data);
    const std::int64_t n = out.numel();
    const bool aligned = is_aligned<Op::kSize>(data) && source.is_aligned(Op::kSize);
    const std::int64_t whole = aligned ? n / Op::kSize : 0;
    void* arguments[] = {address(n), address(whole), address(op), address(data), address(source)};
    launch_untyped(name, stream_, blocks_of_work<Op>(n), kThreads,
                   kernel_address(detail::drawn_kernel<Out, Op, Source>), arguments);
  }

 private:
  template <int V, class Out>
  static bool is_aligned(const Out* data) {
    return reinterpret_cast<std::uintptr_t>(data) % alignof(StoredPack<Out, V>) == 0;
  }

  // Items that a thread computes one after the other, and that keep all multiprocessors busy then.
  static constexpr int kItemsInTurn = 4;
  static constexpr std::int64_t kManyItems = 1 << 20;

  // True if dense operands have a loop with vector accesses. Wide ops are worth it in f32.
  template <class Op, class Out>
  static constexpr bool kHasDenseLoop =
      !SlowOp<Op> || ((WideOp<Op> || detail::WideOpOnGpu<Op>)&&!std::is_same_v<Out, double>);

  // The grid for `items` of which a thread has `in_flight`.
  static unsigned blocks_for_batches(std::int64_t items, int in_flight) {
    return blocks_for((items + in_flight - 1) / in_flight);
  }

  // The grid for n elements in blocks of Op::kSize. A thread computes a few of them, which share
  // the preparation.
  template <class Op>
  static unsigned blocks_of_work(std::int64_t n) {
    constexpr std::int64_t kPerThread = 4 * Op::kSize;
    return blocks_for((n + kPerThread - 1) / kPerThread);
  }

  template <int V, int N, class Source>
  static bool is_dense(const StridedPlan<N>& plan, int k, const Source& source) {
    if constexpr (!std::is_same_v<Source, Counter>) {
      if (source.is_number) return true;
    }
    return plan.is_dense(k) && source.is_aligned(V);
  }

  // True if V consecutive positions are always one aligned vector of the output: its rows hold
  // whole vectors, or it is dense. They lie in three rows at most.
  template <int V, class Out, int N>
  static bool has_vectors(const StridedPlan<N>& plan, const Out* out) {
    if (plan.strides[0][0] != 1 || 2 * plan.sizes[0] < V || !is_aligned<V>(out) ||
        plan.numel >= std::int64_t{1} << 31) {
      return false;
    }
    return has_whole_vectors<V>(plan, 0) || is_row_major(plan, 0);
  }

  // True if operand k is dense in the order of the positions.
  template <int N>
  static bool is_row_major(const StridedPlan<N>& plan, std::size_t k) {
    std::int64_t size = 1;
    for (int dim = 0; dim < plan.ndim; ++dim) {
      if (plan.strides[dim][k] != size) return false;
      size *= plan.sizes[dim];
    }
    return true;
  }

  // True if the rows of operand k hold whole vectors, each on a multiple of V elements.
  template <int V, int N>
  static bool has_whole_vectors(const StridedPlan<N>& plan, std::size_t k) {
    if (plan.strides[0][k] != 1 || plan.sizes[0] % V != 0) return false;
    for (int dim = 1; dim < plan.ndim; ++dim) {
      if (plan.strides[dim][k] % V != 0) return false;
    }
    return true;
  }

  template <int V, class Out, class Op, int N, std::size_t... K, class... Sources>
  void run_vectors(const char* name, const Op& op, Out* out, const StridedPlan<N>& plan,
                   std::index_sequence<K...>, const Sources&... sources) const {
    const auto n = static_cast<std::uint32_t>(plan.numel);
    const OffsetCalculator<N> calculator(plan);
    std::uint32_t whole = 0;
    const auto is_whole = [&](std::size_t k, const auto& source) {
      return (has_whole_vectors<V>(plan, k) || is_row_major(plan, k)) && source.is_aligned(V);
    };
    ((whole |= is_whole(K + 1, sources) ? 1u << K : 0u), ...);
    void* arguments[] = {address(n),  address(calculator), address(whole),
                         address(op), address(out),        address(sources)...};
    launch_untyped(name, stream_, blocks_for((plan.numel + V - 1) / V), kThreads,
                   kernel_address(detail::vectors_kernel<V, Out, Op, N, Sources...>), arguments);
  }

  template <class Out, class Op, int N, std::size_t... K, class... Sources>
  void run_strided(const char* name, const Op& op, Out* out, const PlanPiece<N>& piece,
                   std::index_sequence<K...>, const Sources&... sources) const {
    const auto n = static_cast<std::uint32_t>(piece.plan.numel);
    const OffsetCalculator<N> calculator(piece.plan);
    [[maybe_unused]] const std::tuple<Sources...> moved(advanced(sources, piece.offsets[K + 1])...);
    void* arguments[] = {address(n), address(calculator), address(op), address(out),
                         address(std::get<K>(moved))...};
    // A slow op is compiled once for a thread, which computes several elements of a large array one
    // after the other.
    constexpr int U = SlowOp<Op> ? 1 : detail::kStridedInFlight;
    const int in_turn = U == 1 && n >= kManyItems ? kItemsInTurn : U;
    launch_untyped(name, stream_, blocks_for_batches(n, in_turn), kThreads,
                   kernel_address(detail::strided_kernel<U, Out, Op, N, Sources...>), arguments);
  }

  template <class T>
  static void* address(const T& value) {
    return const_cast<void*>(static_cast<const void*>(&value));
  }
  template <class... Parameters>
  static const void* kernel_address(void (*kernel)(Parameters...)) {
    return reinterpret_cast<const void*>(kernel);
  }

  template <class Source>
  static Source advanced(Source source, std::int64_t offset) {
    source.advance(offset);
    return source;
  }

  void* stream_;
};

}  // namespace gantry::kernels::cuda
