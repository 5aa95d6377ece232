// Operations on operands of several devices, within PeerOperands.
#include <gantry/tensor/peer_operands.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/peer.hpp>
#include <gantry/streams/sanitizer.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/binning.hpp>
#include <gantry/tensor/contractions.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/jit.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/outputs.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/shape_ops.hpp>
#include <gantry/tensor/sorting.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/stream_hold.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::elements;
using testing::StreamHold;

class PeerOperandsTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    testing::DeviceTest::SetUp();
    if (IsSkipped()) return;
    GANTRY_REQUIRE_DEVICES(2);
    if (!can_access_peer(Device::cuda(0), Device::cuda(1)) ||
        !can_access_peer(Device::cuda(1), Device::cuda(0))) {
      GTEST_SKIP() << "needs peer access between cuda:0 and cuda:1";
    }
  }
  void TearDown() override {
    synchronize(Device::cuda(0));
    if (device_count() > 1) synchronize(Device::cuda(1));
    testing::DeviceTest::TearDown();
  }

  const Device near_ = Device::cuda(0);
  const Device far_ = Device::cuda(1);
};

// An operation of several operands, and the operands on the CPU.
struct Case {
  std::string name;
  std::vector<Tensor> operands;
  std::function<Tensor(const std::vector<Tensor>&)> run;
};

Tensor numbers(const Shape& sizes, DType dtype = f32) {
  const Tensor flat = arange(0, static_cast<double>(sizes.product()), 1, {.dtype = f32});
  return flat.mul(7).remainder(11).sub(4).to(dtype).reshape(sizes);
}

