#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <gantry/tensor/tensor.hpp>

#include "tensor/buffer_views.hpp"

namespace gantry {

// Reaches Tensor::Impl::make_views for buffer_views.cpp.
inline void make_buffer_views(const Storage& storage, DType dtype,
                              std::span<const detail::BufferView> views);

struct Tensor::Impl {
  Storage storage;
  Shape sizes;
  Dims strides;
  std::int64_t offset = 0;
  std::int64_t numel = 0;
  DType dtype = DType::f32;
  bool contiguous = true;

  // In buffer_views.cpp.
  static void make_views(const Storage& storage, DType dtype,
                         std::span<const detail::BufferView> views);
  friend void make_buffer_views(const Storage& storage, DType dtype,
                                std::span<const detail::BufferView> views) {
    make_views(storage, dtype, views);
  }
};

}  // namespace gantry
