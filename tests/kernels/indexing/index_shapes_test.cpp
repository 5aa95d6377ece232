// Gathers and scatters of drawn shapes and layouts, beside a scalar oracle.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <gantry/core/error.hpp>

#include "kernels/indexing/indexing.hpp"
#include "tests/kernels/kernel_arrays.hpp"

namespace gantry::testing {
namespace {

using kernels::IndexUse;
using kernels::ScatterMode;
using kernels::Target;

class DrawnIndexing {
 public:
  explicit DrawnIndexing(std::uint32_t seed) : random_(seed) {
    do {
      sizes_ = Shape{};
      const int ndim = static_cast<int>(1 + random_() % 3);
      for (int d = 0; d < ndim; ++d) sizes_.push_back(one_of({1, 2, 3, 7, 16, 31, 33, 65, 300}));
    } while (sizes_.product() > 20'000);
    dim_ = static_cast<int>(random_() % static_cast<unsigned>(sizes_.size()));
    named_ = sizes_;  // one position for each index
    named_[dim_] = one_of({1, 2, 7, 31, 40, 300});
    dtype_ = one_of_dtypes({u8, i16, bf16, f32, f64});
    index_dtype_ = random_() % 2 == 0 ? i32 : i64;
    is_one_dim_ = random_() % 2 == 0;
    use_ = {.op = "drawn", .fills_new = random_() % 2 == 0};
  }

  // A tensor whose elements the index names, and one with an element for each index.
  Array indexed() {
    Array array(dtype_, one_of(testing::input_layouts(sizes_)));
    fill_range(array, 1, 0, 4);
    return array;
  }
  Array direct() {
    Array array(dtype_, one_of(testing::output_layouts(named_)));
    fill_range(array, 2, 0, 4);
    return array;
  }
  Array index() {
    const Shape sizes = is_one_dim_ ? Shape{named_[dim_]} : named_;
    Array array(index_dtype_, one_of(testing::output_layouts(sizes)));
    for (std::int64_t i = 0; i < array.numel(); ++i) set(array, i, draw_position());
    return array;
  }
  void set(Array& index, std::int64_t i, std::int64_t position) const {
    if (index_dtype_ == i64) return index.set(i, position);
    index.set(i, static_cast<std::int32_t>(position));
  }

  // The row-major index of the element that position `i` of direct() stands for.
  [[nodiscard]] std::int64_t named(const Array& index, std::int64_t i) const {
    Dims at = named_;
    std::int64_t left = i;
    for (int d = named_.size() - 1; d >= 0; --d) {
      at[d] = left % named_[d];
      left /= named_[d];
    }
    at[dim_] = static_cast<std::int64_t>(index.value(is_one_dim_ ? at[dim_] : i));
    std::int64_t result = 0;
    for (int d = 0; d < sizes_.size(); ++d) result = result * sizes_[d] + at[d];
    return result;
  }

  void gather(const TensorRef& out, const TensorRef& in, const TensorRef& index) const {
    (is_one_dim_ ? kernels::index_select : kernels::gather)(use_, Target::cpu(), out, in, dim_,
                                                            index);
  }
  void scatter(const TensorRef& out, const TensorRef& index, const TensorRef& in,
               ScatterMode mode) const {
    (is_one_dim_ ? kernels::index_scatter : kernels::scatter)(use_, Target::cpu(), out, dim_, index,
                                                              in, mode);
  }

  [[nodiscard]] std::int64_t size_along() const { return sizes_[dim_]; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  Layout out_layout() { return one_of(testing::output_layouts(sizes_)); }
  [[nodiscard]] std::string text() const {
    return sizes_.str() + " dim " + std::to_string(dim_) + " by " + named_.str() +
           (is_one_dim_ ? " in one dim" : "");
  }

 private:
  std::int64_t one_of(std::initializer_list<std::int64_t> sizes) {
    return *(sizes.begin() + random_() % sizes.size());
  }
  DType one_of_dtypes(std::initializer_list<DType> dtypes) {
    return *(dtypes.begin() + random_() % dtypes.size());
  }
  Layout one_of(std::vector<Layout> layouts) { return layouts[random_() % layouts.size()]; }
  std::int64_t draw_position() {
    return static_cast<std::int64_t>(random_() % static_cast<unsigned>(sizes_[dim_]));
  }

  std::mt19937 random_;
  Shape sizes_;
  Shape named_;
  int dim_ = 0;
  DType dtype_ = f32;
  DType index_dtype_ = i64;
  bool is_one_dim_ = false;
  IndexUse use_;
};

TensorRef ref(Array& array) { return array.ref(array.bytes().data()); }

TEST(IndexShapesTest, GathersTakeTheNamedElements) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    DrawnIndexing drawn(seed);
    Array in = drawn.indexed();
    Array index = drawn.index();
    Array out = drawn.direct();
    drawn.gather(ref(out), ref(in), ref(index));
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      ASSERT_EQ(out.bits(i), in.bits(drawn.named(index, i)))
          << "seed " << seed << ": " << drawn.text() << ", " << in.layout().name << " at " << i;
    }
  }
}

TEST(IndexShapesTest, ScattersWriteInOrder) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    DrawnIndexing drawn(seed);
    Array out(drawn.dtype(), drawn.out_layout());
    fill_range(out, 3, 0, 4);
    Array index = drawn.index();
    Array in = drawn.direct();
    const bool adds = seed % 3 != 0;
    dispatch(drawn.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (!std::is_same_v<T, bool>) {
        std::vector<T> expected;
        for (std::int64_t i = 0; i < out.numel(); ++i) expected.push_back(out.get<T>(i));
        for (std::int64_t i = 0; i < in.numel(); ++i) {
          T& element = expected[static_cast<std::size_t>(drawn.named(index, i))];
          const T value = in.get<T>(i);
          element = adds ? static_cast<T>(element + value) : value;
        }
        drawn.scatter(ref(out), ref(index), ref(in),
                      adds ? ScatterMode::add : ScatterMode::replace);
        for (std::int64_t i = 0; i < out.numel(); ++i) {
          ASSERT_EQ(out.get<T>(i), expected[static_cast<std::size_t>(i)])
              << "seed " << seed << ": " << drawn.text() << ", " << out.layout().name << " at "
              << i;
        }
      }
    });
    ASSERT_FALSE(HasFatalFailure());
  }
}

// The one index out of range stands anywhere, behind any number of others.
TEST(IndexShapesTest, AnIndexOutOfRangeIsFoundWhereverItStands) {
  for (std::uint32_t seed = 0; seed < 400; ++seed) {
    DrawnIndexing drawn(seed);
    Array in = drawn.indexed();
    Array index = drawn.index();
    Array out = drawn.direct();
    const std::int64_t bad = seed % 2 == 0 ? drawn.size_along() : -1;
    drawn.set(index, static_cast<std::int64_t>(seed * 7919U % index.numel()), bad);
    EXPECT_THROW(drawn.gather(ref(out), ref(in), ref(index)), IndexError) << drawn.text();
    Array target(drawn.dtype(), drawn.out_layout());
    EXPECT_THROW(drawn.scatter(ref(target), ref(index), ref(out), ScatterMode::add), IndexError)
        << drawn.text();
  }
}

}  // namespace
}  // namespace gantry::testing
