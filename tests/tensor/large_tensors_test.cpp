// Tensors of more than 2^31 elements, and elements that are further apart than 2^31.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/tensor/binning.hpp>
#include <gantry/tensor/cumulative.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/outputs.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/shape_ops.hpp>
#include <gantry/tensor/sorting.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/sanitized.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kMany = (std::int64_t{1} << 31) + 8;

// One tensor of kMany bytes on a device serves each test; operands repeat one element (stride 0).
class LargeTensorsTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    testing::DeviceTest::SetUp();
    if (IsSkipped()) return;
    if (testing::kIsSanitized) GTEST_SKIP() << "a sanitizer makes 2^31 elements too slow";
    out_ = empty({kMany}, options(u8));
  }
  void TearDown() override {
    out_ = Tensor();
    memory::empty_cache();
    testing::DeviceTest::TearDown();
  }

  TensorOptions options(DType dtype) const { return {.dtype = dtype, .device = device_}; }
  // One number, kMany times.
  Tensor repeated(double number, DType dtype = u8) const {
    return full({1}, number, options(dtype)).expand({kMany});
  }
  // Zeros, and `number` at the end.
  Tensor zeros_and(double number) {
    out_.fill_(0);
    out_.select(0, kMany - 1).fill_(number);
    return out_;
  }
  std::int64_t total() const { return out_.sum().item<std::int64_t>(); }
  std::int64_t at(std::int64_t index) const { return out_.select(0, index).item<std::int64_t>(); }

  const Device device_ = Device::cuda(0);
  Tensor out_;
};

TEST_F(LargeTensorsTest, Elementwise) {
  add_out(out_, repeated(2), repeated(5));
  EXPECT_EQ(total(), 7 * kMany);
  out_.mul_(2);
  EXPECT_EQ(total(), 14 * kMany);
  where_out(out_, repeated(1, bool_), repeated(3), 0);
  EXPECT_EQ(total(), 3 * kMany);
}

TEST_F(LargeTensorsTest, ComparisonsAndConversions) {
  Tensor equal = out_.view(bool_);
  eq_out(equal, repeated(2), 2);
  EXPECT_EQ(total(), kMany);
  out_.copy_(repeated(7.5, f32));  // converts
  EXPECT_EQ(total(), 7 * kMany);
}

TEST_F(LargeTensorsTest, FillsAndCopies) {
  out_.fill_(3);
  EXPECT_EQ(total(), 3 * kMany);
  // Within one tensor: the second half, beyond 2^30, from the first.
  out_.narrow(0, 0, kMany / 2).fill_(4);
  out_.narrow(0, kMany / 2, kMany / 2).copy_(out_.narrow(0, 0, kMany / 2));
  EXPECT_EQ(total(), 4 * kMany);
  cat_out(out_, {repeated(1).narrow(0, 0, kMany - 5), repeated(2).narrow(0, 0, 5)});
  EXPECT_EQ(total(), kMany + 5);
  EXPECT_EQ(at(kMany - 6), 1);
  EXPECT_EQ(at(kMany - 5), 2);
}

// The host takes minutes for so many numbers; rand_shard reaches them there (distributions_test).
TEST_F(LargeTensorsTest, RandomNumbers) {
  GANTRY_REQUIRE_CUDA();
  Generator source(device_);
  source.manual_seed(5);
  out_.random_(0, 256, &source);
  const double mean = static_cast<double>(total()) / static_cast<double>(kMany);
  EXPECT_NEAR(mean, 127.5, 0.05);
  // The numbers behind 2^31 are not those of the begin.
  EXPECT_FALSE(out_.narrow(0, kMany - 8, 8).equal(out_.narrow(0, 0, 8)));
  EXPECT_FALSE(out_.narrow(0, kMany / 2, 8).equal(out_.narrow(0, 0, 8)));
}

TEST_F(LargeTensorsTest, Reductions) {
  EXPECT_EQ(repeated(3).sum().item<std::int64_t>(), 3 * kMany);
  EXPECT_EQ(repeated(3).count_nonzero().item<std::int64_t>(), kMany);
  EXPECT_TRUE(repeated(1, bool_).all().item<bool>());
  const Tensor last = zeros_and(9);
  EXPECT_EQ(last.amax().item<std::int64_t>(), 9);
  EXPECT_EQ(last.argmax().item<std::int64_t>(), kMany - 1);
  EXPECT_TRUE(last.any().item<bool>());
}

// The host takes too long for these two.
TEST_F(LargeTensorsTest, ReductionsToManyElements) {
  GANTRY_REQUIRE_CUDA();
  amax_out(out_, repeated(6).unsqueeze(0).expand({3, kMany}), 0);
  EXPECT_EQ(total(), 6 * kMany);
  amin_out(out_, repeated(2).unsqueeze(1).expand({kMany, 2}), 1);
  EXPECT_EQ(total(), 2 * kMany);
}

