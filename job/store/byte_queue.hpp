#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/assert.hpp"

namespace gantry {

/// Bytes that wait, first in, first out. What is put in is moved at most once on average, however
/// it is taken out.
class ByteQueue {
 public:
  void append(std::string_view bytes) {
    // More bytes were taken than are left: moving the rest is paid for.
    if (taken_ > bytes_.size() / 2) {
      bytes_.erase(0, taken_);
      taken_ = 0;
    }
    bytes_.append(bytes);
  }
  /// Makes room for `bytes` to wait, so that appending moves nothing until then.
  void reserve(std::size_t bytes) { bytes_.reserve(taken_ + bytes); }
  /// All that waits; valid until the next append() or reserve().
  [[nodiscard]] std::string_view waiting() const { return std::string_view(bytes_).substr(taken_); }
  [[nodiscard]] std::size_t size() const { return bytes_.size() - taken_; }
  [[nodiscard]] bool empty() const { return size() == 0; }
  /// Takes out the first `count` bytes, at most size().
  void take(std::size_t count) {
    GANTRY_ASSERT(count <= size(), "more bytes are taken out than wait");
    taken_ += count;
  }
  void clear() { take(size()); }

 private:
  std::string bytes_;
  std::size_t taken_ = 0;
};

}  // namespace gantry
