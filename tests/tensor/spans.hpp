// The parts of std::mdspan that Tensor::mdspan() needs. GCC 12 has none.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>

namespace gantry::testing {

/// Static and dynamic sizes.
template <class Index, std::size_t... sizes>
struct Extents {
  using index_type = Index;
  template <std::same_as<Index>... T>
  explicit Extents(T... values) : values_{values...} {}
  static constexpr std::size_t rank() { return sizeof...(sizes); }
  static constexpr std::size_t static_extent(std::size_t d) {
    return std::array<std::size_t, sizeof...(sizes)>{sizes...}[d];
  }
  [[nodiscard]] Index extent(std::size_t d) const { return values_[d]; }

 private:
  std::array<Index, sizeof...(sizes)> values_;
};
inline constexpr std::size_t kAny = static_cast<std::size_t>(-1);

struct Strided {
  template <class E>
  class mapping {
   public:
    using Steps = std::array<typename E::index_type, E::rank()>;
    mapping(const E& extents, const Steps& steps) : extents_(extents), steps_(steps) {}
    [[nodiscard]] Steps strides() const { return steps_; }
    [[nodiscard]] auto stride(std::size_t d) const { return steps_[d]; }
    [[nodiscard]] const E& extents() const { return extents_; }

   private:
    E extents_;
    Steps steps_;
  };
};

struct RowMajor {
  template <class E>
  class mapping {
   public:
    explicit mapping(const E& extents) : extents_(extents) {}
    [[nodiscard]] auto stride(std::size_t d) const {
      typename E::index_type step = 1;
      for (std::size_t later = d + 1; later < E::rank(); ++later) step *= extents_.extent(later);
      return step;
    }
    [[nodiscard]] const E& extents() const { return extents_; }

   private:
    E extents_;
  };
};

template <class T, class E, class Layout>
class Span {
 public:
  using element_type = T;
  using extents_type = E;
  using index_type = typename E::index_type;
  using mapping_type = typename Layout::template mapping<E>;
  static constexpr std::size_t rank() { return E::rank(); }

  Span(T* data, const mapping_type& mapping) : data_(data), mapping_(mapping) {}
  template <class... I>
  T& operator()(I... at) const {
    std::size_t d = 0;
    index_type offset = 0;
    ((offset += static_cast<index_type>(at) * mapping_.stride(d++)), ...);
    return data_[offset];
  }
  [[nodiscard]] const mapping_type& mapping() const { return mapping_; }

 private:
  T* data_;
  mapping_type mapping_;
};

}  // namespace gantry::testing