TEST_F(LargeTensorsTest, ReadsOfManyIndices) {
  GANTRY_REQUIRE_CUDA();
  const Tensor source = tensor({5, 8}, options(u8));
  const Tensor index = full({1}, 1, options(i64)).expand({kMany});
  index_select_out(out_, source, 0, index);
  EXPECT_EQ(total(), 8 * kMany);
  gather_out(out_, source, 0, index);
  EXPECT_EQ(at(kMany - 1), 8);
}

TEST_F(LargeTensorsTest, IndicesBehindTheFirstElements) {
  const Tensor last = out_;
  const Tensor index = tensor({kMany - 1, kMany - 2, std::int64_t{0}}, options(i64));
  last.narrow(0, 0, 1).fill_(0);
  last.narrow(0, kMany - 2, 2).copy_(tensor({0, 9}, options(u8)));
  const auto read = [](const Tensor& t) { return t.to_vector<std::int64_t>(); };
  EXPECT_THAT(read(last.index_select(0, index)), ElementsAre(9, 0, 0));
  EXPECT_THAT(read(last.gather(0, index)), ElementsAre(9, 0, 0));
  EXPECT_THAT(read(last.take(index)), ElementsAre(9, 0, 0));
  EXPECT_THAT(read(last.index({index})), ElementsAre(9, 0, 0));
  const Tensor values = tensor({1, 2, 3}, options(u8));
  last.scatter_(0, index, values);
  EXPECT_THAT(read(last.take(index)), ElementsAre(1, 2, 3));
  last.scatter_add_(0, index, values);
  last.index_add_(0, index, values);
  EXPECT_THAT(read(last.take(index)), ElementsAre(3, 6, 9));
  last.index_put_({index}, values, true);
  EXPECT_THAT(read(last.take(index)), ElementsAre(4, 8, 12));
  last.index_copy_(0, index, values);
  last.put_(index, values, true);
  EXPECT_THAT(read(last.take(index)), ElementsAre(2, 4, 6));
  last.index_fill_(0, index, 7);
  EXPECT_THAT(read(last.take(index)), ElementsAre(7, 7, 7));
}

TEST_F(LargeTensorsTest, Compactions) {
  const Tensor last = zeros_and(1);
  last.select(0, 4).fill_(1);
  EXPECT_THAT(last.nonzero().to_vector<std::int64_t>(), ElementsAre(4, kMany - 1));
  const Tensor mask = last.view(bool_);
  EXPECT_THAT(repeated(6).masked_select(mask).to_vector<std::int64_t>(), ElementsAre(6, 6));
}

TEST_F(LargeTensorsTest, SearchesAndCounts) {
  const Tensor last = zeros_and(1);
  EXPECT_EQ(searchsorted(last, 1).item<std::int64_t>(), kMany - 1);
  EXPECT_THAT(bincount(last).to_vector<std::int64_t>(), ElementsAre(kMany - 1, 1));
  EXPECT_THAT(histc(last, 2, 0, 2).to_vector<std::int64_t>(), ElementsAre(kMany - 1, 1));
}

