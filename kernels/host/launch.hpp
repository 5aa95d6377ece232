#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/host/host_fma.hpp"
#include "kernels/input.hpp"
#include "kernels/strided.hpp"

namespace gantry::kernels::host {

namespace detail {

// Rows of an input that the compiler can vectorize: dense memory, one value, or an index.
template <class T>
struct DenseRow {
  const T* data;
  ComputeType<T> operator()(std::int64_t i) const { return ElementSource<T>::element(data, i); }
};

template <class C>
struct ConstantRow {
  C value;
  C operator()(std::int64_t) const { return value; }
};

struct CounterRow {
  std::int64_t begin;
  std::int64_t operator()(std::int64_t i) const { return begin + i; }
};

// Ops that are vector code but for rare arguments: op.common(x) is op(x) unless op.is_rare(x).
template <class Op>
concept HasRareArguments = requires(const Op& op) {
  op.is_rare(1.0f);
};

// True if a one-dimensional input is a number or contiguous.
template <class Source>
bool is_line(const Input<Source>& input) {
  if constexpr (!std::is_same_v<Source, Counter>) {
    if (input.source.is_number) return true;
  }
  return input.strides[0] == 1;
}

template <class Out, class Op, class... Rows>
void dense_row(const Op& op, std::int64_t n, Out* out, const Rows&... rows) {
  if constexpr (HasRareArguments<Op>) {
    // A rare argument slows down its block only. The processor fetches the next blocks while it
    // computes a short one.
    constexpr std::int64_t kBlock = 256;
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
      const std::int64_t end = std::min(n, begin + kBlock);
      // Asked first, because `out` may be the input. With a bool the loop would be no vector code.
      std::int32_t any_rare = 0;
      for (std::int64_t i = begin; i < end; ++i) any_rare |= op.is_rare(rows(i)...) ? 1 : 0;
      if (any_rare != 0) {
        for (std::int64_t i = begin; i < end; ++i) out[i] = convert<Out>(op(rows(i)...));
      } else {
        for (std::int64_t i = begin; i < end; ++i) out[i] = convert<Out>(op.common(rows(i)...));
      }
    }
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i] = convert<Out>(op(rows(i)...));
  }
}

template <class Out, class Op, int N, class... Sources, std::size_t... K>
void strided_row(const Op& op, std::int64_t n, Out* out, const std::int64_t (&strides)[N],
                 const std::int64_t (&offsets)[N], const std::tuple<Sources...>& sources,
                 std::index_sequence<K...>) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[offsets[0] + i * strides[0]] =
        convert<Out>(op(std::get<K>(sources).load(offsets[K + 1] + i * strides[K + 1])...));
  }
}

// Rows of an input that are `stride` elements apart.
template <class T>
struct DenseRows {
  const T* data;
  std::int64_t stride;
  DenseRow<T> row(std::int64_t r) const { return {data + r * stride}; }
};
template <class Source>
struct ConstantRows {
  const Source& source;
  std::int64_t offset;
  std::int64_t stride;
  ConstantRow<typename Source::Value> row(std::int64_t r) const {
    return {source.load(offset + r * stride)};
  }
};
struct CounterRows {
  std::int64_t begin;
  std::int64_t stride;
  CounterRow row(std::int64_t r) const { return {begin + r * stride}; }
};

