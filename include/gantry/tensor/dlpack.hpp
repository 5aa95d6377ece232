#pragma once

#include <cstdint>
#include <optional>

#include <gantry/core/export.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

// DLPack's own types. They are complete where <dlpack/dlpack.h> is included, before or after.
struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace gantry {

/// The layout of DLPack's C structs, version 1.3, for programs without <dlpack/dlpack.h>.
///
/// Source of the layout: dmlc/dlpack, include/dlpack/dlpack.h. fields() reaches the members of a
/// DLManagedTensorVersioned or DLManagedTensor.
/// @since 0.3
namespace dlpack {

/// DLPackVersion. Consumers reject another major version.
/// @since 0.3
struct Version {
  std::uint32_t major;  ///< of the layout
  std::uint32_t minor;  ///< of additions that do not change it
};

/// DLDeviceType: the kind of the memory. Other values are kinds that gantry does not support.
/// @since 0.3
enum class MemoryKind : std::int32_t {
  cpu = 1,            ///< kDLCPU
  cuda = 2,           ///< kDLCUDA
  cuda_host = 3,      ///< kDLCUDAHost: page-locked memory of the host
  extension = 12,     ///< kDLExtDev: memory of gantry's simulated devices
  cuda_managed = 13,  ///< kDLCUDAManaged
};

/// DLDataTypeCode. Other values are of element types that gantry does not have.
/// @since 0.3
enum class TypeCode : std::uint8_t {
  signed_integer = 0,    ///< kDLInt
  unsigned_integer = 1,  ///< kDLUInt
  floating = 2,          ///< kDLFloat
  bfloat = 4,            ///< kDLBfloat
  complex = 5,           ///< kDLComplex
  boolean = 6,           ///< kDLBool
  float8_e4m3fn = 10,    ///< kDLFloat8_e4m3fn
  float8_e5m2 = 12,      ///< kDLFloat8_e5m2
};

/// DLDevice: the place of the memory.
/// @since 0.3
struct Place {
  MemoryKind kind;     ///< device_type
  std::int32_t index;  ///< device_id; 0 for memory of the host
};

/// DLDataType: the type of an element.
/// @since 0.3
struct ElementType {
  TypeCode code;        ///< category
  std::uint8_t bits;    ///< of one lane
  std::uint16_t lanes;  ///< 1, except for vectors
};

/// DLTensor: an array in memory.
/// @since 0.3
struct Array {
  void* data;                 ///< null if there are no elements
  Place device;               ///< place of the memory
  std::int32_t ndim;          ///< number of dimensions
  ElementType dtype;          ///< type of the elements
  std::int64_t* shape;        ///< `ndim` sizes
  std::int64_t* strides;      ///< `ndim` strides in elements; null before DLPack 1.2: row-major
  std::uint64_t byte_offset;  ///< from `data` to the first element
};

/// A function that frees the struct and its share of the memory.
template <class Handle>
using Deleter = void (*)(Handle*);

/// DLManagedTensor: an array and its owner, without a version.
/// @since 0.3
struct Managed {
  Array dl_tensor;                   ///< the array
  void* manager_ctx;                 ///< belongs to the producer
  Deleter<DLManagedTensor> deleter;  ///< may be null
};

/// DLManagedTensorVersioned: an array and its owner, since DLPack 1.0.
/// @since 0.3
struct ManagedVersioned {
  Version version;                            ///< of the producer
  void* manager_ctx;                          ///< belongs to the producer
  Deleter<DLManagedTensorVersioned> deleter;  ///< as in Managed
  std::uint64_t flags;                        ///< kReadOnly and others
  Array dl_tensor;                            ///< the array
};

/// The version that to_dlpack() writes.
inline constexpr Version kVersion{1, 3};
/// Flag of an array that must not be written.
inline constexpr std::uint64_t kReadOnly = 1;
/// Flag of an array that the producer copied for this consumer.
inline constexpr std::uint64_t kIsCopied = 2;
/// Flag of elements smaller than a byte that occupy a byte each.
inline constexpr std::uint64_t kIsSubbyteTypePadded = 4;

/// Casts between DLPack's structs and the structs of this header, which have the same layout.
/// @{
[[nodiscard]] inline ManagedVersioned& fields(DLManagedTensorVersioned& tensor) {
  return reinterpret_cast<ManagedVersioned&>(tensor);
}
[[nodiscard]] inline Managed& fields(DLManagedTensor& tensor) {
  return reinterpret_cast<Managed&>(tensor);
}
[[nodiscard]] inline DLManagedTensorVersioned* handle(ManagedVersioned& fields) {
  return reinterpret_cast<DLManagedTensorVersioned*>(&fields);
}
[[nodiscard]] inline DLManagedTensor* handle(Managed& fields) {
  return reinterpret_cast<DLManagedTensor*>(&fields);
}
/// @}

}  // namespace dlpack

/// Options of to_dlpack.
/// @since 0.3
struct ToDlpackOptions {
  /// True exports pinned memory as kDLCUDAHost. False exports it as kDLCPU, the only type of host
  /// memory that most consumers know, PyTorch and CuPy among them.
  bool cuda_host = false;
  /// True exports a copy, which the consumer may change. The array says so by kIsCopied.
  bool copy = false;
  /// Where the consumer wants the elements: as Tensor::to(), a copy unless they are there.
  std::optional<Device> device{};
};

/// Options of from_dlpack.
/// @since 0.3
struct FromDlpackOptions {
  /// True copies the elements. The call then releases the producer's memory before it returns.
  /// Strides may then be negative, and elements may be misaligned.
  bool copy = false;
};

/// Exports a tensor to another library through DLPack 1.x, without a copy unless `how` says so.
///
/// The consumer calls the deleter once, from any thread. It keeps the memory alive until then.
/// Memory of simulated devices has type kDLExtDev, which only gantry in this process can import.
/// Memory of the CPU has type kDLCPU, pinned memory too unless `how` asks for kDLCUDAHost. Strides
/// are null only for 0-dim tensors.
/// Device/stream: later work of `consumer` waits for the current stream of the exported device,
/// which is also the default. Work submitted to `consumer` before the deleter is called completes
/// before the memory is reused. The host does not block.
/// Throws: InvalidArgument for an undefined tensor, or for a stream that is not of that device.
[[nodiscard]] GANTRY_API DLManagedTensorVersioned* to_dlpack(
    const Tensor& self, const std::optional<Stream>& consumer = {},
    const ToDlpackOptions& how = {});
/// As to_dlpack(), for consumers that know DLPack below 1.0 only.
[[nodiscard]] GANTRY_API DLManagedTensor* to_dlpack_unversioned(
    const Tensor& self, const std::optional<Stream>& consumer = {},
    const ToDlpackOptions& how = {});

/// Imports a tensor that another library exported through DLPack.
///
/// The call takes ownership of `exported`. Its deleter is called once: by the last tensor on the
/// memory, or before the call returns if it throws or copies. For an export of to_dlpack() the
/// result is the exported tensor, and the deleter is called at once.
/// Shapes: up to 8 dims. Without a copy, strides of dims of more than one element are not negative.
/// DTypes: those of gantry, one lane.
/// Device/stream: precondition: the elements are ready for the current stream of the memory's
/// device. The host blocks only for a copy of device memory. When the last tensor is destroyed, the
/// deleter is called at once, without a wait for work on the memory. Synchronize before, unless the
/// producer orders its free after the consumer's work, as gantry does.
/// Aliasing: no copy, unless `how` asks for one.
/// Throws: InvalidArgument for a null pointer, a null address, and, unless `how` asks for a copy,
/// for misaligned elements and for an array that is read only; DTypeError; ShapeError; NotSupported
/// for another major version, and for memory of other devices.
[[nodiscard]] GANTRY_API Tensor from_dlpack(DLManagedTensorVersioned* exported,
                                            const FromDlpackOptions& how = {});
[[nodiscard]] GANTRY_API Tensor from_dlpack(DLManagedTensor* exported,
                                            const FromDlpackOptions& how = {});

}  // namespace gantry
