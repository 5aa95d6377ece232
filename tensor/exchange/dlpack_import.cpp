#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/tensor/dlpack.hpp>
#include <gantry/tensor/factories.hpp>

#include "kernels/layout/copy.hpp"
#include "kernels/op_scope.hpp"
#include "memory/policy/active_pool.hpp"
#include "tensor/check.hpp"
#include "tensor/exchange/dlpack_export.hpp"
#include "tensor/impl/stride_algebra.hpp"
#include "tensor/target_of.hpp"

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
    const memory::NoActivePool scope;
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

// A foreign array, checked.
struct Layout {
  DType dtype;
  Device device;
  Shape sizes;
  Dims strides;
  std::int64_t numel = 0;
  std::uintptr_t address = 0;  // of the first element, if there is one
};

// The strides of an array. Those of dims that no element leaves mean nothing, whatever they are.
Dims strides_of(const dlpack::Array& array, const Shape& sizes, std::int64_t numel) {
  const Dims dense = detail::contiguous_strides(sizes);
  if (array.strides == nullptr) return dense;
  Dims strides = dims_of(array, array.strides, "strides");
  for (int d = 0; d < sizes.size(); ++d) {
    if (strides[d] < 0 && (sizes[d] == 1 || numel == 0)) strides[d] = dense[d];
  }
  return strides;
}

std::uintptr_t first_element(const dlpack::Array& array) {
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
  return address;
}

Layout layout_of(const dlpack::Array& array) {
  Layout layout;
  layout.dtype = dtype_of_array(array);
  layout.device = device_of_array(array);
  layout.sizes = dims_of(array, array.shape, "a shape");
  detail::check_sizes("from_dlpack", layout.sizes);
  layout.numel = detail::checked_numel("from_dlpack", layout.sizes);
  layout.strides = strides_of(array, layout.sizes, layout.numel);
  if (layout.numel > 0) layout.address = first_element(array);
  return layout;
}

void check_strides(const Dims& strides) {
  for (const std::int64_t stride : strides) {
    if (stride >= 0) continue;
    throw ShapeError(
        fmt::format("from_dlpack: Negative strides are not supported at the moment, got strides: "
                    "{}; pass {{.copy = true}}",
                    strides.str()));
  }
}

Tensor share(const Layout& layout, Owner owner) {
  const auto& [dtype, device, sizes, strides, numel, address] = layout;
  check_strides(strides);
  detail::check_layout("from_dlpack", sizes, strides, 0, dtype,
                       static_cast<std::size_t>(INT64_MAX));
  const std::int64_t extent = detail::checked_extent("from_dlpack", sizes, strides, dtype);
  if (address % element_size(dtype) != 0) {
    throw InvalidArgument(
        fmt::format("from_dlpack: expected elements at a multiple of {} bytes, but got address "
                    "{:#x}; pass {{.copy = true}}",
                    element_size(dtype), address));
  }
  auto* const data = reinterpret_cast<void*>(address);
  if (extent > 0) check_address(data, device);
  // The owner leaves with the function, so it needs no call.
  const Storage storage =
      Storage::foreign(data, static_cast<std::size_t>(extent) * element_size(dtype), device,
                       [owner = std::move(owner)](void*) {});
  return Tensor::from_storage(storage, sizes, strides, 0, dtype);
}

// True if the array is the tensor that to_dlpack() exported. A consumer may change the fields.
bool is_unchanged(const Layout& layout, const Tensor& exported) {
  return layout.dtype == exported.dtype() && layout.device == exported.device() &&
         layout.sizes == exported.sizes() &&
         (layout.numel == 0 ||
          (layout.strides == exported.strides() &&
           layout.address == reinterpret_cast<std::uintptr_t>(exported.data())));
}

// The array of an export, as a view of the exported tensor's memory. Undefined if it has other
// memory.
Tensor view_of(const Tensor& exported, const Layout& layout) {
  if (is_unchanged(layout, exported)) return exported;
  const Storage& storage = exported.storage();
  const auto begin = reinterpret_cast<std::uintptr_t>(storage.data());
  const std::uintptr_t offset = layout.address - begin;
  const std::size_t width = element_size(layout.dtype);
  if (layout.numel == 0 || layout.device != exported.device() || layout.address < begin ||
      offset >= storage.bytes() || offset % width != 0) {
    return {};
  }
  check_strides(layout.strides);
  const auto first = static_cast<std::int64_t>(offset / width);
  detail::check_layout("from_dlpack", layout.sizes, layout.strides, first, layout.dtype,
                       storage.bytes());
  return Tensor::from_storage(storage, layout.sizes, layout.strides, first, layout.dtype);
}

// Throws unless all elements are at addresses of `layout.device`.
void check_reach(const Layout& layout) {
  const auto width = static_cast<__int128>(element_size(layout.dtype));
  __int128 first = layout.address;
  __int128 last = first + width - 1;
  bool is_possible = true;
  for (int d = 0; d < layout.sizes.size(); ++d) {
    const __int128 steps = (layout.sizes[d] - 1) * static_cast<__int128>(layout.strides[d]);
    is_possible = is_possible && steps >= -INT64_MAX && steps <= INT64_MAX;
    if (is_possible) (steps < 0 ? first : last) += steps * width;
  }
  if (!is_possible || first <= 0 || last > INT64_MAX) {
    throw ShapeError(fmt::format(
        "from_dlpack: expected elements within the memory, but got sizes {} and strides "
        "{}",
        layout.sizes.str(), layout.strides.str()));
  }
  const auto pointer = [](__int128 address) {
    return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address));
  };
  check_address(pointer(first), layout.device);
  check_address(pointer(last), layout.device);
}

// A copy of the elements. Misaligned ones are copied byte by byte.
Tensor copy_of(const Layout& layout) {
  const kernels::OpScope scope("from_dlpack");
  if (layout.numel > 0) check_reach(layout);
  const Tensor result = empty(layout.sizes, {.dtype = layout.dtype, .device = layout.device});
  if (layout.numel == 0) return result;
  const auto width = static_cast<std::int64_t>(element_size(layout.dtype));
  TensorRef to = result.ref();
  TensorRef from = to;
  from.data = reinterpret_cast<void*>(layout.address);
  std::copy(layout.strides.begin(), layout.strides.end(), from.strides);
  if (layout.address % static_cast<std::uintptr_t>(width) == 0) {
    kernels::copy(detail::target_of(result), to, from);
    return result;
  }
  for (TensorRef* const ref : {&to, &from}) {
    ref->dtype = DType::u8;
    for (int d = 0; d < ref->ndim; ++d) ref->strides[d] *= width;
  }
  for (std::int64_t byte = 0; byte < width; ++byte) {
    kernels::copy(detail::target_of(result), to, from);
    to.data = static_cast<std::byte*>(to.data) + 1;
    from.data = static_cast<std::byte*>(from.data) + 1;
  }
  return result;
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
  const Layout layout = layout_of(fields.dl_tensor);
  const Tensor own_tensor = detail::exported_tensor(fields);
  if (!how.copy) {
    const Tensor view = own_tensor.defined() ? view_of(own_tensor, layout) : Tensor();
    return view.defined() ? view : share(layout, owner);
  }
  const bool is_own = own_tensor.defined() && is_unchanged(layout, own_tensor);
  const Tensor copy = is_own ? own_tensor.clone() : copy_of(layout);
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