// Resolves the inputs, one after the other, to dense or constant rows and runs the loop over
// `count` rows of `n` elements. `steps`: between the rows. Returns false if an input is neither.
template <class Out, class Op, int N, class... Sources, class... Rows>
bool try_dense_rows(const Op& op, std::int64_t n, std::int64_t count, Out* out,
                    const std::int64_t (&strides)[N], const std::int64_t (&steps)[N],
                    const std::int64_t (&offsets)[N], const std::tuple<Sources...>& sources,
                    const Rows&... rows) {
  constexpr std::size_t k = sizeof...(Rows);
  if constexpr (k == sizeof...(Sources)) {
    Out* to = out + offsets[0];
    for (std::int64_t r = 0; r < count; ++r, to += steps[0]) dense_row(op, n, to, rows.row(r)...);
    return true;
  } else {
    const auto& source = std::get<k>(sources);
    using Source = std::decay_t<decltype(source)>;
    const std::int64_t step = steps[k + 1];
    if constexpr (std::is_same_v<Source, Counter>) {
      if (strides[k + 1] != 1) return false;
      return try_dense_rows(op, n, count, out, strides, steps, offsets, sources, rows...,
                            CounterRows{source.begin + offsets[k + 1], step});
    } else {
      if (source.is_number || strides[k + 1] == 0) {
        return try_dense_rows(op, n, count, out, strides, steps, offsets, sources, rows...,
                              ConstantRows<Source>{source, offsets[k + 1], step});
      }
      if (strides[k + 1] != 1) return false;
      return try_dense_rows(
          op, n, count, out, strides, steps, offsets, sources, rows...,
          DenseRows<std::remove_const_t<std::remove_pointer_t<decltype(source.data)>>>{
              source.data + offsets[k + 1], step});
    }
  }
}

}  // namespace detail

// The elementwise loop on the host, for CPU tensors and simulated devices.
//
// out[i] = convert(op(in[i]...)) on the calling thread. Out is out's element type or a raw word of
// its size. `name` is for errors of the GPU loop.
struct Loop {
  // The dims of a plan for N operands, in increasing order of the output's stride.
  template <int N>
  struct Rows {
    int ndim;
    std::int64_t numel;
    const std::int64_t* sizes;
    const std::int64_t (*strides)[N];
  };

  // All rows. kDense: with a loop for dense rows.
  template <bool kDense, class Out, class Op, int N, class... Sources>
  static void run_rows(const Op& op, const Rows<N>& rows, Out* data,
                       const std::tuple<Sources...>& sources) {
    static constexpr std::int64_t kNoSteps[N] = {};
    const std::int64_t row = rows.sizes[0];
    const std::int64_t together = rows.ndim > 1 ? rows.sizes[1] : 1;
    const auto& steps = rows.ndim > 1 ? rows.strides[1] : kNoSteps;
    std::int64_t index[kMaxDims] = {};
    std::int64_t offsets[N] = {};
    for (std::int64_t done = 0; done < rows.numel; done += row * together) {
      bool dense = false;
      if constexpr (kDense) {
        dense = rows.strides[0][0] == 1 &&
                detail::try_dense_rows(op, row, together, data, rows.strides[0], steps, offsets,
                                       sources);
      }
      for (std::int64_t r = 0; r < together && !dense; ++r) {
        std::int64_t at[N];
        for (int k = 0; k < N; ++k) at[k] = offsets[k] + r * steps[k];
        detail::strided_row(op, row, data, rows.strides[0], at, sources,
                            std::index_sequence_for<Sources...>{});
      }
      for (int dim = 2; dim < rows.ndim; ++dim) {
        for (int k = 0; k < N; ++k) offsets[k] += rows.strides[dim][k];
        if (++index[dim] < rows.sizes[dim]) break;
        for (int k = 0; k < N; ++k) offsets[k] -= rows.strides[dim][k] * rows.sizes[dim];
        index[dim] = 0;
      }
    }
  }

  template <class Out, class Op, int N, class... Sources>
  static void run_rows_fast(const Op& op, const Rows<N>& rows, Out* data,
                            const std::tuple<Sources...>& sources) {
    constexpr bool is_vector_code = !SlowOp<Op> || (WideOp<Op> && !std::is_same_v<Out, double>);
    if constexpr (is_vector_code) {
      with_fma([&] { run_rows<true>(op, rows, data, sources); });
    } else {
      run_rows<false>(op, rows, data, sources);
    }
  }

