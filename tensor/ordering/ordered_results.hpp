#pragma once

#include <optional>
#include <string_view>

#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// `tensor`, or a 1-D view if it is 0-dim.
[[nodiscard]] inline Tensor at_least_1d(const Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.view({1}) : tensor;
}

// The values (of self's dtype) and indices (i64) that an operation writes: new tensors, or those
// that the caller gave. One of them may be left out.
class OrderedResults {
 public:
  enum class Only { values, indices };

  // New tensors.
  explicit OrderedResults(std::string_view op) : op_(op) {}
  OrderedResults(std::string_view op, Only only) : op_(op), only_(only) {}
  // The caller's tensors. Throws InvalidArgument for an undefined tensor, DeviceMismatchError.
  OrderedResults(std::string_view op, const Tensor& values, const Tensor& indices,
                 const Tensor& self);
  OrderedResults(std::string_view op, Only only, const Tensor& out, const Tensor& self);

  [[nodiscard]] std::string_view op() const { return op_; }

  // Checks the caller's tensors: dtype, shape, no overlap with each other and `self`.
  void check(const Tensor& self, const Shape& shape) const;
  // The same; makes new tensors.
  void prepare(const Tensor& self, const Shape& shape);
  // Lets values() and indices() have `ndim` dims, with size 1 at `axis` if that adds one.
  void keep_dim(int axis, int ndim);
  // For kernels; null data for what is left out.
  [[nodiscard]] TensorRef values() const { return reference(values_view_, values_dtype_); }
  [[nodiscard]] TensorRef indices() const { return reference(indices_view_, DType::i64); }
  // Copies tensors of the shape that values() and indices() have.
  void copy_from(const Tensor& values, const Tensor& indices) const;
  // The tensors of prepare().
  [[nodiscard]] ValuesAndIndices take() const { return results_; }

 private:
  [[nodiscard]] bool has_values() const { return only_ != Only::indices; }
  [[nodiscard]] bool has_indices() const { return only_ != Only::values; }
  [[nodiscard]] static TensorRef reference(const Tensor& view, DType dtype);

  std::string_view op_;
  std::optional<Only> only_;
  bool are_given_ = false;
  ValuesAndIndices results_;
  DType values_dtype_ = DType::f32;
  Tensor values_view_;
  Tensor indices_view_;
};

}  // namespace gantry::detail
