// u16, u32, u64, f8e4m3 and f8e5m2 as data: what moves and casts elements takes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::all_dtypes;
using testing::elements;

constexpr DType kDataDTypes[] = {u16, u32, u64, f8e4m3, f8e5m2};

// Bits of significand, the exponent of the smallest normal number, and the largest number.
struct FloatFormat {
  int bits;
  int least_exponent;
  long double largest;
};

template <class T>
constexpr FloatFormat format_of() {
  if (std::is_same_v<T, float8_e4m3>) return {4, -6, 448};
  if (std::is_same_v<T, float8_e5m2>) return {3, -14, 57344};
  if (std::is_same_v<T, float16>) return {11, -14, 65504};
  if (std::is_same_v<T, bfloat16>) return {8, -126, 0x1.FEp127L};
  if (std::is_same_v<T, float>) return {24, -126, 0x1.FFFFFEp127L};
  return {53, -1022, std::numeric_limits<double>::max()};
}

// `value` rounded to nearest even; beyond the largest number infinity, or NaN in e4m3.
template <class T>
long double rounded(long double value) {
  constexpr FloatFormat kFormat = format_of<T>();
  if (value == 0 || std::isnan(value)) return value;
  const long double beyond = std::is_same_v<T, float8_e4m3> ? std::nanl("") : INFINITY;
  if (std::isinf(value)) return std::copysign(beyond, value);
  const int unit = std::max(std::ilogb(value), kFormat.least_exponent) - (kFormat.bits - 1);
  const long double nearest = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  return std::fabs(nearest) > kFormat.largest ? std::copysign(beyond, value) : nearest;
}

template <class T>
long double value_of(T element) {
  if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>) {
    return static_cast<long double>(element);
  } else {
    return static_cast<float>(element);
  }
}

// What an element of To is after a cast of an element of `From`, which is exact in a long double.
template <class To, class From>
long double cast_of(From element) {
  const long double value = value_of(element);
  if constexpr (std::is_same_v<To, bool>) {
    return value != 0 ? 1 : 0;
  } else if constexpr (is_floating_point(dtype_of<To>)) {
    return rounded<To>(value);
  } else if constexpr (is_floating_point(dtype_of<From>)) {
    if (std::isnan(value)) return 0;
    const long double low = std::numeric_limits<To>::lowest();
    const long double high = std::numeric_limits<To>::max();
    return std::clamp(std::trunc(value), low, high);
  } else {
    return value_of(static_cast<To>(static_cast<__int128>(element)));
  }
}

// Elements of any bits, and those at the ends of the ranges of other dtypes.
template <class T>
std::vector<T> samples() {
  std::mt19937_64 random(11);
  std::vector<T> all;
  for (int i = 0; i < 700; ++i) {
    const std::uint64_t bits = i < 256 ? static_cast<std::uint64_t>(i) : random();
    T element{};
    if constexpr (std::is_same_v<T, bool>) {
      element = bits % 2 == 1;
    } else {
      std::memcpy(static_cast<void*>(&element), &bits, sizeof element);
    }
    all.push_back(element);
  }
  for (const double limit :
       {7., 127., 255., 448., 464., 32767., 57344., 61440., 65504., 65535., 2147483647.,
        4294967295., 9223372036854775808., 18446744073709551616., 1e30}) {
    for (const double step : {0., 0.5, 0.75, 1., 2., 16.}) {
      for (const double value : {limit + step, limit - step, -limit - step}) {
        if constexpr (is_floating_point(dtype_of<T>)) {
          all.push_back(static_cast<T>(value));
        } else if (std::fabs(value) < 9e18) {
          all.push_back(static_cast<T>(static_cast<std::int64_t>(value)));
        }
      }
    }
  }
  return all;
}

class DataDTypesTest : public testing::PlacedTest {};

template <class T>
Tensor tensor_of(const std::vector<T>& values, Device device) {
  const Tensor host = empty({static_cast<std::int64_t>(values.size())}, {.dtype = dtype_of<T>});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T value = values[i];
    std::memcpy(static_cast<std::byte*>(host.data()) + i * sizeof(T), &value, sizeof(T));
  }
  return host.to(device);
}

