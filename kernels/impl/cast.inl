// Casts from and to dtypes that do not compute. copy.inl has the others.
#pragma once

#include "kernels/impl/copy.inl"

namespace gantry::kernels {

// Note [Casts of data]
// Kernels for every pair of fifteen dtypes would be more than twice the kernels for the ten that
// compute. Integers wrap, so a cast between them that adds no bits is one between their signed
// twins, and has a kernel already. Casts to wider types, from and to floating types have kernels of
// their own, in a file of their own.

// Replaces u16, u32 and u64 by their signed twins where the cast has the same bits.
inline void use_signed_twins(TensorRef& out, TensorRef& in) {
  if (is_floating_point(out.dtype) || is_floating_point(in.dtype)) return;
  out.dtype = signed_twin(out.dtype);
  const bool widens = out.dtype != DType::bool_ && element_size(out.dtype) > element_size(in.dtype);
  if (!widens) in.dtype = signed_twin(in.dtype);
}

// True if a cast has a kernel here, once use_signed_twins() has been called.
template <class To, class From>
constexpr bool is_data_cast() {
  constexpr DType kTo = dtype_of<To>;
  constexpr DType kFrom = dtype_of<From>;
  if (kTo == kFrom || (computes(kTo) && computes(kFrom))) return false;
  if (is_floating_point(kTo) || is_floating_point(kFrom)) return true;
  return computes(kTo) && kTo != DType::bool_ && sizeof(To) > sizeof(From);
}

// Precondition: at least one dtype does not compute, and use_signed_twins() has been called.
template <class Loop>
void run_cast(const Loop& loop, const TensorRef& out, const TensorRef& in) {
  dispatch_any(out.dtype, [&](auto out_tag) {
    using To = typename decltype(out_tag)::type;
    dispatch_any(in.dtype, [&](auto in_tag) {
      using From = typename decltype(in_tag)::type;
      if constexpr (is_data_cast<To, From>()) {
        loop.template run<To>("copy", functors::Identity{}, out, tensor_input<From>(in));
      }
    });
  });
}

}  // namespace gantry::kernels
