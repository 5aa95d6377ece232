#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <gantry/tensor/tensor.hpp>

namespace gantry::comm {

// Argument checks of the functions of comm.hpp. Each throws before anything changes.

// Returns the devices with explicit indices. Throws: InvalidArgument for an empty list or the CPU.
std::vector<Device> checked_devices(std::string_view op, const std::vector<Device>& devices);

// Throws: InvalidArgument for an undefined tensor. `what` is "argument 'out'"; of tensors in a
// list, "input tensor".
void require_defined(std::string_view op, const Tensor& tensor, std::string_view what);
void require_defined(std::string_view op, std::span<const Tensor> tensors, std::string_view what);

// Throws: InvalidArgument if the list is empty, or one is undefined or not on a device.
void require_device_tensors(std::string_view op, std::span<const Tensor> tensors,
                            std::string_view what);

// Throws: ShapeError if a tensor's shape differs from tensors[0]'s.
void require_equal_shapes(std::string_view op, std::span<const Tensor> tensors,
                          std::string_view what);

// Throws: DTypeError if a tensor's dtype is not `dtype`.
void require_dtype(std::string_view op, std::span<const Tensor> tensors, DType dtype,
                   std::string_view what);

// Throws: ShapeError, DTypeError if a tensor differs from tensors[0].
void require_alike(std::string_view op, std::span<const Tensor> tensors, std::string_view what);

// Throws: InvalidArgument if two tensors share memory.
void require_separate(std::string_view op, std::span<const Tensor> tensors);

// Throws: InvalidArgument if elements of an output overlap, or an output shares memory with an
// input.
void require_writable(std::string_view op, std::span<const Tensor> outputs);
void require_apart(std::string_view op, std::span<const Tensor> outputs,
                   std::span<const Tensor> inputs);

// Throws: InvalidArgument, ShapeError, DTypeError unless `out` can hold a result of this shape and,
// without `allow_cast`, of this dtype.
void require_result(std::string_view op, const Tensor& out, const Shape& shape, DType dtype,
                    bool allow_cast);

// Throws: InvalidArgument if outputs share memory with each other, or with an input that is not the
// output itself. outputs[i] may be inputs[k] if i is k modulo outputs.size().
void require_own_place(std::string_view op, std::span<const Tensor> outputs,
                       std::span<const Tensor> inputs);

// True if the tensor and one of `others` are views of one storage.
bool shares_memory(const Tensor& tensor, std::span<const Tensor> others);

// `dim` of `tensor` counted from the front. Throws: IndexError; ShapeError for tensors without
// dimensions.
int checked_dim(std::string_view op, int dim, const Tensor& tensor);

}  // namespace gantry::comm
