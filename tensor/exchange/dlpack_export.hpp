// Tensors as DLPack's structs.
#pragma once

#include <gantry/tensor/dlpack.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// DLPack's category of a dtype.
[[nodiscard]] dlpack::TypeCode type_code(DType dtype);

// The tensor that to_dlpack() exported; undefined for the arrays of other producers.
[[nodiscard]] Tensor exported_tensor(const dlpack::ManagedVersioned& fields);
[[nodiscard]] Tensor exported_tensor(const dlpack::Managed& fields);

}  // namespace gantry::detail