template <class To, class From>
void check_cast(const std::vector<From>& values, const Tensor& source) {
  const Tensor host = source.to(dtype_of<To>).cpu().contiguous();
  ASSERT_EQ(host.numel(), static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    To element;
    std::memcpy(static_cast<void*>(&element),
                static_cast<const std::byte*>(host.data()) + i * sizeof(To), sizeof(To));
    const long double expected = cast_of<To>(From(values[i]));
    const long double found = value_of(element);
    if (std::isnan(expected) && std::isnan(found)) continue;
    ASSERT_EQ(found, expected) << dtype_of<From> << " to " << dtype_of<To> << " of "
                               << value_of(From(values[i]));
    if (is_floating_point(dtype_of<To>)) {
      ASSERT_EQ(std::signbit(found), std::signbit(expected)) << dtype_of<From> << dtype_of<To>;
    }
  }
}

TEST_P(DataDTypesTest, EveryTypeIsCastToEveryOther) {
  for (const DType from : all_dtypes()) {
    dispatch_any(from, [&]<class From>(TypeTag<From>) {
      const std::vector<From> values = samples<From>();
      const Tensor dense = tensor_of(values, device_);
      const Tensor apart = empty({dense.numel(), 2}, options(from)).select(1, 1);
      apart.copy_(dense);
      for (const DType to : all_dtypes()) {
        dispatch_any(to, [&]<class To>(TypeTag<To>) {
          check_cast<To>(values, dense);
          check_cast<To>(values, apart);
        });
      }
    });
  }
}

TEST_P(DataDTypesTest, FactoriesMakeThem) {
  for (const DType dtype : kDataDTypes) {
    EXPECT_EQ(empty({2, 3}, options(dtype)).nbytes(), 6 * element_size(dtype));
    EXPECT_EQ(elements(zeros({3}, options(dtype))), (std::vector<double>{0, 0, 0}));
    EXPECT_EQ(elements(ones({2}, options(dtype))), (std::vector<double>{1, 1}));
    EXPECT_EQ(elements(full({2}, 6, options(dtype))), (std::vector<double>{6, 6}));
    EXPECT_EQ(elements(eye(2, options(dtype))), (std::vector<double>{1, 0, 0, 1}));
    EXPECT_EQ(elements(tensor({1, 2, 3}, options(dtype))), (std::vector<double>{1, 2, 3}));
    EXPECT_EQ(elements(empty_like(full({2}, 6, options(dtype))).fill_(5)),
              (std::vector<double>{5, 5}));
    EXPECT_EQ(full({}, 6, options(dtype)).item<int>(), 6);
  }
}

TEST_P(DataDTypesTest, HostTypesKeepTheirDType) {
  EXPECT_EQ(tensor({std::uint16_t{65535}}).dtype(), u16);
  EXPECT_EQ(tensor({4294967295U}).dtype(), u32);
  const Tensor large = tensor(~std::uint64_t{0}, {.device = device_});
  EXPECT_EQ(large.dtype(), u64);
  EXPECT_EQ(large.item<std::uint64_t>(), ~std::uint64_t{0});
  EXPECT_EQ(large.to_vector<std::uint64_t>(), std::vector<std::uint64_t>{~std::uint64_t{0}});
  EXPECT_ERROR(large.item(), InvalidArgument,
               "Scalar: expected an integer of at most 9223372036854775807");
  EXPECT_EQ(tensor(float8_e4m3(1.5f)).dtype(), f8e4m3);
  EXPECT_EQ(tensor(float8_e5m2(1.5f), {.device = device_}).item<double>(), 1.5);
  EXPECT_EQ(tensor({1.5, 2.5}, options(f8e5m2)).to_vector<float8_e5m2>()[1].bits,
            float8_e5m2(2.5f).bits);
  std::uint32_t words[] = {1, 4000000000U};
  EXPECT_EQ(from_blob(words, {2}, {.dtype = u32}).data_ptr<std::uint32_t>()[1], 4000000000U);
}

TEST_P(DataDTypesTest, NumbersThatDoNotFitAreRefused) {
  EXPECT_ERROR(full({1}, 65536, options(u16)), InvalidArgument,
               "value cannot be converted to type u16 without overflow, got 65536");
  EXPECT_ERROR(full({1}, 449, options(f8e4m3)), InvalidArgument,
               "value cannot be converted to type f8e4m3 without overflow, got 449");
  const Tensor kept = ones({2}, options(f8e5m2));
  EXPECT_ERROR(kept.fill_(60000), InvalidArgument, "type f8e5m2 without overflow");
  EXPECT_EQ(elements(kept), (std::vector<double>{1, 1}));
}

