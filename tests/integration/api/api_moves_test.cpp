// Copies between devices, the host and element types, and the same-device rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/gantry.hpp>
#include <string>
#include <vector>

#include "tests/support/device_fixture.hpp"

namespace {

using namespace gantry;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ApiMovesTest : public gantry::testing::DeviceTest {};

template <class Action>
std::string text_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(ApiMovesTest, ToReturnsItselfIfNothingChanges) {
  const Tensor t = ones({2}, {.device = "cuda:0"});
  EXPECT_TRUE(t.to(f32).is_view_of(t));
  EXPECT_TRUE(t.to(Device::cuda(0)).is_view_of(t));
  EXPECT_TRUE(t.to("cuda:0").is_view_of(t));
  EXPECT_TRUE(t.cuda().is_view_of(t));
  EXPECT_FALSE(t.to(f32, {.copy = true}).is_view_of(t));
  EXPECT_FALSE(t.to(Device::cuda(0), {.non_blocking = true, .copy = true}).is_view_of(t));
}

TEST_F(ApiMovesTest, EveryDirectionCarriesTheValues) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor host = arange(6).view({2, 3});
  const Tensor pinned = host.pin_memory();
  EXPECT_TRUE(pinned.is_pinned());
  const Tensor first = host.cuda(0);
  const Tensor second = first.to("cuda:1");
  EXPECT_EQ(second.device(), Device::cuda(1));
  EXPECT_TRUE(second.cpu().equal(host));
  EXPECT_TRUE(second.cuda(0).equal(first));
  EXPECT_TRUE(pinned.to(Device::cuda(1), {.non_blocking = true}).equal(second));
  EXPECT_TRUE(second.t().to("cuda:0").equal(first.t()));
  EXPECT_TRUE(second.t().cpu().equal(host.t()));
}

TEST_F(ApiMovesTest, ToConvertsAndMovesAtOnce) {
  const Tensor t = tensor({1.75, -2.5});
  const Tensor moved = t.to({.dtype = i32, .device = "cuda:0"});
  EXPECT_EQ(moved.dtype(), i32);
  EXPECT_THAT(moved.to_vector<int>(), ElementsAre(1, -2));
  EXPECT_EQ(t.to(Device::cuda(0), f16).dtype(), f16);
  EXPECT_EQ(t.to("cuda:0", f64, {.copy = true}).device(), Device::cuda(0));
  EXPECT_EQ(t.type_as(moved).device(), Device::cuda(0));
  EXPECT_EQ(t.type_as(moved).dtype(), i32);
}

TEST_F(ApiMovesTest, CopyOverwritesBroadcastsAndConverts) {
  GANTRY_REQUIRE_DEVICES(2);
  Tensor target = zeros({2, 2}, {.dtype = i32, .device = "cuda:0"});
  target.copy_(tensor({1.5, 2.5}, {.device = "cuda:1"}));
  EXPECT_THAT(target.to_vector<int>(), ElementsAre(1, 2, 1, 2));
  target.t().copy_(tensor({3, 4}));
  EXPECT_THAT(target.to_vector<int>(), ElementsAre(3, 3, 4, 4));
  Tensor host = empty({2, 2}, {.dtype = i32, .pinned = true});
  host.copy_(target, {.non_blocking = true});
  Stream::current(Device::cuda(0)).synchronize();
  EXPECT_TRUE(host.equal(target.cpu()));
  EXPECT_THROW(target.copy_(zeros({3})), ShapeError);
}

TEST_F(ApiMovesTest, RecordStreamKeepsMemoryForAStream) {
  const Stream side = Stream::from_pool(Device::cuda(0));
  Tensor result = zeros({1024}, {.dtype = i32, .device = "cuda:0"});
  side.wait(Stream::current());
  {
    const Tensor source = full({1024}, 5, {.dtype = i32, .device = "cuda:0"});
    side.wait(Stream::current());
    StreamGuard guard(side);
    result.copy_(source);
    source.record_stream(side);
  }
  const Tensor later = full({1024}, 9, {.dtype = i32, .device = "cuda:0"});
  Stream::current().wait(side);
  EXPECT_EQ(result.sum().item<int>(), 5 * 1024);
}

TEST_F(ApiMovesTest, OperandsLiveOnOneDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor a = ones({2}, {.device = "cuda:0"});
  const Tensor b = ones({2}, {.device = "cuda:1"});
  const std::string expected =
      "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and "
      "cuda:1!";
  EXPECT_THROW((void)(a + b), DeviceMismatchError);
  EXPECT_THAT(text_of([&] { (void)(a + b); }), HasSubstr(expected));
  EXPECT_THAT(text_of([&] { (void)cat({a, b}); }), HasSubstr(expected));
  EXPECT_THAT(text_of([&] { (void)where(a > 0, a, b); }), HasSubstr(expected));
  EXPECT_THAT(text_of([&] { (void)addmm(a, a.view({2, 1}), b.view({1, 2})); }), HasSubstr("addmm"));
  EXPECT_THAT(text_of([&] { (void)(a + ones({2})); }), HasSubstr("cuda:0 and cpu!"));
  EXPECT_THROW((void)a.equal(b), DeviceMismatchError);
}

TEST_F(ApiMovesTest, OneCpuScalarIsAllowed) {
  const Tensor t = ones({2}, {.device = "cuda:0"});
  EXPECT_THAT((t + scalar_tensor(2.0)).to_vector<float>(), ElementsAre(3, 3));
  EXPECT_THAT((scalar_tensor(2.0) - t).to_vector<float>(), ElementsAre(1, 1));
  EXPECT_THAT(text_of([&] { (void)addcmul(t, scalar_tensor(1.0), scalar_tensor(1.0)); }),
              HasSubstr("Trying to pass too many CPU scalars to non-CPU kernel!"));
  EXPECT_THROW((void)(ones({2}) + scalar_tensor(1.0, {.device = "cuda:0"})), DeviceMismatchError);
  Tensor host_scalar = scalar_tensor(1.0);
  EXPECT_THROW(host_scalar.add_(t), Error);
}

TEST_F(ApiMovesTest, ResultsStayOnTheOperandsDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor t = ones({2, 2}, {.device = "cuda:1"});
  EXPECT_EQ(current_device(), Device::cuda(0));
  EXPECT_EQ((t + 1).device(), Device::cuda(1));
  EXPECT_EQ(t.matmul(t).device(), Device::cuda(1));
  EXPECT_EQ(t.sum().device(), Device::cuda(1));
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(ApiMovesTest, IndexTensorsFollowTheDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor t = arange(4, {.device = "cuda:0"});
  EXPECT_THROW((void)t.index_select(0, tensor({1}, {.device = "cuda:1"})), DeviceMismatchError);
}

}  // namespace
