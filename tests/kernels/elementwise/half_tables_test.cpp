#include "kernels/host/elementwise/half_tables.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "kernels/elementwise/host_elementwise.hpp"
#include "kernels/elementwise/op_names.hpp"
#include "kernels/host/elementwise/unary_loop.hpp"
#include "tests/kernels/kernel_arrays.hpp"

namespace gantry::testing {
namespace {

using kernels::UnaryOp;

constexpr std::int64_t kValues = 65536;

// Every number of a 16-bit type.
Array every_number(DType dtype, const Layout& layout = contiguous({kValues})) {
  Array all(dtype, layout);
  for (std::int64_t i = 0; i < kValues; ++i) {
    if (dtype == DType::f16) {
      all.set(i, float16::from_bits(static_cast<std::uint16_t>(i)));
    } else {
      all.set(i, bfloat16::from_bits(static_cast<std::uint16_t>(i)));
    }
  }
  return all;
}

std::vector<UnaryOp> floating_ops() {
  std::vector<UnaryOp> ops;
  for (int op = 0; op < static_cast<int>(UnaryOp::bitwise_not); ++op) {
    ops.push_back(static_cast<UnaryOp>(op));
  }
  return ops;
}

void expect_same_bits(const Array& result, const Array& expected, UnaryOp op) {
  for (std::int64_t i = 0; i < kValues; ++i) {
    ASSERT_EQ(result.bits(i), expected.bits(i))
        << kernels::name_of(op) << " of the " << expected.dtype() << " with bits " << i;
  }
}

TEST(HalfTablesTest, HoldWhatTheFunctionsGiveForEveryNumber) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Array in = every_number(dtype);
    for (const UnaryOp op : floating_ops()) {
      Array expected(dtype, contiguous({kValues}));
      kernels::host::unary_loop(op, expected.ref(expected.bytes().data()),
                                in.ref(in.bytes().data()));
      // The second time there is a table, if ever.
      for (int time = 0; time < 2; ++time) {
        Array result(dtype, contiguous({kValues}));
        kernels::host::unary(op, result.ref(result.bytes().data()), in.ref(in.bytes().data()));
        ASSERT_NO_FATAL_FAILURE(expect_same_bits(result, expected, op));
      }
    }
  }
}

TEST(HalfTablesTest, ServeAnyLayoutAndResultsInPlace) {
  Array dense = every_number(DType::bf16);
  Array expected(DType::bf16, contiguous({kValues}));
  kernels::host::unary_loop(UnaryOp::erf, expected.ref(expected.bytes().data()),
                            dense.ref(dense.bytes().data()));
  (void)kernels::host::half_tables().find(UnaryOp::erf, DType::bf16, kValues);
  const Layout apart{"every third", {kValues}, {3}, 0, 3 * kValues};
  Array in = every_number(DType::bf16, apart);
  Array result(DType::bf16, apart);
  kernels::host::unary(UnaryOp::erf, result.ref(result.bytes().data()), in.ref(in.bytes().data()));
  expect_same_bits(result, expected, UnaryOp::erf);
  kernels::host::unary(UnaryOp::erf, in.ref(in.bytes().data()), in.ref(in.bytes().data()));
  expect_same_bits(in, expected, UnaryOp::erf);
}

TEST(HalfTablesTest, AreMadeOnceTheyPay) {
  kernels::host::HalfTables tables;
  EXPECT_EQ(tables.find(UnaryOp::atan, DType::f16, kValues - 1), nullptr);
  const std::uint16_t* const table = tables.find(UnaryOp::atan, DType::f16, 1);
  EXPECT_NE(table, nullptr);
  EXPECT_EQ(tables.find(UnaryOp::atan, DType::f16, 1), table);
  EXPECT_EQ(tables.find(UnaryOp::atan, DType::bf16, 1), nullptr) << "each dtype has its own";
  EXPECT_EQ(tables.find(UnaryOp::atan, DType::f32, kValues), nullptr);
  EXPECT_EQ(tables.find(UnaryOp::neg, DType::f16, kValues), nullptr) << "as fast without";
}

TEST(HalfTablesTest, ThreadsMakeOne) {
  kernels::host::HalfTables shared;
  std::vector<const std::uint16_t*> tables(8);
  std::vector<std::thread> threads;
  for (auto& table : tables) {
    threads.emplace_back(
        [&shared, &table] { table = shared.find(UnaryOp::acos, DType::bf16, kValues); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::uint16_t* table : tables) EXPECT_EQ(table, tables.front());
  EXPECT_NE(tables.front(), nullptr);
}

}  // namespace
}  // namespace gantry::testing
