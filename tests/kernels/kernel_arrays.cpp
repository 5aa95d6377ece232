#include "tests/kernels/kernel_arrays.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gantry/device/device.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/streams/stream.hpp>

namespace gantry::testing {

std::int64_t Layout::position(std::int64_t i) const {
  std::int64_t result = offset;
  for (int dim = sizes.size() - 1; dim >= 0; --dim) {
    result += i % sizes[dim] * strides[dim];
    i /= sizes[dim];
  }
  return result;
}

Layout contiguous(const Shape& sizes) {
  Layout layout{"contiguous", sizes, sizes, 0, 1};
  for (int dim = sizes.size() - 1; dim >= 0; --dim) {
    layout.strides[dim] = layout.elements;
    layout.elements *= sizes[dim];
  }
  return layout;
}

Layout shifted(const Shape& sizes, std::int64_t offset) {
  Layout layout = contiguous(sizes);
  layout.name = "shifted";
  layout.offset = offset;
  layout.elements += offset;
  return layout;
}

Layout transposed(const Shape& sizes) {
  Layout layout{"transposed", sizes, sizes, 0, 1};
  for (int dim = 0; dim < sizes.size(); ++dim) {
    layout.strides[dim] = layout.elements;
    layout.elements *= sizes[dim];
  }
  return layout;
}

Layout sliced(const Shape& sizes) {
  Layout layout = contiguous(sizes);
  layout.name = "sliced";
  for (int dim = 0; dim < sizes.size(); ++dim) layout.strides[dim] *= 2;
  layout.elements *= 2;
  return layout;
}

Layout expanded(const Shape& sizes) {
  Layout layout = contiguous(sizes);
  layout.name = "expanded";
  if (!sizes.empty()) layout.strides[0] = 0;
  return layout;
}

Layout repeated(const Shape& sizes) {
  return {"repeated", sizes, Dims::filled(sizes.size(), 0), 0, 1};
}

Layout reversed(const Shape& sizes) {
  Layout layout = contiguous(sizes);
  layout.name = "reversed";
  if (sizes.empty()) return layout;
  const int last = sizes.size() - 1;
  layout.strides[last] = -1;
  layout.offset = sizes[last] == 0 ? 0 : sizes[last] - 1;
  return layout;
}

std::vector<Layout> output_layouts(const Shape& sizes) {
  return {contiguous(sizes), shifted(sizes), transposed(sizes), sliced(sizes)};
}

std::vector<Layout> input_layouts(const Shape& sizes) {
  std::vector<Layout> layouts = output_layouts(sizes);
  layouts.insert(layouts.end(), {expanded(sizes), repeated(sizes), reversed(sizes)});
  return layouts;
}

Array::Array(DType dtype, Layout layout)
    : dtype_(dtype),
      layout_(std::move(layout)),
      bytes_(static_cast<std::size_t>(layout_.elements) * element_size(dtype), 0) {}

std::uint64_t Array::bits(std::int64_t i) const {
  std::uint64_t result = 0;
  const std::size_t size = element_size(dtype_);
  std::memcpy(&result, bytes_.data() + static_cast<std::size_t>(layout_.position(i)) * size, size);
  return result;
}

double Array::value(std::int64_t i) const {
  return dispatch(dtype_, [&]<class T>(TypeTag<T>) { return static_cast<double>(get<T>(i)); });
}

TensorRef Array::ref(void* base) const {
  TensorRef result;
  result.data =
      static_cast<char*>(base) + layout_.offset * static_cast<std::int64_t>(element_size(dtype_));
  result.dtype = dtype_;
  result.ndim = layout_.sizes.size();
  for (int dim = 0; dim < result.ndim; ++dim) {
    result.sizes[dim] = layout_.sizes[dim];
    result.strides[dim] = layout_.strides[dim];
  }
  return result;
}

void run_on_cpu(std::vector<Array>& arrays, const KernelCall& call) {
  std::vector<TensorRef> tensors;
  for (Array& array : arrays) tensors.push_back(array.ref(array.bytes().data()));
  call(kernels::Target::cpu(), tensors);
}

void run_on_device(std::vector<Array>& arrays, const KernelCall& call) {
  const Stream stream = Stream::from_pool(Device::cuda(0));
  std::vector<memory::Buffer> buffers;
  std::vector<TensorRef> tensors;
  for (Array& array : arrays) {
    buffers.push_back(memory::allocate(stream, array.bytes().size()));
    if (!array.bytes().empty()) {
      driver().copy(buffers.back().data(), array.bytes().data(), array.bytes().size(),
                    stream.native());
    }
    tensors.push_back(array.ref(buffers.back().data()));
  }
  call(kernels::Target::on(stream), tensors);
  stream.synchronize();
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].bytes().empty()) continue;
    driver().copy(arrays[i].bytes().data(), buffers[i].data(), arrays[i].bytes().size(),
                  stream.native());
  }
  stream.synchronize();
}

