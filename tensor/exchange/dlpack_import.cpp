#include <fmt/format.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/tensor/dlpack.hpp>

#include "tensor/check.hpp"
#include "tensor/exchange/dlpack_export.hpp"
#include "tensor/layout/stride_algebra.hpp"

namespace gantry {

namespace {

using dlpack::MemoryKind;
using dlpack::TypeCode;

// The array's owner. The last copy calls the deleter.
using Owner = std::shared_ptr<void>;

template <class Handle>
Owner own(Handle* exported) {
  if (exported == nullptr) {
    throw InvalidArgument("from_dlpack: expected an exported array, but got a null pointer");
  }
  return Owner(exported, [](void* pointer) {
    auto* const handle = static_cast<Handle*>(pointer);
    if (const auto deleter = dlpack::fields(*handle).deleter; deleter != nullptr) deleter(handle);
  });
}

DType dtype_of_array(const dlpack::Array& array) {
  const auto [code, bits, lanes] = array.dtype;
  for (int i = 0; i < kDTypeCount && lanes == 1; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (code == detail::type_code(dtype) && bits == 8 * element_size(dtype)) return dtype;
  }
  throw DTypeError(fmt::format(
      "from_dlpack: expected elements of a dtype of gantry, but got {}DLPack code {} with {} bits "
      "and {} lanes",
      code == TypeCode::complex ? "complex numbers, " : "", static_cast<int>(code), bits, lanes));
}

Device device_of_array(const dlpack::Array& array) {
  const auto [kind, index] = array.device;
  if (kind == MemoryKind::cpu || kind == MemoryKind::cuda_host) return Device::cpu();
  const bool is_simulated = platform() == Platform::simulated;
  if (kind != (is_simulated ? MemoryKind::extension : MemoryKind::cuda)) {
    throw NotSupported(fmt::format(
        "from_dlpack: expected memory of the CPU (1, 3) or of {}, but got DLPack "
        "device type {}",
        is_simulated ? "a simulated device (12)" : "a GPU (2)", static_cast<int>(kind)));
  }
  if (index < 0) {
    throw InvalidArgument(fmt::format("from_dlpack: expected a device index, but got {}", index));
  }
  return Device::cuda(index).resolved();
}

Dims dims_of(const dlpack::Array& array, const std::int64_t* values, const char* what) {
  if (array.ndim < 0 || array.ndim > kMaxDims) {
    throw ShapeError(
        fmt::format("from_dlpack: expected 0 to {} dims, but got {}", kMaxDims, array.ndim));
  }
  if (values == nullptr && array.ndim > 0) {
    throw InvalidArgument(fmt::format(
        "from_dlpack: expected {} for {} dims, but got a null pointer", what, array.ndim));
  }
  return std::span<const std::int64_t>(values, static_cast<std::size_t>(array.ndim));
}

// A kernel that accesses a wrong address would corrupt the CUDA context.
void check_address(const void* data, Device device) {
  if (device.is_cpu()) return;
  const PointerInfo info = driver().pointer_info(data);
  if (info.kind == PointerKind::device && info.device == device.index) return;
  throw InvalidArgument(
      fmt::format("from_dlpack: expected memory of {}, but got {}", device.str(),
                  info.kind == PointerKind::device ? "memory of " + Device::cuda(info.device).str()
                                                   : std::string("a host address")),
      device.str());
}

void* first_element(const dlpack::Array& array, DType dtype, Device device) {
  if (array.data == nullptr) {
    throw InvalidArgument("from_dlpack: expected memory for the elements, but got a null pointer");
  }
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(array.data) + array.byte_offset;
  if (address < array.byte_offset) {
    throw InvalidArgument(
        fmt::format("from_dlpack: expected an offset within the memory, but got "
                    "{} bytes",
                    array.byte_offset));
  }
  if (address % element_size(dtype) != 0) {
    throw InvalidArgument(
        fmt::format("from_dlpack: expected elements at a multiple of {} bytes, "
                    "but got address {:#x}",
                    element_size(dtype), address));
  }
  auto* const data = reinterpret_cast<void*>(address);
  check_address(data, device);
  return data;
}

Tensor tensor_on(const dlpack::Array& array, Owner owner) {
  const DType dtype = dtype_of_array(array);
  const Device device = device_of_array(array);
  const Shape sizes = dims_of(array, array.shape, "a shape");
  detail::check_sizes("from_dlpack", sizes);
  static_cast<void>(detail::checked_numel("from_dlpack", sizes));
  const Dims strides = array.strides == nullptr ? detail::contiguous_strides(sizes)
                                                : dims_of(array, array.strides, "strides");
  detail::check_layout("from_dlpack", sizes, strides, 0, dtype,
                       static_cast<std::size_t>(INT64_MAX));
  const std::int64_t extent = detail::checked_extent("from_dlpack", sizes, strides, dtype);
  void* const data = extent == 0 ? nullptr : first_element(array, dtype, device);
  // The owner leaves with the function, so it needs no call.
  const Storage storage =
      Storage::foreign(data, static_cast<std::size_t>(extent) * element_size(dtype), device,
                       [owner = std::move(owner)](void*) {});
  return Tensor::from_storage(storage, sizes, strides, 0, dtype);
}

void check_version(const dlpack::ManagedVersioned& fields) {
  if (fields.version.major == dlpack::kVersion.major) return;
  throw NotSupported(fmt::format("from_dlpack: expected an array of DLPack {}.x, but got {}.{}",
                                 dlpack::kVersion.major, fields.version.major,
                                 fields.version.minor));
}
void check_version(const dlpack::Managed&) {}

bool is_read_only(const dlpack::ManagedVersioned& fields) {
  return (fields.flags & dlpack::kReadOnly) != 0;
}
bool is_read_only(const dlpack::Managed&) { return false; }

template <class Handle>
Tensor import_array(Handle* exported, const FromDlpackOptions& how) {
  Owner owner = own(exported);
  const auto& fields = dlpack::fields(*exported);
  check_version(fields);
  if (is_read_only(fields) && !how.copy) {
    throw InvalidArgument(
        "from_dlpack: expected memory that may be written, but got a read-only array; pass "
        "{.copy = true}");
  }
  Tensor tensor = detail::exported_tensor(fields);
  if (!tensor.defined()) tensor = tensor_on(fields.dl_tensor, owner);
  if (!how.copy) return tensor;
  const Tensor copy = tensor.clone();
  if (copy.is_cuda()) Stream::current(copy.device()).synchronize();
  return copy;
}

}  // namespace

Tensor from_dlpack(DLManagedTensorVersioned* exported, const FromDlpackOptions& how) {
  return import_array(exported, how);
}

Tensor from_dlpack(DLManagedTensor* exported, const FromDlpackOptions& how) {
  return import_array(exported, how);
}

}  // namespace gantry
