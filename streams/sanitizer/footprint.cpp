#include "streams/sanitizer/footprint.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace gantry::sanitizer {
namespace {

// Note [Common bytes]
// Byte p of run x of one footprint and byte q of run y of another one are the same if
//   sum(x_i * s_i) - sum(y_j * t_j) = distance + q - p.
// With y_j replaced by n_j - 1 - y_j all signs are positive. The question is then whether
//   sum(c_k * z_k) with 0 <= z_k <= u_k
// can lie in an interval. The search takes the largest coefficient first. The reach of the smaller
// ones bounds its values, and their greatest common divisor rejects most of the rest.
struct Term {
  std::int64_t coefficient;
  std::int64_t most;  // of z
};

struct Search {
  std::array<Term, 2 * kMaxDims> terms{};
  std::size_t count = 0;
  std::array<std::int64_t, 2 * kMaxDims + 1> reach{};    // of this term and the smaller ones
  std::array<std::int64_t, 2 * kMaxDims + 1> divisor{};  // of the same
  int steps = 0;

  void add(std::int64_t coefficient, std::int64_t most) {
    for (std::size_t i = 0; i < count; ++i) {
      if (terms[i].coefficient == coefficient) {
        terms[i].most += most;
        return;
      }
    }
    terms[count++] = {coefficient, most};
  }

  void prepare() {
    std::sort(terms.begin(), terms.begin() + static_cast<std::ptrdiff_t>(count),
              [](const Term& a, const Term& b) { return a.coefficient > b.coefficient; });
    for (std::size_t i = count; i-- > 0;) {
      reach[i] = reach[i + 1] + terms[i].coefficient * terms[i].most;
      divisor[i] = std::gcd(divisor[i + 1], terms[i].coefficient);
    }
  }

  // True if the terms from `at` on can sum to a value in [low, high].
  bool finds(std::size_t at, std::int64_t low, std::int64_t high) {
    if (high < 0 || low > reach[at]) return false;
    if (low <= 0) return true;  // all zero
    if (at == count) return false;
    if (high / divisor[at] == (low - 1) / divisor[at]) return false;  // no multiple in between
    if (high >= reach[at]) return true;                               // all at their most
    const auto [coefficient, most] = terms[at];
    const std::int64_t smaller = reach[at + 1];
    const std::int64_t first = low <= smaller ? 0 : (low - smaller + coefficient - 1) / coefficient;
    for (std::int64_t z = std::min(most, high / coefficient); z >= first; --z) {
      if (++steps > Footprint::kMostSteps) return false;
      if (finds(at + 1, low - z * coefficient, high - z * coefficient)) return true;
    }
    return false;
  }
};

}  // namespace

Footprint::Footprint(const void* data, std::size_t bytes)
    : begin_(reinterpret_cast<std::uintptr_t>(data)),
      end_(begin_ + bytes),
      run_(static_cast<std::int64_t>(bytes)) {}

Footprint::Footprint(const void* data, std::size_t element_bytes,
                     std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides)
    : begin_(reinterpret_cast<std::uintptr_t>(data)),
      end_(begin_),
      run_(static_cast<std::int64_t>(element_bytes)) {
  if (std::ranges::find(sizes, 0) != sizes.end()) {
    run_ = 0;
    return;
  }
  std::array<std::pair<std::int64_t, std::int64_t>, kMaxDims> dims;  // stride in bytes, size
  std::size_t count = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    std::int64_t stride = strides[d] * static_cast<std::int64_t>(element_bytes);
    if (sizes[d] == 1 || stride == 0) continue;
    if (stride < 0) {
      begin_ -= static_cast<std::uintptr_t>(-stride * (sizes[d] - 1));
      stride = -stride;
    }
    std::size_t at = count++;  // by stride
    for (; at > 0 && dims[at - 1].first > stride; --at) dims[at] = dims[at - 1];
    dims[at] = {stride, sizes[d]};
  }
  std::int64_t span = run_;
  for (std::size_t d = 0; d < count; ++d) {
    const auto [stride, size] = dims[d];
    span += stride * (size - 1);
    if (ndim_ == 0 && stride <= run_) {  // the runs touch or overlap
      run_ += stride * (size - 1);
    } else if (ndim_ > 0 && stride == strides_[ndim_ - 1] * sizes_[ndim_ - 1]) {
      sizes_[ndim_ - 1] *= size;
    } else {
      strides_[ndim_] = stride;
      sizes_[ndim_++] = size;
    }
  }
  end_ = begin_ + static_cast<std::uintptr_t>(span);
}

bool Footprint::overlaps(const Footprint& other) const {
  if (is_empty() || other.is_empty() || begin_ >= other.end_ || other.begin_ >= end_) return false;
  if (is_dense() && other.is_dense()) return true;
  Search search;
  std::int64_t shift = 0;
  for (int d = 0; d < ndim_; ++d) search.add(strides_[d], sizes_[d] - 1);
  for (int d = 0; d < other.ndim_; ++d) {
    search.add(other.strides_[d], other.sizes_[d] - 1);
    shift += other.strides_[d] * (other.sizes_[d] - 1);
  }
  search.prepare();
  const std::int64_t distance = static_cast<std::int64_t>(other.begin_ - begin_) + shift;
  return search.finds(0, distance - (run_ - 1), distance + other.run_ - 1);
}

bool Footprint::covers(const Footprint& other) const {
  if (other.is_empty()) return true;
  if (begin_ > other.begin_ || end_ < other.end_) return false;
  if (is_dense()) return true;
  return begin_ == other.begin_ && run_ == other.run_ && ndim_ == other.ndim_ &&
         std::equal(sizes_, sizes_ + ndim_, other.sizes_) &&
         std::equal(strides_, strides_ + ndim_, other.strides_);
}

}  // namespace gantry::sanitizer