// Everything that moves elements, compared with the same on a dtype of equal width that computes.
TEST_P(DataDTypesTest, OperationsThatMoveElementsMoveThem) {
  const Tensor rows = tensor({2, 0}, {.dtype = i64, .device = device_});
  const Tensor places = tensor({{1, 0, 2, 1}, {0, 2, 1, 0}}, {.dtype = i64, .device = device_});
  const Tensor mask =
      tensor({{true, false, true, true}, {false, false, true, false}, {true, true, false, false}})
          .to(device_);
  for (const DType dtype : kDataDTypes) {
    const DType twin = element_size(dtype) == 1   ? i8
                       : element_size(dtype) == 2 ? i16
                       : element_size(dtype) == 4 ? i32
                                                  : i64;
    const Tensor words = tensor({{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}}, options(twin));
    const Tensor data = words.view(dtype);
    const Tensor one = words.narrow(0, 0, 1);
    using Move = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&);
    const Move moves[] = {
        [](auto& x, auto&, auto&, auto&) { return x.clone(); },
        [](auto& x, auto&, auto&, auto&) { return x.t().contiguous(); },
        [](auto& x, auto&, auto&, auto&) { return x.narrow(1, 1, 2).clone(); },
        [](auto& x, auto&, auto&, auto&) { return x.select(1, 2).clone(); },
        [](auto& x, auto&, auto&, auto&) {
          return x.flip({0, 1});
        },
        [](auto& x, auto&, auto&, auto&) { return x.roll(1, 1); },
        [](auto& x, auto&, auto&, auto&) {
          return x.tile({2, 1});
        },
        [](auto& x, auto&, auto&, auto&) {
          return cat({x, x.narrow(0, 0, 1)}, 0);
        },
        [](auto& x, auto&, auto&, auto&) {
          return stack({x, x}, 1);
        },
        [](auto& x, auto&, auto&, auto&) { return repeat_interleave(x, 2, 0); },
        [](auto& x, auto&, auto&, auto&) { return x.tril(); },
        [](auto& x, auto&, auto&, auto&) { return x.triu(1); },
        [](auto& x, auto& r, auto&, auto&) { return index_select(x, 0, r); },
        [](auto& x, auto&, auto& p, auto&) { return gather(x, 0, p); },
        [](auto& x, auto& r, auto&, auto&) { return take(x, r); },
        [](auto& x, auto& r, auto&, auto&) { return x.index({r}); },
        [](auto& x, auto&, auto&, auto& m) { return x.index({m}); },
        [](auto& x, auto&, auto&, auto& m) { return masked_select(x, m); },
        [](auto& x, auto&, auto&, auto& m) { return masked_scatter(x, m, x.flip({0})); },
        [](auto& x, auto& r, auto&, auto&) { return index_put(x, {r}, x.narrow(0, 1, 2)); },
        [](auto& x, auto&, auto& p, auto&) { return scatter(x, 0, p, x.narrow(0, 1, 2)); },
        [](auto& x, auto& r, auto&, auto&) { return index_copy(x, 0, r, x.narrow(0, 1, 2)); },
        [](auto& x, auto& r, auto&, auto&) { return put(x, r, x.narrow(0, 0, 1).narrow(1, 0, 2)); },
        [](auto& x, auto&, auto&, auto& m) { return where(m, x, x.flip({1})); },
        [](auto& x, auto&, auto&, auto& m) {
          return masked_fill(x, m, x.select(0, 0).select(0, 2));
        },
        [](auto& x, auto&, auto&, auto&) {
          return x.expand({2, 3, 4}).contiguous();
        },
    };
    int at = 0;
    for (const Move move : moves) {
      const Tensor moved = move(data, rows, places, mask);
      const Tensor expected = move(words, rows, places, mask);
      EXPECT_EQ(moved.dtype(), dtype) << at;
      EXPECT_TRUE(moved.view(expected.dtype()).equal(expected)) << dtype << " move " << at;
      ++at;
    }
    EXPECT_TRUE(nonzero(data).equal(nonzero(words)));
    Tensor into = zeros({3, 4}, options(dtype));
    into.narrow(1, 0, 2).copy_(data.narrow(1, 2, 2));
    EXPECT_TRUE(into.view(twin).narrow(1, 0, 2).equal(words.narrow(1, 2, 2)));
    if (device_count() > 1) {
      EXPECT_TRUE(data.to(Device::cuda(0)).cpu().view(twin).equal(words.cpu()));
    }
  }
}