std::vector<Array> run_everywhere(std::vector<Array> arrays, const KernelCall& call,
                                  const std::string& what) {
  std::vector<Array> on_device = arrays;
  run_on_cpu(arrays, call);
  if (device_count() > 0) {
    run_on_device(on_device, call);
    for (std::size_t k = 0; k < arrays.size(); ++k) {
      EXPECT_EQ(arrays[k].bytes() == on_device[k].bytes(), true)
          << what << ": array " << k << " (" << arrays[k].dtype() << ", " << arrays[k].layout().name
          << ") differs between the CPU and the device";
    }
  }
  return arrays;
}

namespace {

template <class T>
T random_value(std::mt19937_64& random) {
  const std::uint64_t draw = random();
  if constexpr (std::is_same_v<T, bool>) {
    return draw % 2 == 0;
  } else if constexpr (std::is_integral_v<T>) {
    // Small numbers, limits, and anything.
    if (draw % 8 == 0) return std::numeric_limits<T>::lowest();
    if (draw % 8 == 1) return std::numeric_limits<T>::max();
    if (draw % 8 < 5) return static_cast<T>(static_cast<std::int64_t>(draw >> 8 & 15) - 8);
    return static_cast<T>(draw >> 8);
  } else {
    const double special[] = {0.0,
                              -0.0,
                              1.0,
                              -1.0,
                              0.5,
                              2.5,
                              -2.5,
                              std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()};
    if (draw % 8 == 0) return T(static_cast<float>(special[draw / 8 % std::size(special)]));
    const int exponent = static_cast<int>(draw / 8 % 24) - 12;
    const double mantissa = static_cast<double>(draw >> 11) / 9007199254740992.0 * 2 - 1;
    if constexpr (std::is_same_v<T, double>) return std::ldexp(mantissa, exponent);
    return T(static_cast<float>(std::ldexp(mantissa, exponent)));
  }
}

}  // namespace

void fill_random(Array& array, std::uint32_t seed) {
  std::mt19937_64 random(seed);
  dispatch(array.dtype(), [&]<class T>(TypeTag<T>) {
    auto* elements = reinterpret_cast<T*>(array.bytes().data());
    for (std::int64_t i = 0; i < array.layout().elements; ++i)
      elements[i] = random_value<T>(random);
  });
}

void fill_range(Array& array, std::uint32_t seed, double low, double high) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  dispatch(array.dtype(), [&]<class T>(TypeTag<T>) {
    auto* elements = reinterpret_cast<T*>(array.bytes().data());
    for (std::int64_t i = 0; i < array.layout().elements; ++i) {
      if constexpr (sizeof(T) == 2) {
        elements[i] = static_cast<T>(static_cast<float>(uniform(random)));
      } else {
        elements[i] = static_cast<T>(uniform(random));
      }
    }
  });
}

std::uint64_t ulp_distance(std::uint64_t a, std::uint64_t b, DType dtype) {
  const int bits = static_cast<int>(element_size(dtype)) * 8;
  const int mantissa = dtype == DType::f16    ? 10
                       : dtype == DType::bf16 ? 7
                       : dtype == DType::f32  ? 23
                                              : 52;
  const std::uint64_t sign = std::uint64_t{1} << (bits - 1);
  const std::uint64_t infinity = sign - (std::uint64_t{1} << mantissa);
  const bool nan_a = (a & ~sign) > infinity;
  const bool nan_b = (b & ~sign) > infinity;
  if (nan_a || nan_b) return nan_a == nan_b ? 0 : std::numeric_limits<std::uint64_t>::max();
  const auto ordered = [&](std::uint64_t x) {
    return x & sign ? -static_cast<std::int64_t>(x & ~sign) : static_cast<std::int64_t>(x);
  };
  const std::int64_t distance = ordered(a) - ordered(b);
  return static_cast<std::uint64_t>(distance < 0 ? -distance : distance);
}

}  // namespace gantry::testing
