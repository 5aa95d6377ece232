#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace gantry {

// Bytes of 0, which take memory only once they are touched: a rank has buffers for all ranks, and
// hears from few of them.
class UntouchedBytes {
 public:
  UntouchedBytes() = default;
  explicit UntouchedBytes(std::size_t count)
      : data_(static_cast<std::byte*>(std::calloc(count, 1))), count_(count) {
    if (data_ == nullptr && count > 0) throw std::bad_alloc();
  }

  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return count_; }
  operator std::span<std::byte>() const { return {data_.get(), count_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };

  std::unique_ptr<std::byte, Free> data_;
  std::size_t count_ = 0;
};

}  // namespace gantry