TEST_P(DataDTypesTest, NegativeZeroOfAFloatIsNoNonzero) {
  for (const DType dtype : {f8e4m3, f8e5m2}) {
    const Tensor bits = tensor({0x00, 0x80, 0x01, 0x7f}, options(u8));
    EXPECT_EQ(elements(nonzero(bits.view(dtype))), (std::vector<double>{2, 3}));
  }
}

TEST_P(DataDTypesTest, EqualAndAllcloseCompareThem) {
  for (const DType dtype : kDataDTypes) {
    const Tensor a = tensor({1, 2, 3}, options(dtype));
    EXPECT_TRUE(a.equal(a.clone()));
    EXPECT_FALSE(a.equal(tensor({1, 2, 4}, options(dtype))));
    EXPECT_TRUE(allclose(a, tensor({1, 2, 4}, options(dtype)), 0, 1));
    EXPECT_FALSE(allclose(a, tensor({1, 2, 5}, options(dtype)), 0, 1));
    EXPECT_TRUE(allclose(a, a.clone(), 0, 0));
    EXPECT_ERROR(static_cast<void>(a.equal(ones({3}, options(f32)))), DTypeError, "did not match");
  }
  const Tensor zeros8 = tensor({0x00, 0x80}, options(u8)).view(f8e5m2);
  EXPECT_TRUE(zeros8.equal(zeros8.flip({0}))) << "0 equals -0";
  const Tensor nan = tensor({0x7f}, options(u8)).view(f8e4m3);
  EXPECT_FALSE(nan.equal(nan));
  EXPECT_TRUE(allclose(nan, nan, 0, 0, true));
  // f64 does not tell these apart.
  const Tensor large = tensor({(std::uint64_t{1} << 63) + 1}, {.device = device_});
  const Tensor next = tensor({(std::uint64_t{1} << 63) + 2}, {.device = device_});
  EXPECT_FALSE(large.equal(next));
  EXPECT_TRUE(large.equal(large.clone()));
}

TEST_P(DataDTypesTest, AreViewsOfDTypesOfOneWidth) {
  const Tensor bytes = tensor({0x38, 0xb8}, options(u8));
  EXPECT_EQ(elements(bytes.view(f8e4m3)), (std::vector<double>{1, -1}));
  EXPECT_EQ(elements(tensor({-1}, options(i64)).view(u64)), (std::vector<double>{0x1p64}));
  EXPECT_EQ(elements(tensor({-1}, options(i32)).view(u16)), (std::vector<double>{65535, 65535}));
}

TEST_P(DataDTypesTest, ArePrinted) {
  const std::string place = device_.str();
  EXPECT_EQ(tensor({1, 65535}, options(u16)).str(), "[    1, 65535]\n[2] u16 " + place);
  EXPECT_EQ(tensor({~std::uint64_t{0}}, {.device = device_}).str(),
            "[18446744073709551615]\n[1] u64 " + place);
  EXPECT_EQ(tensor({1.5, -2.}, options(f8e4m3)).str(), "[ 1.5000, -2.0000]\n[2] f8e4m3 " + place);
  EXPECT_EQ(tensor({1., 2.}, options(f8e5m2)).str(), "[1., 2.]\n[2] f8e5m2 " + place);
  EXPECT_EQ(arange(2000, options(i32)).to(u32).str(),
            "[   0,    1,    2,  ..., 1997, 1998, 1999]\n[2000] u32 " + place);
}

// Results that are cast, as those of 16-bit floats are.
TEST_P(DataDTypesTest, OutputsOfOtherDTypesAreCast) {
  Tensor out = zeros({2}, options(f8e4m3));
  add_out(out, tensor({1., 2.}, options(f32)), 0.5);
  EXPECT_EQ(elements(out), (std::vector<double>{1.5, 2.5}));
  EXPECT_EQ(elements(add(tensor({1, 2}, options(u16)), tensor({.5, .5}, options(f32)))),
            (std::vector<double>{1.5, 2.5}));
  EXPECT_EQ(elements(tensor({1, 65535}, options(u16)).sum({}, false, f32)),
            (std::vector<double>{65536}));
}

GANTRY_TEST_PLACES(DataDTypesTest);

}  // namespace
}  // namespace gantry