std::vector<Case> cases() {
  const Tensor a = numbers({3, 4});
  const Tensor b = numbers({3, 4}).add(2);
  const Tensor row = numbers({4});
  const Tensor mask = numbers({3, 4}).gt(0);
  const Tensor whole = numbers({3, 4}, i32);
  const Tensor index = tensor({2, 0, 1}, {.dtype = i64});
  const Tensor grid = tensor({0, 1, 2, 2, 1, 0, 0, 1, 2, 1, 1, 1}, {.dtype = i64}).view({3, 4});
  const Tensor left = numbers({3, 5});
  const Tensor right = numbers({5, 4});
  const Tensor bias = numbers({4});
  const Tensor batch = numbers({2, 3, 5});
  const Tensor batch2 = numbers({2, 5, 4});
  const Tensor edges = tensor({-3.0, 0.0, 2.0, 5.0});
  using Operands = const std::vector<Tensor>&;
  return {
      {"add", {a, b}, [](Operands t) { return add(t[0], t[1]); }},
      {"add, broadcast", {a, row}, [](Operands t) { return add(t[0], t[1], 2); }},
      {"mul, promoted", {a, whole}, [](Operands t) { return mul(t[0], t[1]); }},
      {"sub, promoted to the far dtype", {whole, a}, [](Operands t) { return sub(t[0], t[1]); }},
      {"transposed", {a, b}, [](Operands t) { return t[0].t().add(t[1].t()); }},
      {"far scalar", {a, numbers({})}, [](Operands t) { return mul(t[0], t[1]); }},
      {"add_", {a, b}, [](Operands t) { return t[0].clone().add_(t[1]); }},
      {"eq", {a, b}, [](Operands t) { return eq(t[0], t[1]); }},
      {"where", {a, mask, b}, [](Operands t) { return where(t[1], t[0], t[2]); }},
      {"member where", {a, mask, b}, [](Operands t) { return t[0].where(t[1], t[2]); }},
      {"masked_fill", {a, mask}, [](Operands t) { return t[0].masked_fill(t[1], 9); }},
      {"masked_fill_",
       {a, mask, numbers({})},
       [](Operands t) { return t[0].clone().masked_fill_(t[1], t[2]); }},
      {"lerp", {a, b, row}, [](Operands t) { return t[0].lerp(t[1], t[2]); }},
      {"addcmul", {a, b, row}, [](Operands t) { return t[0].addcmul(t[1], t[2], 2); }},
      {"isclose", {a, b}, [](Operands t) { return t[0].isclose(t[1]); }},
      {"cat",
       {a, b, a},
       [](Operands t) {
         return cat({t[0], t[1], t[2]});
       }},
      {"stack",
       {a, b},
       [](Operands t) {
         return stack({t[0], t[1]});
       }},
      {"index_select", {a, index}, [](Operands t) { return t[0].index_select(0, t[1]); }},
      {"gather", {a, grid}, [](Operands t) { return t[0].gather(0, t[1]); }},
      {"scatter_add_",
       {a, grid, b},
       [](Operands t) { return t[0].clone().scatter_add_(0, t[1], t[2]); }},
      {"index_add_",
       {a, index, b},
       [](Operands t) { return t[0].clone().index_add_(0, t[1], t[2]); }},
      {"index_copy_",
       {a, index, b},
       [](Operands t) { return t[0].clone().index_copy_(0, t[1], t[2]); }},
      {"index",
       {a, index},
       [](Operands t) {
         return t[0].index({t[1], 1});
       }},
      {"index by mask", {a, mask}, [](Operands t) { return t[0].index({t[1]}); }},
      {"index_put_",
       {a, index, row},
       [](Operands t) {
         Tensor out = t[0].clone();
         out.index_put_({t[1]}, t[2], true);
         return out;
       }},
      {"take", {a, grid}, [](Operands t) { return t[0].take(t[1]); }},
      {"masked_select", {a, mask}, [](Operands t) { return t[0].masked_select(t[1]); }},
      {"masked_scatter_",
       {a, mask, b},
       [](Operands t) { return t[0].clone().masked_scatter_(t[1], t[2]); }},
      {"mm", {left, right}, [](Operands t) { return mm(t[0], t[1]); }},
      {"mm, transposed", {right, left}, [](Operands t) { return mm(t[0].t(), t[1].t()); }},
      {"matmul", {batch, right}, [](Operands t) { return matmul(t[0], t[1]); }},
      {"bmm", {batch, batch2}, [](Operands t) { return bmm(t[0], t[1]); }},
      {"addmm", {bias, left, right}, [](Operands t) { return addmm(t[0], t[1], t[2], 2, 3); }},
      {"baddbmm", {a, batch, batch2}, [](Operands t) { return baddbmm(t[0], t[1], t[2]); }},
      {"addmv",
       {numbers({3}), left, numbers({5})},
       [](Operands t) { return addmv(t[0], t[1], t[2]); }},
      {"dot", {row, bias}, [](Operands t) { return dot(t[0], t[1]); }},
      {"outer", {row, index.to(f32)}, [](Operands t) { return outer(t[0], t[1]); }},
      {"addr", {a, numbers({3}), row}, [](Operands t) { return t[0].addr(t[1], t[2]); }},
      {"kron", {a, row}, [](Operands t) { return t[0].kron(t[1]); }},
      {"einsum",
       {left, right, row},
       [](Operands t) {
         return einsum("ij,jk,k->i", {t[0], t[1], t[2]});
       }},
      {"chain_matmul",
       {a, numbers({4, 2}), numbers({2, 7})},
       [](Operands t) {
         return chain_matmul({t[0], t[1], t[2]});
       }},
      {"searchsorted", {edges, a}, [](Operands t) { return searchsorted(t[0], t[1]); }},
      {"bincount", {grid.flatten(), b.flatten()}, [](Operands t) { return bincount(t[0], t[1]); }},
      {"isin", {a, row}, [](Operands t) { return isin(t[0], t[1]); }},
      {"diff", {a, row.unsqueeze(0)}, [](Operands t) { return t[0].diff(1, 0, t[1]); }},
      {"out=",
       {a, b},
       [](Operands t) {
         Tensor out = empty_like(t[0]);
         return add_out(out, t[0], t[1]);
       }},
      {"jit",
       {a, b},
       [](Operands t) {
         static const jit::Elementwise f =
             jit::elementwise("template <class T> T twice_sum(T x, T y) { return 2 * (x + y); }");
         return f(t[0], t[1]);
       }},
  };
}

TEST_F(PeerOperandsTest, EveryOperationGivesTheSameAsOnOneDevice) {
  for (const Case& op : cases()) {
    SCOPED_TRACE(op.name);
    std::vector<Tensor> local;
    std::vector<Tensor> spread;
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      local.push_back(op.operands[i].to(near_));
      spread.push_back(op.operands[i].to(i == 0 ? near_ : far_));
    }
    const Tensor wanted = op.run(local);
    std::vector<std::vector<double>> before;
    for (const Tensor& operand : spread) before.push_back(elements(operand));
    {
      const PeerOperands peers;
      const Tensor result = op.run(spread);
      EXPECT_EQ(result.device(), near_);
      EXPECT_EQ(result.dtype(), wanted.dtype());
      EXPECT_EQ(result.sizes(), wanted.sizes());
      EXPECT_EQ(elements(result), elements(wanted));
    }
    EXPECT_THAT([&] { (void)op.run(spread); },
                ::testing::ThrowsMessage<DeviceMismatchError>(::testing::HasSubstr("device")));
    for (std::size_t i = 0; i < spread.size(); ++i) EXPECT_EQ(elements(spread[i]), before[i]);
  }
}