  template <class Out, class Op, class... Sources>
  void run(const char* /*name*/, const Op& op, const TensorRef& out,
           const Input<Sources>&... inputs) const {
    constexpr int N = 1 + sizeof...(Sources);
    auto* data = static_cast<Out*>(out.data);
    if (out.ndim == 1 && out.strides[0] == 1 && (detail::is_line(inputs) && ...)) {
      return run_line(op, out.sizes[0], data, inputs.source...);
    }
    const std::int64_t* const strides[N] = {out.strides, inputs.strides...};
    const std::tuple<Sources...> sources{inputs.source...};
    const StridedPlan<N> plan = make_plan<N>(out.ndim, out.sizes, strides);
    run_rows_fast(op, Rows<N>{plan.ndim, plan.numel, plan.sizes, plan.strides}, data, sources);
  }

  // run() for `numel` contiguous elements of every operand that is no number.
  template <class Out, class Op, class... Sources>
  static void run_line(const Op& op, std::int64_t numel, Out* data, const Sources&... sources) {
    constexpr int N = 1 + sizeof...(Sources);
    std::int64_t strides[1][N];
    for (std::int64_t& stride : strides[0]) stride = 1;
    run_rows_fast(op, Rows<N>{1, numel, &numel, strides}, data, std::tuple<Sources...>{sources...});
  }

  // out[i] = convert(op(i)), with i in row-major order. op.block(b) computes the Op::kSize elements
  // from b * Op::kSize.
  template <class Out, class Op>
  void run_blocks(const char* name, const Op& op, const TensorRef& out) const {
    if (!out.is_contiguous()) {
      run<Out>(name, op, out, index_input(out));
      return;
    }
    run_block_range(op, static_cast<Out*>(out.data), 0, out.numel());
  }

  // data[i] = convert(op(first + i)) for `n` elements, by blocks as in run_blocks.
  template <class Out, class Op>
  static void run_block_range(const Op& op, Out* data, std::int64_t first, std::int64_t n) {
    with_fma([=] {
      std::int64_t i = 0;
      const auto draw_within = [&](std::int64_t skipped) {
        const auto block = op.block(static_cast<std::uint64_t>((first + i) / Op::kSize));
        for (std::int64_t k = skipped; k < Op::kSize && i < n; ++k, ++i) {
          data[i] = drawn<Out>(block.values[k]);
        }
      };
      if (first % Op::kSize != 0 && n > 0) draw_within(first % Op::kSize);
      // Several blocks side by side are vector code.
      constexpr int kBlocks = 64;
      constexpr std::int64_t kStep = kBlocks * Op::kSize;
      for (; i + kStep <= n; i += kStep) {
        typename Op::Value values[Op::kSize][kBlocks];
        for (int k = 0; k < kBlocks; ++k) {
          const auto block = op.block(static_cast<std::uint64_t>((first + i) / Op::kSize + k));
          for (int v = 0; v < Op::kSize; ++v) values[v][k] = block.values[v];
        }
        for (int k = 0; k < kBlocks; ++k) {
          for (int v = 0; v < Op::kSize; ++v) {
            data[i + k * Op::kSize + v] = drawn<Out>(values[v][k]);
          }
        }
      }
      while (i < n) draw_within(0);
    });
  }

  // out[i] = op.result(draw i, in[i]), where op.block(b) gives the Op::kSize draws from
  // b * Op::kSize. Both operands are contiguous.
  template <class Out, class Op, class Source>
  void run_drawn(const char* /*name*/, const Op& op, const TensorRef& out,
                 const Source& source) const {
    auto* data = static_cast<Out*>(out.data);
    const std::int64_t n = out.numel();
    for (std::int64_t first = 0; first < n; first += Op::kSize) {
      const auto draws = op.block(static_cast<std::uint64_t>(first / Op::kSize));
      const std::int64_t count = n - first < Op::kSize ? n - first : Op::kSize;
      for (std::int64_t i = 0; i < count; ++i)
        data[first + i] = op.result(draws.values[i], source.load(first + i));
    }
  }
};

}  // namespace gantry::kernels::host
