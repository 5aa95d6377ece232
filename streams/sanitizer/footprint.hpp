// The bytes that one operand of an operation touches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <gantry/core/dims.hpp>

namespace gantry::sanitizer {

/// A set of bytes: a dense run, repeated with strides.
///
/// Dims of size 1 and stride 0 are left out, negative strides are turned, and dims that follow each
/// other without a gap are joined. So a contiguous tensor is one run in whatever shape.
class Footprint {
 public:
  Footprint() = default;
  Footprint(const void* data, std::size_t bytes);
  /// Elements of `element_bytes`; sizes and strides (in elements) have equal length. Empty if a
  /// size is 0.
  Footprint(const void* data, std::size_t element_bytes, std::span<const std::int64_t> sizes,
            std::span<const std::int64_t> strides);

  /// The first byte, and the one past the last.
  [[nodiscard]] std::uintptr_t begin() const { return begin_; }
  [[nodiscard]] std::uintptr_t end() const { return end_; }
  [[nodiscard]] bool is_empty() const { return begin_ == end_; }
  [[nodiscard]] bool is_dense() const { return ndim_ == 0; }

  /// True if both have a byte in common. Exact, except that a search of more than kMostSteps gives
  /// up and answers false: such layouts are not reported.
  [[nodiscard]] bool overlaps(const Footprint& other) const;
  /// True if every byte of `other` is one of this; may be false although it is so.
  [[nodiscard]] bool covers(const Footprint& other) const;

  static constexpr int kMostSteps = 20000;

 private:
  std::uintptr_t begin_ = 0;
  std::uintptr_t end_ = 0;
  std::int64_t run_ = 0;  ///< bytes of a run
  int ndim_ = 0;
  std::int64_t sizes_[kMaxDims] = {};
  std::int64_t strides_[kMaxDims] = {};  ///< in bytes, ascending
};

}  // namespace gantry::sanitizer