TEST_F(PeerOperandsTest, TheOperationWaitsForTheOperandsDevice) {
  const StreamGuard far(Stream::from_pool(far_));
  const StreamGuard near(Stream::from_pool(near_));
  const Tensor a = ones({1000}, {.device = near_});
  const Tensor b = ones({1000}, {.device = far_});
  synchronize(far_);
  StreamHold hold(Stream::current(far_));
  b.fill_(5);
  const PeerOperands peers;
  const Tensor sum = a.add(b);
  const Event done = Stream::current(near_).record();
  EXPECT_FALSE(done.query());
  hold.release();
  EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(1000, 6));
}

TEST_F(PeerOperandsTest, TheOperandsDeviceWaitsForTheOperation) {
  const StreamGuard far(Stream::from_pool(far_));
  const StreamGuard near(Stream::from_pool(near_));
  const Tensor a = ones({1000}, {.device = near_});
  const Tensor b = ones({1000}, {.device = far_});
  synchronize(far_);
  synchronize(near_);
  StreamHold hold(Stream::current(near_));
  std::optional<Tensor> sum;
  {
    const PeerOperands peers;
    sum = a.add(b.to(f32));
  }
  b.fill_(5);
  const Event done = Stream::current(far_).record();
  EXPECT_FALSE(done.query());
  hold.release();
  EXPECT_EQ(sum->to_vector<float>(), std::vector<float>(1000, 2));
  EXPECT_EQ(b.to_vector<float>(), std::vector<float>(1000, 5));
}

// The operand's memory belongs to a third stream, which waits for nothing.
TEST_F(PeerOperandsTest, MemoryOfAnotherStreamIsKeptUntilTheOperationIsDone) {
  const StreamGuard near(Stream::from_pool(near_));
  const StreamGuard far(Stream::from_pool(far_));
  const Stream third = Stream::from_pool(far_);
  const auto make = [&] {
    const StreamGuard guard(third);
    return full({5000}, 3, {.dtype = f32, .device = far_});
  };
  // The whole memory, and views that begin behind its first byte.
  for (const std::int64_t first : {0, 1, 4999}) {
    const Tensor a = ones({5000 - first}, {.dtype = f32, .device = near_});
    std::optional<Tensor> b = make();
    const void* const address = b->data();
    synchronize(far_);
    synchronize(near_);
    StreamHold hold(Stream::current(near_));
    std::optional<Tensor> sum;
    {
      const PeerOperands peers;
      sum = a.add(b->narrow(0, first, 5000 - first));
      b.reset();
    }
    EXPECT_NE(make().data(), address) << first;
    hold.release();
    EXPECT_EQ(sum->to_vector<float>(),
              std::vector<float>(static_cast<std::size_t>(5000 - first), 4));
  }
}

TEST_F(PeerOperandsTest, AScopeKeepsNoMemoryBeyondTheNextOperand) {
  const Tensor a = ones({4}, {.device = near_});
  const Tensor second = ones({4}, {.device = far_});
  const PeerOperands peers;
  Storage storage;
  {
    const Tensor first = ones({4}, {.device = far_});
    storage = first.storage();
    (void)a.add(first);
  }
  (void)a.add(second);
  (void)a.add(second);
  // The test's own handle and the scope's: memory with another owner stays known.
  EXPECT_LE(storage.use_count(), 2);
  EXPECT_LE(second.storage().use_count(), 2);
}

TEST_F(PeerOperandsTest, TheSanitizerSeesTheOrder) {
  const StreamGuard far(Stream::from_pool(far_));
  const StreamGuard near(Stream::from_pool(near_));
  const Tensor a = ones({64}, {.device = near_});
  const Tensor b = ones({64}, {.device = far_});
  synchronize(far_);
  synchronize(near_);
  const sanitizer::Mode before = sanitizer::mode();
  sanitizer::enable(sanitizer::Mode::throw_);
  {
    const PeerOperands peers;
    b.fill_(2);
    const Tensor sum = a.add(b.t().t());
    b.fill_(3);
    EXPECT_EQ(sum.mul(b).to_vector<float>(), std::vector<float>(64, 9));
  }
  synchronize(far_);
  sanitizer::enable(before);
}

