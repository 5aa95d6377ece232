#pragma once

#include <cstdint>

#include <gantry/core/macros.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/convert.hpp"
#include "kernels/operand.hpp"

namespace gantry::kernels {

namespace detail {

// Throws DTypeError: op number `op` of kernel family `family` does not support `dtype`.
//
// .cu files throw through such functions, because they cannot include error.hpp: nvcc 13.0 aborts
// on inherited constructors with a std::source_location default argument.
[[noreturn]] void throw_undefined(const char* family, int op, DType dtype);

}  // namespace detail

// Calls f(TypeTag<T>{}) with the C++ type of a floating dtype.
template <class F>
void dispatch_floating(const char* family, DType dtype, const F& f) {
  dispatch(dtype, [&](auto tag) {
    if constexpr (is_floating_point(dtype_of<typename decltype(tag)::type>)) {
      f(tag);
    } else {
      detail::throw_undefined(family, 0, dtype);
    }
  });
}

// `V` consecutive values of one operand.
template <class C, int V>
struct Pack {
  C values[V];
};

// `V` stored elements, aligned for one vector access.
template <class T, int V>
struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) StoredPack {
  T values[V];
};

// The source of an operand's elements of type T: memory or a number.
template <class T>
struct ElementSource {
  using Value = ComputeType<T>;

  const T* data;
  Value number;
  bool is_number;

  GANTRY_HD Value load(std::int64_t offset) const {
    return is_number ? number : element(data, offset);
  }
  // The elements at offset … offset + V - 1. Precondition: `data + offset` is aligned to the pack.
  template <int V>
  GANTRY_HD Pack<Value, V> load_pack(std::int64_t offset) const {
    Pack<Value, V> result;
    if (is_number) {
      for (int i = 0; i < V; ++i) result.values[i] = number;
    } else {
      const auto stored = *reinterpret_cast<const StoredPack<Stored, V>*>(
          reinterpret_cast<const Stored*>(data) + offset);
      for (int i = 0; i < V; ++i) result.values[i] = value_of(stored.values[i]);
    }
    return result;
  }
  void advance(std::int64_t offset) {
    if (!is_number) data += offset;
  }
  bool is_aligned(std::size_t elements) const {
    const std::size_t bytes = sizeof(T) * elements;
    return is_number || reinterpret_cast<std::uintptr_t>(data) % (bytes < 16 ? bytes : 16) == 0;
  }

  GANTRY_HD static Value element(const T* data, std::int64_t offset) {
    return value_of(reinterpret_cast<const Stored*>(data)[offset]);
  }

 private:
  // Bool memory is read as bytes: a byte other than 0 and 1 is not a valid bool.
  using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;

  GANTRY_HD static Value value_of(const Stored& stored) {
    if constexpr (std::is_same_v<T, bool>) {
      return stored != 0;
    } else {
      return static_cast<Value>(stored);
    }
  }
};

// An index source: the element at an offset is `begin` plus the offset.
struct Counter {
  using Value = std::int64_t;

  std::int64_t begin;

  GANTRY_HD Value load(std::int64_t offset) const { return begin + offset; }
  template <int V>
  GANTRY_HD Pack<Value, V> load_pack(std::int64_t offset) const {
    Pack<Value, V> result;
    for (int i = 0; i < V; ++i) result.values[i] = begin + offset + i;
    return result;
  }
  void advance(std::int64_t offset) { begin += offset; }
  bool is_aligned(std::size_t) const { return true; }
};

// Ops with `kSlow` have no specialized loop for dense operands, because vector instructions and
// wide accesses would not speed them up.
template <class Op>
concept SlowOp = Op::kSlow;
// Slow ops whose f32 version gains from it nevertheless.
template <class Op>
concept WideOp = Op::kWide;

// A drawn number as an element of Out. Numbers of Out's own type are drawn as they are stored.
template <class Out, class C>
GANTRY_HD Out drawn(C value) {
  if constexpr (std::is_same_v<Out, C>) {
    return value;
  } else {
    return convert<Out>(value);
  }
}

// A source and its strides, in the output's dim order.
template <class Source>
struct Input {
  Source source;
  std::int64_t strides[kMaxDims] = {};
};

// `tensor` as a source of elements of type T: its own type, or raw words of the same size.
template <class T>
Input<ElementSource<T>> tensor_input(const TensorRef& tensor) {
  Input<ElementSource<T>> result{{static_cast<const T*>(tensor.data), {}, false}, {}};
  for (int dim = 0; dim < tensor.ndim; ++dim) result.strides[dim] = tensor.strides[dim];
  return result;
}

template <class T>
Input<ElementSource<T>> number_input(ComputeType<T> number) {
  return {{nullptr, number, true}, {}};
}

template <class T>
Input<ElementSource<T>> operand_input(const Operand& operand) {
  return operand.is_number ? number_input<T>(number_as<T>(operand.number))
                           : tensor_input<T>(operand.tensor);
}

// operand_input for operations that select or compare. The number is first converted to T, like the
// element of a 0-dim tensor. Integers wrap, so a u8 of 255 equals -1. Floating numbers are rounded,
// so an f16 of 0.1 equals 0.1.
template <class T>
Input<ElementSource<T>> element_input(const Operand& operand) {
  if (!operand.is_number) return tensor_input<T>(operand.tensor);
  const Scalar& number = operand.number;
  const T element = number.category() == DTypeCategory::floating
                        ? convert<T>(number.to<double>())
                        : convert<T>(number.to<std::int64_t>());
  return number_input<T>(static_cast<ComputeType<T>>(element));
}

// A source of the row-major index of each element of `out`, counted from `first`.
inline Input<Counter> index_input(const TensorRef& out, std::int64_t first = 0) {
  Input<Counter> result{{first}, {}};
  std::int64_t stride = 1;
  for (int dim = out.ndim - 1; dim >= 0; --dim) {
    result.strides[dim] = stride;
    stride *= out.sizes[dim];
  }
  return result;
}

}  // namespace gantry::kernels
