#include "kernels/layout/cuda_copy.hpp"

#include "kernels/cuda/elementwise/loop.cuh"
#include "kernels/cuda/layout/transpose.cuh"
#include "kernels/impl/copy.inl"

namespace gantry::kernels::cuda {

namespace {

// Up to here a kernel moves aligned bytes as quickly as cudaMemcpyAsync, which takes the host 0.8
// us longer (H100: 5.1 and 4.3 us).
constexpr std::size_t kKernelBytes = 16 << 20;

bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

// Calls f(TypeTag<T>{}) for the dtypes that transposed casts are made for.
template <class F>
void dispatch_cast(DType dtype, const F& f) {
  if (dtype == DType::f32) f(TypeTag<float>{});
  if (dtype == DType::f16) f(TypeTag<float16>{});
  if (dtype == DType::bf16) f(TypeTag<bfloat16>{});
}

// Keeps x or gives 0, by the element's index in dense matrices of fewer than 2^31 elements in all.
template <class C>
struct DenseTriangle {
  bool lower;
  std::int64_t diagonal;
  FastDivisor columns;
  FastDivisor rows;
  __device__ C operator()(std::int64_t index, C x) const {
    const auto at = static_cast<std::uint32_t>(index);
    const std::uint32_t line = columns.divide(at);
    const std::uint32_t row = line - rows.divide(line) * rows.divisor;
    const std::int64_t distance =
        static_cast<std::int64_t>(at - line * columns.divisor) - static_cast<std::int64_t>(row);
    return (lower ? distance <= diagonal : distance >= diagonal) ? x : C(0);
  }
};

// Writes the triangle of dense matrices and returns true; else does nothing.
bool triangle_of_dense(void* stream, const TensorRef& out, const TensorRef& in, bool lower,
                       std::int64_t diagonal) {
  const std::int64_t numel = out.numel();
  if (numel == 0 || numel >= std::int64_t{1} << 31 || !out.is_contiguous() || !in.is_contiguous()) {
    return false;
  }
  const FastDivisor columns(static_cast<std::uint32_t>(out.sizes[out.ndim - 1]));
  const FastDivisor rows(static_cast<std::uint32_t>(out.sizes[out.ndim - 2]));
  dispatch_words(out.dtype, [&](auto tag) {
    using W = typename decltype(tag)::type;
    Loop(stream).run<W>("triangle", DenseTriangle<ComputeType<W>>{lower, diagonal, columns, rows},
                        out, index_input(out), tensor_input<W>(in));
  });
  return true;
}

// Copies a transposition and returns true; else, and between most dtypes, does nothing.
bool copy_transposed(void* stream, const TensorRef& out, const TensorRef& in) {
  if (out.ndim < 2) return false;
  TransposePlan plan;
  if (!make_transpose_plan(make_plan<2>(out.ndim, out.sizes, {out.strides, in.strides}), plan)) {
    return false;
  }
  bool launched = false;
  if (out.dtype == in.dtype) {
    dispatch_words(out.dtype, [&](auto tag) {
      using W = typename decltype(tag)::type;
      launched =
          launch_transpose(stream, plan, static_cast<W*>(out.data), static_cast<const W*>(in.data));
    });
    return launched;
  }
  dispatch_cast(out.dtype, [&](auto out_tag) {
    using To = typename decltype(out_tag)::type;
    dispatch_cast(in.dtype, [&](auto in_tag) {
      using From = typename decltype(in_tag)::type;
      if constexpr (!std::is_same_v<To, From>) {
        launched = launch_transpose(stream, plan, static_cast<To*>(out.data),
                                    static_cast<const From*>(in.data));
      }
    });
  });
  return launched;
}

}  // namespace

void copy(void* stream, const TensorRef& out, const TensorRef& in) {
  const std::size_t bytes = static_cast<std::size_t>(out.numel()) * element_size(out.dtype);
  const bool same_bytes = out.dtype == in.dtype && out.is_contiguous() && in.is_contiguous();
  if (same_bytes && (bytes > kKernelBytes || !is_aligned(out.data) || !is_aligned(in.data))) {
    const cudaError_t status = cudaMemcpyAsync(out.data, in.data, bytes, cudaMemcpyDefault,
                                               static_cast<cudaStream_t>(stream));
    if (status != cudaSuccess) {
      (void)cudaGetLastError();
      throw_launch_error("copy", stream, status);
    }
    return;
  }
  if (!same_bytes && copy_transposed(stream, out, in)) return;
  if (out.dtype != in.dtype && (!computes(out.dtype) || !computes(in.dtype))) {
    return cast(stream, out, in);
  }
  run_copy(Loop(stream), out, in);
}

void fill(void* stream, const TensorRef& out, const Scalar& value) {
  run_fill(Loop(stream), out, value);
}

void arange(void* stream, const TensorRef& out, const Scalar& start, const Scalar& step,
            std::int64_t first) {
  run_arange(Loop(stream), out, start, step, first);
}

void triangle(void* stream, const TensorRef& out, const TensorRef& in, bool lower,
              std::int64_t diagonal) {
  if (triangle_of_dense(stream, out, in, lower, diagonal)) return;
  run_triangle(Loop(stream), out, in, lower, diagonal);
}

}  // namespace gantry::kernels::cuda
