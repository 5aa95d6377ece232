#pragma once

#include <cstdint>

#include <gantry/core/dtype.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/strided_index.hpp"

namespace gantry::kernels {

// The lines of a tensor along one dim: line i begins at data + lines.offset(i) and its elements lie
// `stride` apart. A POD.
struct Lines {
  void* data = nullptr;
  StridedIndex lines;
  std::int64_t stride = 0;
};

// What operations along one dim execute. A POD.
struct LinePlan {
  DType dtype = DType::f32;
  std::int64_t count = 0;   // lines
  std::int64_t length = 0;  // elements per line of `in`
  Lines in;
  Lines out;  // arg_reduce: the values; no data if they are not wanted

  // Neighbouring lines lie closer together than the elements of one line.
  [[nodiscard]] bool is_column_wise() const {
    const std::int32_t last = in.lines.ndim - 1;
    const std::int64_t between = last < 0 ? INT64_MAX : in.lines.strides[last];
    return (between < 0 ? -between : between) < (in.stride < 0 ? -in.stride : in.stride);
  }
};

[[nodiscard]] LinePlan make_line_plan(const TensorRef& out, const TensorRef& in, int dim);

// The lines of `tensor` in the order in which make_line_plan(…, in, dim) lists those of `in`.
[[nodiscard]] Lines lines_like(const TensorRef& tensor, const TensorRef& in, int dim);

namespace host {
void arg_reduce(bool largest, const LinePlan& plan, const Lines& indices);
void cumulate(bool product, const LinePlan& plan);
void softmax(bool logarithm, const LinePlan& plan);
}  // namespace host

namespace cuda {
// Elements of a line that one block of arg_reduce looks at.
inline constexpr std::int64_t kArgPart = 8192;

// `candidates`: room for one i64 per line and part of kArgPart elements, if a line has several.
void arg_reduce(void* stream, bool largest, const LinePlan& plan, const Lines& indices,
                std::int64_t* candidates);
void cumulate(void* stream, bool product, const LinePlan& plan);
void softmax(void* stream, bool logarithm, const LinePlan& plan);
}  // namespace cuda

}  // namespace gantry::kernels
