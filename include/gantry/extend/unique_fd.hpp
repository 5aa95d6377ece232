#pragma once

#include <utility>

#include <gantry/core/export.hpp>

namespace gantry {

/// The owner of at most one file descriptor. The destructor closes it. Move-only; a moved-from
/// object owns none.
class GANTRY_API UniqueFd {
 public:
  UniqueFd() = default;
  /// Takes over `fd`; negative: none.
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  /// Takes over the descriptor of `other`, which owns none afterwards.
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  /// Closes the own descriptor, then takes over that of `other`.
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = other.release();
    }
    return *this;
  }
  ~UniqueFd() { reset(); }

  /// The descriptor; -1 for none.
  [[nodiscard]] int get() const noexcept { return fd_; }
  /// True if there is a descriptor.
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
  /// Returns the descriptor, for the caller to close; -1 for none.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  /// Closes the descriptor now.
  void reset() noexcept;

 private:
  int fd_ = -1;
};

}  // namespace gantry
