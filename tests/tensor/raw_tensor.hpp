// Tensors that tests fill and read byte by byte, without the code under test.
#pragma once

#include <cstring>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry::testing {

/// The CPU and every visible device.
inline std::vector<Device> all_places() {
  std::vector<Device> places{Device::cpu()};
  for (int i = 0; i < device_count(); ++i) places.push_back(Device::cuda(i));
  return places;
}

/// The dtypes that operations compute with.
inline const std::vector<DType>& computing_dtypes() {
  static const std::vector<DType> kAll{bool_, u8, i8, i16, i32, i64, f16, bf16, f32, f64};
  return kAll;
}

/// Those, and the dtypes that are moved and cast alone.
inline const std::vector<DType>& all_dtypes() {
  static const std::vector<DType> kAll{bool_, u8,  i8,  i16, i32, i64,    f16,   bf16,
                                       f32,   f64, u16, u32, u64, f8e4m3, f8e5m2};
  return kAll;
}

/// The element at `address` as a double, which represents every value of the tests.
inline double decode(const void* address, DType dtype) {
  return dispatch_any(dtype, [&]<class T>(TypeTag<T>) {
    T value;
    std::memcpy(&value, address, sizeof value);
    return static_cast<double>(value);
  });
}

inline void encode(void* address, DType dtype, double number) {
  dispatch_any(dtype, [&]<class T>(TypeTag<T>) {
    T value{};
    if constexpr (is_floating_point(dtype_of<T>) && sizeof(T) <= 2) {
      value = T(static_cast<float>(number));
    } else {
      value = static_cast<T>(number);
    }
    std::memcpy(address, &value, sizeof value);
  });
}

/// The bytes of a storage, on the host. Waits for the current stream of its device.
inline std::vector<std::byte> storage_bytes(const Storage& storage) {
  std::vector<std::byte> bytes(storage.bytes());
  if (bytes.empty()) return bytes;
  if (storage.device().is_cpu()) {
    std::memcpy(bytes.data(), storage.data(), bytes.size());
  } else {
    const Stream stream = Stream::current(storage.device());
    driver().copy(bytes.data(), storage.data(), bytes.size(), stream.native());
    stream.synchronize();
  }
  return bytes;
}

inline void set_storage_bytes(const Storage& storage, const std::vector<std::byte>& bytes) {
  if (bytes.empty()) return;
  if (storage.device().is_cpu()) {
    std::memcpy(storage.data(), bytes.data(), bytes.size());
  } else {
    const Stream stream = Stream::current(storage.device());
    driver().copy(storage.data(), bytes.data(), bytes.size(), stream.native());
    stream.synchronize();
  }
}

/// The storage offsets of a layout's elements, in row-major order.
inline std::vector<std::int64_t> addresses(const Shape& sizes, const Dims& strides,
                                           std::int64_t offset) {
  std::vector<std::int64_t> result;
  if (sizes.product() == 0) return result;
  Dims at = Dims::filled(sizes.size(), 0);
  while (true) {
    std::int64_t address = offset;
    for (int d = 0; d < sizes.size(); ++d) address += at[d] * strides[d];
    result.push_back(address);
    int d = sizes.size() - 1;
    while (d >= 0 && ++at[d] == sizes[d]) at[d--] = 0;
    if (d < 0) return result;
  }
}
inline std::vector<std::int64_t> addresses(const Tensor& tensor) {
  return addresses(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

/// All elements in row-major order, read from the storage's bytes.
inline std::vector<double> elements(const Tensor& tensor) {
  const std::vector<std::byte> bytes = storage_bytes(tensor.storage());
  std::vector<double> result;
  for (const std::int64_t address : addresses(tensor)) {
    result.push_back(decode(
        bytes.data() + static_cast<std::size_t>(address) * tensor.element_size(), tensor.dtype()));
  }
  return result;
}

/// Layouts of a tensor in its storage.
enum class Layout { contiguous, transposed, sliced, offset, expanded, zero_dim, empty };

inline std::ostream& operator<<(std::ostream& out, Layout layout) {
  constexpr const char* kNames[] = {"contiguous", "transposed", "sliced", "offset",
                                    "expanded",   "zero_dim",   "empty"};
  return out << kNames[static_cast<int>(layout)];
}

/// The initial value of element `i` of a storage of `dtype`.
inline double pattern(std::int64_t i, DType dtype) {
  const auto number = static_cast<double>(i % 120 - 60);
  switch (dtype) {
    case DType::bool_:
      return static_cast<double>((i / 2) % 2);
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64:
      return static_cast<double>((i * 7) % 250);
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
      return number;
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::f64:
      return number / 4;
    case DType::f8e4m3:
    case DType::f8e5m2:
      return static_cast<double>((i % 9 - 4) * (i % 2 + 1));
  }
  __builtin_unreachable();
}

/// A tensor of pattern() in a storage of its own: shape [3, 4, 5], [] or [3, 0, 5].
inline Tensor patterned(Layout layout, DType dtype, Device device, bool pinned = false) {
  Shape sizes{3, 4, 5};
  Dims strides{20, 5, 1};
  std::int64_t offset = 0;
  std::int64_t capacity = 60;
  switch (layout) {
    case Layout::contiguous:
      break;
    case Layout::transposed:
      strides = {1, 3, 12};
      break;
    case Layout::sliced:
      strides = {40, 10, 2};
      capacity = 120;
      break;
    case Layout::offset:
      offset = 7;
      capacity = 67;
      break;
    case Layout::expanded:
      strides = {5, 0, 1};
      capacity = 15;
      break;
    case Layout::zero_dim:
      sizes = {};
      strides = {};
      offset = 5;
      capacity = 9;
      break;
    case Layout::empty:
      sizes = {3, 0, 5};
      break;
  }
  const std::size_t size = element_size(dtype);
  const Storage storage =
      Storage::allocate(static_cast<std::size_t>(capacity) * size, device, pinned);
  std::vector<std::byte> bytes(storage.bytes());
  for (std::int64_t i = 0; i < capacity; ++i) {
    encode(bytes.data() + static_cast<std::size_t>(i) * size, dtype, pattern(i, dtype));
  }
  set_storage_bytes(storage, bytes);
  return Tensor::from_storage(storage, sizes, strides, offset, dtype);
}

/// `value`, an element of `from`, after conversion to `to`: floating numbers truncate and saturate,
/// integers wrap, bool tests for non-zero.
inline double converted(double value, DType from, DType to) {
  if (to == DType::bool_) return value != 0 ? 1 : 0;
  if (is_floating_point(to)) {
    std::byte bytes[8];
    encode(bytes, to, value);
    return decode(bytes, to);
  }
  return dispatch_any(to, [&]<class T>(TypeTag<T>) -> double {
    if constexpr (std::is_integral_v<T>) {
      if (!is_floating_point(from)) {
        return static_cast<double>(static_cast<T>(static_cast<std::int64_t>(value)));
      }
      if (value != value) return 0;
      const double whole = value < 0 ? -static_cast<double>(static_cast<std::int64_t>(-value))
                                     : static_cast<double>(static_cast<std::int64_t>(value));
      const auto low = static_cast<double>(std::numeric_limits<T>::lowest());
      const auto high = static_cast<double>(std::numeric_limits<T>::max());
      return whole < low ? low : whole > high ? high : whole;
    } else {
      return value;
    }
  });
}

}  // namespace gantry::testing