TEST_F(PeerOperandsTest, TheOperationIsOrderedWithEveryOtherDevice) {
  GANTRY_REQUIRE_DEVICES(3);
  const Device third = Device::cuda(2);
  if (!can_access_peer(near_, third)) GTEST_SKIP() << "needs peer access to cuda:2";
  const StreamGuard near(Stream::from_pool(near_));
  const StreamGuard far(Stream::from_pool(far_));
  const StreamGuard farther(Stream::from_pool(third));
  const Tensor a = ones({64}, {.device = near_});
  const Tensor b = ones({64}, {.device = far_});
  const Tensor c = ones({64}, {.device = third});
  for (const Device device : {near_, far_, third}) synchronize(device);
  const sanitizer::Mode before = sanitizer::mode();
  sanitizer::enable(sanitizer::Mode::throw_);
  {
    const PeerOperands peers;
    b.fill_(2);
    c.fill_(3);
    const Tensor sum = a.addcmul(b, c);
    b.fill_(0);
    c.fill_(0);
    EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(64, 7));
  }
  for (const Device device : {far_, third}) synchronize(device);
  sanitizer::enable(before);
}

TEST_F(PeerOperandsTest, ScopesNestAndBelongToTheirThread) {
  const Tensor a = ones({4}, {.device = near_});
  const Tensor b = ones({4}, {.device = far_});
  const PeerOperands outer;
  {
    const PeerOperands inner;
    (void)a.add(b);
  }
  EXPECT_NO_THROW((void)a.add(b));
  std::thread other([&] {
    EXPECT_ERROR(a.add(b), DeviceMismatchError, "cuda:0 and cuda:1");
    {
      const PeerOperands own;
      EXPECT_NO_THROW((void)a.add(b));
    }
    EXPECT_ERROR(a.add(b), DeviceMismatchError, "cuda:0 and cuda:1");
  });
  other.join();
  EXPECT_NO_THROW((void)a.add(b));
}

TEST_F(PeerOperandsTest, OutputsAndCpuTensorsKeepTheirRules) {
  const Tensor a = ones({4}, {.device = near_});
  const Tensor b = ones({4}, {.device = far_});
  const Tensor host = ones({4});
  Tensor indices = empty({4}, {.dtype = i64, .device = far_});
  Tensor values = empty({4}, {.device = near_});
  const PeerOperands peers;
  EXPECT_ERROR(a.add(host), DeviceMismatchError, "cuda:0 and cpu! (when checking argument other");
  EXPECT_ERROR(sort_out(values, indices, a), DeviceMismatchError,
               "cuda:0 and cuda:1! (when checking argument indices in sort");
  // An elementwise operation runs where its output is; every other one where its first input is.
  Tensor out = zeros({4}, {.device = far_});
  add_out(out, a, b);
  EXPECT_EQ(elements(out), std::vector<double>(4, 2));
  EXPECT_ERROR(cumsum_out(out, a, 0), DeviceMismatchError, "cuda:1 and cuda:0");
  EXPECT_ERROR(gather_out(out, a, 0, zeros({4}, {.dtype = i64, .device = far_})),
               DeviceMismatchError, "cuda:1 and cuda:0");
  EXPECT_EQ(elements(out), std::vector<double>(4, 2));
}

TEST_F(PeerOperandsTest, EveryPairOfDevicesWorks) {
  const PeerOperands peers;
  for (int i = 0; i < device_count(); ++i) {
    for (int k = 0; k < device_count(); ++k) {
      if (!can_access_peer(Device::cuda(i), Device::cuda(k))) continue;
      const Tensor a = full({3}, i + 1, {.dtype = f32, .device = Device::cuda(i)});
      const Tensor b = full({3}, 10 * k, {.dtype = f32, .device = Device::cuda(k)});
      EXPECT_EQ(elements(a.add(b)), std::vector<double>(3, i + 1 + 10 * k));
    }
  }
  const Tensor a = ones({3}, {.device = near_});
  const Tensor last = ones({3}, {.device = Device::cuda(device_count() - 1)});
  const Tensor b = ones({3}, {.device = far_});
  EXPECT_EQ(elements(a.addcmul(b, last)), std::vector<double>(3, 2));
  for (int i = 0; i < device_count(); ++i) synchronize(Device::cuda(i));
}

}  // namespace
}  // namespace gantry