// Two rows that are further apart than 2^31 elements.
TEST_F(LargeTensorsTest, StridesBeyondTwoToThe31st) {
  const Tensor far = out_.as_strided({2, 8}, {kMany - 8, 1});
  far.copy_(tensor({{3, 1, 4, 1, 5, 9, 2, 6}, {5, 3, 5, 8, 9, 7, 9, 3}}, options(u8)));
  const Tensor near = far.contiguous();
  const Tensor positions = tensor({{7, 0, 2}, {1, 1, 6}}, options(i64));
  const Tensor columns = tensor({1, 0}, options(i64));
  struct Case {
    const char* name;
    std::function<Tensor(const Tensor&)> run;
  };
  const Case cases[] = {
      {"clone", [](const Tensor& t) { return t.clone(); }},
      {"transposed", [](const Tensor& t) { return t.t().contiguous(); }},
      {"add", [](const Tensor& t) { return t.add(t.narrow(1, 0, 1)); }},
      {"exp", [](const Tensor& t) { return t.exp(); }},
      {"addcmul", [](const Tensor& t) { return t.addcmul(t, t, 2); }},
      {"lt", [](const Tensor& t) { return t.lt(5); }},
      {"where", [](const Tensor& t) { return where(t.gt(4), t, 0); }},
      {"sum", [](const Tensor& t) { return t.sum(1); }},
      {"sum of columns", [](const Tensor& t) { return t.sum(0); }},
      {"argmin", [](const Tensor& t) { return t.argmin(1); }},
      {"argmax of columns", [](const Tensor& t) { return t.argmax(0); }},
      {"cumsum", [](const Tensor& t) { return t.cumsum(0); }},
      {"cummax", [](const Tensor& t) { return t.cummax(0).values; }},
      {"softmax", [](const Tensor& t) { return t.softmax(0, f32); }},
      {"sort", [](const Tensor& t) { return t.sort(1).indices; }},
      {"sort of columns", [](const Tensor& t) { return t.sort(0).values; }},
      {"topk", [](const Tensor& t) { return t.topk(3, 1).values; }},
      {"kthvalue", [](const Tensor& t) { return t.kthvalue(2, 0).values; }},
      {"mode", [](const Tensor& t) { return t.mode(1).values; }},
      {"unique", [](const Tensor& t) { return t.unique().values; }},
      {"gather", [&](const Tensor& t) { return t.gather(1, positions); }},
      {"index_select", [&](const Tensor& t) { return t.index_select(0, columns); }},
      {"index",
       [&](const Tensor& t) {
         return t.index({columns, Slice(2, 5)});
       }},
      {"nonzero", [](const Tensor& t) { return t.gt(5).nonzero(); }},
      {"masked_select", [](const Tensor& t) { return t.masked_select(t.gt(5)); }},
      {"cat",
       [](const Tensor& t) {
         return cat({t, t}, 1);
       }},
      {"flip",
       [](const Tensor& t) {
         return t.flip({0, 1});
       }},
      {"triu", [](const Tensor& t) { return t.triu(); }},
      {"histc", [](const Tensor& t) { return t.histc(4); }},
      {"matmul", [](const Tensor& t) { return t.to(f32).matmul(t.to(f32).t()); }},
  };
  for (const Case& op : cases) {
    EXPECT_TRUE(op.run(far).equal(op.run(near))) << op.name;
  }
  // Writes.
  const Case writes[] = {
      {"mul_", [](const Tensor& t) { return t.mul_(3); }},
      {"scatter_", [&](const Tensor& t) { return t.scatter_(1, positions, 1); }},
      {"index_add_", [&](const Tensor& t) { return t.index_add_(0, columns, t.clone()); }},
      {"index_put_",
       [&](const Tensor& t) {
         return t.index_put_({columns, 1}, 77);
       }},
      {"masked_fill_", [](const Tensor& t) { return t.masked_fill_(t.gt(20), 2); }},
      {"index_fill_",
       [&](const Tensor& t) { return t.index_fill_(0, columns.narrow(0, 0, 1), 5); }},
  };
  for (const Case& op : writes) {
    (void)op.run(near);
    EXPECT_TRUE(op.run(far).equal(near)) << op.name;
  }
}

// More elements than 32 bits count: on GPUs only, where they take some milliseconds.
TEST(HugeTensorsTest, MoreElementsThan32BitsCount) {
  GANTRY_REQUIRE_CUDA();
  GANTRY_REQUIRE_DEVICES(1);
  constexpr std::size_t kNeeded = std::size_t{12} << 30;
  if (memory::mem_get_info(Device::cuda(0)).free < kNeeded) {
    GTEST_SKIP() << "needs 12 GiB of free GPU memory";
  }
  const std::int64_t n = (std::int64_t{1} << 32) + 11;
  const TensorOptions bytes{.dtype = u8, .device = Device::cuda(0)};
  {
    const Tensor x = full({n}, 2, bytes);
    EXPECT_EQ(x.sum().item<std::int64_t>(), 2 * n);
    const Tensor y = x.add(x);
    EXPECT_EQ(y.sum().item<std::int64_t>(), 4 * n);
    EXPECT_EQ(y.eq(4).count_nonzero().item<std::int64_t>(), n);
    y.select(0, n - 1).fill_(9);
    EXPECT_EQ(y.argmax().item<std::int64_t>(), n - 1);
    EXPECT_THAT(y.ne(4).nonzero().to_vector<std::int64_t>(), ElementsAre(n - 1));
    const Tensor index = tensor({n - 1, std::int64_t{0}}, {.dtype = i64, .device = x.device()});
    EXPECT_THAT(y.index_select(0, index).to_vector<std::int64_t>(), ElementsAre(9, 4));
    y.index_put_({index}, 1);
    EXPECT_EQ(y.sum().item<std::int64_t>(), 4 * (n - 2) + 2);
    x.copy_(y);
    EXPECT_EQ(x.narrow(0, n - 3, 3).to_vector<std::int64_t>(),
              (std::vector<std::int64_t>{4, 4, 1}));
  }
  memory::empty_cache();
}

}  // namespace
}  // namespace gantry
