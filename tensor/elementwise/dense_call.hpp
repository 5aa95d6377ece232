#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <gantry/tensor/tensor.hpp>

#include "kernels/direct_call.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "tensor/impl/tensor_impl.hpp"

namespace gantry::detail {

// An elementwise operation on contiguous CPU tensors of one shape and of one dtype that computes,
// and numbers that keep the dtype, while nothing watches operations.
//
// The checks of an ElementwisePlan hold there, and would cost more than the elements of a small
// tensor. Use: construct, ask fits(), begin(), run the kernel on the calling thread.
class DenseCall {
 public:
  // `other`: the second operand; null if there is none.
  explicit DenseCall(const Tensor& self, const Operand* other = nullptr) {
    if (!kernels::is_direct_call(kernels::Target::cpu())) return;
    self_ = dense_cpu_elements(self);
    fits_ = self_.data != nullptr && computes(self_.dtype);
    if (!fits_ || other == nullptr) return;
    if (other->is_tensor()) {
      other_ = dense_cpu_elements(other->tensor());
      fits_ = other_.dtype == self_.dtype && has_shape_of_self(other_);
    } else {
      fits_ = other->number().category() <= category(self_.dtype);
    }
  }

  // True if the operands are as above, and `out` is null or such a tensor of dtype `result`, an
  // operand or apart from both.
  [[nodiscard]] bool fits(const Tensor* out, DType result) {
    if (!fits_) return false;
    dtype_ = result;
    if (out == nullptr) return true;
    const DenseElements elements = dense_cpu_elements(*out);
    output_ = elements.data;
    return takes(elements, result);
  }
  // A new tensor for the result, if fits() had no `out`; else an undefined one. Precondition:
  // fits().
  [[nodiscard]] Tensor begin() {
    if (output_ != nullptr) return {};
    const std::size_t bytes = static_cast<std::size_t>(self_.numel) * element_size(dtype_);
    Storage storage = Storage::allocate(bytes, Device::cpu(), false);
    output_ = storage.data();
    return make_contiguous(std::move(storage), *self_.sizes, self_.numel, dtype_);
  }

  // The dtype of the operands.
  DType dtype() const { return self_.dtype; }
  std::int64_t numel() const { return self_.numel; }
  // The elements of the operands and, from begin() on, of the result: as memory, or as arrays of
  // one dim.
  const void* self_data() const { return self_.data; }
  const void* other_data() const { return other_.data; }
  void* output_data() const { return output_; }
  TensorRef self() const { return line(self_.data, self_.dtype); }
  kernels::Operand other(const Operand& given) const {
    if (!given.is_tensor()) return given.number();
    return line(other_.data, other_.dtype);
  }
  TensorRef output() const { return line(output_, dtype_); }

 private:
  bool has_shape_of_self(const DenseElements& elements) const {
    if (elements.data == nullptr || elements.numel != self_.numel) return false;
    const Shape& a = *elements.sizes;
    const Shape& b = *self_.sizes;
    if (a.size() != b.size()) return false;
    for (int d = 0; d < a.size(); ++d) {
      if (a[d] != b[d]) return false;
    }
    return true;
  }
  bool takes(const DenseElements& out, DType result) const {
    return out.dtype == result && has_shape_of_self(out) && is_same_or_apart(out, self_) &&
           (other_.data == nullptr || is_same_or_apart(out, other_));
  }
  // True if no element of one is a different element of the other. Both have equally many.
  static bool is_same_or_apart(const DenseElements& a, const DenseElements& b) {
    const auto distance = static_cast<std::byte*>(a.data) - static_cast<std::byte*>(b.data);
    if (distance == 0) return a.dtype == b.dtype;
    const auto bytes_of = [](const DenseElements& elements) {
      return elements.numel * static_cast<std::int64_t>(element_size(elements.dtype));
    };
    return distance >= bytes_of(b) || -distance >= bytes_of(a);
  }
  TensorRef line(void* data, DType dtype) const {
    TensorRef ref;
    ref.data = data;
    ref.dtype = dtype;
    ref.ndim = 1;
    ref.sizes[0] = self_.numel;
    ref.strides[0] = 1;
    return ref;
  }

  bool fits_ = false;
  DenseElements self_;
  DenseElements other_;  // without data if there is no second tensor
  void* output_ = nullptr;
  DType dtype_ = DType::f32;
};

}  // namespace gantry::detail
