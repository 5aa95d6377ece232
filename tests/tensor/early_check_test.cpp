// Arguments are checked before anything is allocated or launched, also by composite operations. The
// error has the name of the operation that the user called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <gantry/memory/stats.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "device/sim/streams/sim_stream.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/tensor/refusal.hpp"

namespace gantry {
namespace {

constexpr int kDevices = 2;

// The operands, made before the counters start. `far` operands are on another device.
struct Operands {
  Tensor a = ones({4, 4}, {.device = "cuda:0"});
  Tensor far = ones({4, 4}, {.device = "cuda:1"});
  Tensor half = ones({4, 4}, {.dtype = f16, .device = "cuda:0"});
  Tensor ints = zeros({4, 4}, {.dtype = i64, .device = "cuda:0"});
  Tensor far_ints = zeros({4, 4}, {.dtype = i64, .device = "cuda:1"});
  Tensor bytes = zeros({4, 4}, {.dtype = u8, .device = "cuda:0"});
  Tensor mask = zeros({4, 4}, {.dtype = bool_, .device = "cuda:0"});
  Tensor far_mask = zeros({4, 4}, {.dtype = bool_, .device = "cuda:1"});
  Tensor short_mask = zeros({3}, {.dtype = bool_, .device = "cuda:0"});
  Tensor vector = ones({4}, {.device = "cuda:0"});
  Tensor far_vector = ones({4}, {.device = "cuda:1"});
  Tensor doubles = ones({3}, {.dtype = f64, .device = "cuda:0"});
  Tensor short_ints = zeros({3}, {.dtype = i64, .device = "cuda:0"});
  Tensor number = ones({}, {.dtype = f64, .device = "cuda:0"});
  Tensor far_number = ones({}, {.device = "cuda:1"});
  Tensor single = ones({}, {.device = "cuda:0"});
  Tensor triple = ones({3}, {.device = "cuda:0"});
  Tensor cube = ones({2, 4, 4}, {.device = "cuda:0"});
  Tensor far_cube = ones({2, 4, 4}, {.device = "cuda:1"});
  Tensor turned = a.t();
  Tensor repeated = vector.expand({4, 4});
  Tensor tall = ones({1, 1}, {.device = "cuda:0"}).expand({std::int64_t{1} << 40, 1});
  Tensor wide = number.expand({std::int64_t{1} << 40});
};

struct Row {
  std::string operation;  // the name in the error
  std::string kind;
  std::function<void(Operands&)> call;
};

#define GANTRY_CALL(expression) []([[maybe_unused]] Operands& o) { static_cast<void>(expression); }

std::vector<Row> indexing_rows() {
  return {
      {"scatter", "DeviceMismatchError", GANTRY_CALL(o.a.scatter(0, o.far_ints, o.a))},
      {"scatter", "DeviceMismatchError", GANTRY_CALL(o.a.scatter(0, o.ints, o.far))},
      {"scatter", "DeviceMismatchError", GANTRY_CALL(o.a.scatter(0, o.far_ints, 1))},
      {"scatter", "IndexError", GANTRY_CALL(o.a.scatter(2, o.ints, o.half))},
      {"scatter", "IndexError", GANTRY_CALL(o.a.scatter(2, o.ints, 1))},
      {"scatter", "DTypeError", GANTRY_CALL(o.a.scatter(0, o.a, 1))},
      {"scatter", "DTypeError", GANTRY_CALL(o.a.scatter(0, o.ints, o.half))},
      {"scatter", "ShapeError", GANTRY_CALL(o.a.scatter(0, o.short_ints, 1))},
      {"scatter", "InvalidArgument", GANTRY_CALL(o.bytes.scatter(0, o.ints, 300))},
      {"scatter", "DeviceMismatchError", GANTRY_CALL(o.a.scatter_(0, o.far_ints, 1))},
      {"scatter", "IndexError", GANTRY_CALL(o.a.scatter_(2, o.ints, 1))},
      {"scatter", "DTypeError", GANTRY_CALL(o.a.scatter_(0, o.a, 1))},
      {"scatter", "ShapeError", GANTRY_CALL(o.a.scatter_(0, o.short_ints, 1))},
      {"scatter", "InvalidArgument", GANTRY_CALL(o.bytes.scatter_(0, o.ints, 300))},
      {"scatter", "InvalidArgument", GANTRY_CALL(o.repeated.scatter_(0, o.ints, 1))},
      {"scatter_add", "DeviceMismatchError", GANTRY_CALL(o.a.scatter_add_(0, o.ints, o.far))},
      {"gather", "DeviceMismatchError", GANTRY_CALL(o.a.gather(0, o.far_ints))},
      {"gather", "DTypeError", GANTRY_CALL(o.a.gather(0, o.a))},
      {"index_select", "IndexError", GANTRY_CALL(o.a.index_select(2, o.short_ints))},
      {"index_put_", "ShapeError", GANTRY_CALL(o.a.index_put_({0}, o.doubles))},
      {"index_put_", "ShapeError", GANTRY_CALL(o.a.index_put_({0}, o.doubles, true))},
      {"masked_fill", "DeviceMismatchError", GANTRY_CALL(o.a.masked_fill(o.far_mask, 1))},
      {"masked_fill", "DeviceMismatchError", GANTRY_CALL(o.a.masked_fill(o.mask, o.far_number))},
      {"masked_fill", "DTypeError", GANTRY_CALL(o.a.masked_fill(o.a, 1))},
      {"masked_fill", "ShapeError", GANTRY_CALL(o.a.masked_fill(o.mask, o.vector))},
      {"masked_fill", "ShapeError", GANTRY_CALL(o.a.masked_fill(o.short_mask, o.number))},
      {"masked_fill", "InvalidArgument", GANTRY_CALL(o.bytes.masked_fill(o.mask, 300))},
      {"masked_fill", "InvalidArgument", GANTRY_CALL(o.a.masked_fill(o.mask, Tensor()))},
      {"masked_fill_", "DeviceMismatchError", GANTRY_CALL(o.a.masked_fill_(o.far_mask, 1))},
      {"masked_fill_", "DeviceMismatchError", GANTRY_CALL(o.a.masked_fill_(o.mask, o.far_number))},
      {"masked_fill_", "DTypeError", GANTRY_CALL(o.a.masked_fill_(o.a, 1))},
      {"masked_fill_", "ShapeError", GANTRY_CALL(o.a.masked_fill_(o.short_mask, o.number))},
      {"masked_fill_", "ShapeError", GANTRY_CALL(o.vector.masked_fill_(o.mask, o.number))},
      {"masked_fill_", "InvalidArgument", GANTRY_CALL(o.repeated.masked_fill_(o.mask, o.number))},
  };
}

std::vector<Row> elementwise_rows() {
  return {
      {"addcmul", "DeviceMismatchError", GANTRY_CALL(addcmul(o.far_ints, o.ints, o.ints))},
      {"addcmul", "DeviceMismatchError", GANTRY_CALL(addcmul(o.ints, o.ints, o.far_ints))},
      {"addcmul", "DeviceMismatchError", GANTRY_CALL(addcmul(o.a, o.half, o.far))},
      {"addcmul", "ShapeError", GANTRY_CALL(addcmul(o.short_ints, o.ints, o.bytes))},
      {"addcmul", "DTypeError", GANTRY_CALL(addcmul(o.ints, o.ints, o.bytes, 1.5))},
      {"addcmul", "ShapeError", GANTRY_CALL(o.ints.addcmul_(o.ints, o.short_ints))},
      {"addcmul", "ShapeError", GANTRY_CALL(o.short_ints.addcmul_(o.ints, o.ints))},
      {"addcmul", "DeviceMismatchError",
       GANTRY_CALL(addcmul_out(o.far_ints, o.ints, o.ints, o.ints))},
      {"addcmul", "DTypeError", GANTRY_CALL(addcmul_out(o.mask, o.ints, o.ints, o.ints))},
      {"addcdiv", "DTypeError", GANTRY_CALL(addcdiv(o.ints, o.bytes, o.ints))},
      {"addcdiv", "DeviceMismatchError", GANTRY_CALL(addcdiv(o.a, o.half, o.far))},
      {"nan_to_num", "DeviceMismatchError", GANTRY_CALL(nan_to_num_out(o.far, o.a))},
      {"nan_to_num", "DeviceMismatchError", GANTRY_CALL(nan_to_num_out(o.far_ints, o.ints))},
      {"nan_to_num", "ShapeError", GANTRY_CALL(nan_to_num_out(o.vector, o.a))},
      {"nan_to_num", "DTypeError", GANTRY_CALL(nan_to_num_out(o.ints, o.a))},
      {"nan_to_num", "InvalidArgument", GANTRY_CALL(nan_to_num(Tensor()))},
      {"nan_to_num", "InvalidArgument", GANTRY_CALL(o.repeated.nan_to_num_())},
      {"clamp", "DeviceMismatchError", GANTRY_CALL(clamp(o.a, o.far_number))},
      {"clamp", "ShapeError", GANTRY_CALL(clamp(o.a, o.doubles, 2))},
      {"lerp", "DeviceMismatchError", GANTRY_CALL(lerp(o.a, o.half, o.far))},
      {"lerp", "DTypeError", GANTRY_CALL(lerp(o.ints, o.bytes, 1))},
      {"where", "DeviceMismatchError", GANTRY_CALL(where(o.mask, o.half, o.far))},
      {"where", "DTypeError", GANTRY_CALL(where(o.a, o.half, o.a))},
      {"isclose", "DeviceMismatchError", GANTRY_CALL(isclose(o.a, o.far))},
      {"isclose", "ShapeError", GANTRY_CALL(isclose(o.ints, o.short_ints))},
      {"isclose", "InvalidArgument", GANTRY_CALL(isclose(o.half, o.half, -1))},
      {"allclose", "DTypeError", GANTRY_CALL(allclose(o.a, o.half))},
      {"add", "DTypeError", GANTRY_CALL(o.ints.add_(o.a))},
      {"add", "ShapeError", GANTRY_CALL(o.doubles.add_(o.a))},
      {"mul", "ShapeError", GANTRY_CALL(mul(o.tall, o.wide))},
      {"div", "DTypeError", GANTRY_CALL(div_out(o.ints, o.ints, o.bytes))},
      {"pow", "InvalidArgument", GANTRY_CALL(pow(o.ints, -1))},
      {"copy_", "ShapeError", GANTRY_CALL(o.a.copy_(o.doubles))},
      {"fill_", "InvalidArgument", GANTRY_CALL(o.bytes.fill_(300))},
  };
}

std::vector<Row> math_rows() {
  return {
      {"softmax", "DTypeError", GANTRY_CALL(softmax(o.ints, 0, i32))},
      {"softmax", "DTypeError", GANTRY_CALL(softmax(o.a, 0, i32))},
      {"softmax", "IndexError", GANTRY_CALL(softmax(o.a, 2, f64))},
      {"log_softmax", "DTypeError", GANTRY_CALL(log_softmax(o.ints, 0, i32))},
      {"cumsum", "IndexError", GANTRY_CALL(cumsum(o.a, 2, f64))},
      {"sum", "IndexError", GANTRY_CALL(sum(o.a, 2, false, i32))},
      {"prod", "IndexError", GANTRY_CALL(prod(o.a, 2, false, i32))},
      {"mean", "DTypeError", GANTRY_CALL(mean(o.a, 0, false, i32))},
      {"norm", "IndexError", GANTRY_CALL(norm(o.half, 3, 2))},
      {"norm", "DTypeError", GANTRY_CALL(norm(o.ints, 3))},
      {"var", "IndexError", GANTRY_CALL(var(o.half, {.dims = 2}))},
      {"std", "DTypeError", GANTRY_CALL(gantry::std(o.ints))},
      {"logsumexp", "IndexError", GANTRY_CALL(logsumexp(o.ints, 2))},
      {"argmax", "IndexError", GANTRY_CALL(argmax(o.turned, 2))},
      {"matmul", "DTypeError", GANTRY_CALL(matmul(o.turned, o.half))},
      {"matmul", "DeviceMismatchError", GANTRY_CALL(matmul(o.cube, o.far))},
      {"matmul", "ShapeError", GANTRY_CALL(matmul(o.cube, o.single))},
      {"bmm", "DeviceMismatchError", GANTRY_CALL(bmm(o.cube, o.far_cube))},
      {"mv", "DeviceMismatchError", GANTRY_CALL(mv(o.turned, o.far_vector))},
      {"dot", "DTypeError", GANTRY_CALL(dot(o.vector, o.doubles))},
      {"outer", "DeviceMismatchError", GANTRY_CALL(outer(o.vector, o.far_vector))},
      {"addmm", "DeviceMismatchError", GANTRY_CALL(addmm(o.far, o.turned, o.a))},
      {"addmm", "ShapeError", GANTRY_CALL(addmm(o.cube, o.turned, o.a))},
      {"addmv", "DeviceMismatchError", GANTRY_CALL(addmv(o.far_vector, o.turned, o.vector))},
      {"baddbmm", "ShapeError", GANTRY_CALL(baddbmm(o.triple, o.cube, o.cube))},
      {"cat", "ShapeError", GANTRY_CALL(cat({o.a, o.vector}))},
      {"stack", "DeviceMismatchError", GANTRY_CALL(stack({o.turned, o.far}))},
      {"hstack", "ShapeError", GANTRY_CALL(hstack({o.turned, o.cube}))},
      {"vstack", "ShapeError", GANTRY_CALL(vstack({o.turned, o.doubles}))},
      {"roll", "IndexError", GANTRY_CALL(o.turned.roll(1, 2))},
      {"flip", "IndexError", GANTRY_CALL(o.turned.flip(2))},
      {"repeat", "ShapeError", GANTRY_CALL(o.turned.repeat({-1, 2}))},
      {"repeat", "ShapeError", GANTRY_CALL(o.turned.repeat({std::int64_t{1} << 57, 1}))},
      {"repeat", "ShapeError",
       GANTRY_CALL(o.turned.repeat({std::int64_t{1} << 40, std::int64_t{1} << 40}))},
      {"tile", "ShapeError", GANTRY_CALL(o.turned.tile(-1))},
      {"repeat_interleave", "ShapeError", GANTRY_CALL(o.turned.repeat_interleave(INT64_MAX))},
      {"repeat_interleave", "ShapeError",
       GANTRY_CALL(o.turned.repeat_interleave(std::int64_t{1} << 57))},
      {"repeat_interleave", "ShapeError",
       GANTRY_CALL(o.turned.repeat_interleave(std::int64_t{1} << 60, 0))},
      {"repeat_interleave", "IndexError", GANTRY_CALL(o.turned.repeat_interleave(2, 2))},
      {"tril", "ShapeError", GANTRY_CALL(o.vector.tril())},
      {"rand", "ShapeError", GANTRY_CALL(rand({-1}, Device::cuda(0)))},
      {"randn", "ShapeError", GANTRY_CALL(randn({-1}, Device::cuda(0)))},
      {"randint", "ShapeError", GANTRY_CALL(randint(9, {-1}, Device::cuda(0)))},
      {"bernoulli", "DTypeError", GANTRY_CALL(bernoulli(o.ints))},
      {"bernoulli_", "InvalidArgument", GANTRY_CALL(o.a.bernoulli_(2))},
      {"uniform_", "InvalidArgument", GANTRY_CALL(o.a.uniform_(2, 1))},
  };
}
#undef GANTRY_CALL

std::vector<std::int64_t> allocations() {
  std::vector<std::int64_t> counts;
  for (int i = 0; i < kDevices; ++i) {
    counts.push_back(memory::stats_map(Device::cuda(i)).at("allocation.all.allocated"));
  }
  return counts;
}

// The number of tasks of the current streams. Only simulated pool streams count them.
std::vector<std::uint64_t> launches() {
  std::vector<std::uint64_t> counts;
  if (platform() != Platform::simulated) return counts;
  for (int i = 0; i < kDevices; ++i) {
    const void* stream = Stream::current(Device::cuda(i)).native().handle;
    counts.push_back(static_cast<const sim::SimStream*>(stream)->submitted());
  }
  return counts;
}

class EarlyCheckTest : public testing::DeviceTest {
 protected:
  static void expect_refused(const std::vector<Row>& rows) {
    GANTRY_REQUIRE_DEVICES(kDevices);
    const MultiStreamGuard streams(
        {Stream::from_pool(Device::cuda(0)), Stream::from_pool(Device::cuda(1))});
    Operands operands;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Row& row = rows[i];
      SCOPED_TRACE("row " + std::to_string(i) + " of " + row.operation);
      const std::vector<std::int64_t> allocated = allocations();
      const std::vector<std::uint64_t> launched = launches();
      const auto [kind, text, device] = testing::refusal_of([&] { row.call(operands); });
      EXPECT_EQ(kind, row.kind) << text;
      EXPECT_EQ(allocations(), allocated) << text;
      EXPECT_EQ(launches(), launched) << text;
      if (kind == "DeviceMismatchError") {
        EXPECT_THAT(text, ::testing::EndsWith(" in " + row.operation + ")"));
      } else {
        EXPECT_THAT(text, ::testing::AnyOf(::testing::StartsWith(row.operation + ":"),
                                           ::testing::StartsWith(row.operation + "():")));
      }
    }
  }
};

TEST_F(EarlyCheckTest, IndexingChecksFirst) { expect_refused(indexing_rows()); }
TEST_F(EarlyCheckTest, ElementwiseOperationsCheckFirst) { expect_refused(elementwise_rows()); }
TEST_F(EarlyCheckTest, MathChecksFirst) { expect_refused(math_rows()); }

TEST_F(EarlyCheckTest, TheCountersWork) {
  GANTRY_REQUIRE_DEVICES(kDevices);
  const MultiStreamGuard streams(
      {Stream::from_pool(Device::cuda(0)), Stream::from_pool(Device::cuda(1))});
  const Tensor a = ones({4}, {.device = "cuda:1"});
  const std::vector<std::int64_t> allocated = allocations();
  const std::vector<std::uint64_t> launched = launches();
  static_cast<void>(a.neg());
  EXPECT_GT(allocations()[1], allocated[1]);
  if (!launched.empty()) {
    EXPECT_GT(launches()[1], launched[1]);
  }
}

}  // namespace
}  // namespace gantry
