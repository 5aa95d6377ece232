// Calls as users of PyTorch write them: that they compile, and mean what they say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <gantry/gantry.hpp>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/device_fixture.hpp"

namespace {

using namespace gantry;
using ::testing::ElementsAre;
using ::testing::ThrowsMessage;

class ApiSpellingsTest : public gantry::testing::DeviceTest {};

TEST_F(ApiSpellingsTest, EmptyTakesAVariableOfSizes) {
  // Not std::empty, which is found for these arguments too.
  std::vector<std::int64_t> sizes{2, 3};
  const Tensor from_vector = empty(sizes);
  EXPECT_EQ(from_vector.sizes(), Shape({2, 3}));
  const std::array<std::int64_t, 1> listed{4};
  const Tensor from_array = empty(listed);
  EXPECT_EQ(from_array.sizes(), Shape({4}));
  const Tensor from_span = empty(std::span(sizes));
  EXPECT_EQ(from_span.sizes(), Shape({2, 3}));
  EXPECT_EQ(empty(std::span<const std::int64_t>(listed)).sizes(), Shape({4}));
  EXPECT_EQ(empty(sizes, i64).dtype(), i64);
  EXPECT_EQ(empty(sizes, {.dtype = i64}).dtype(), i64);
  EXPECT_EQ(empty({2, 3}).sizes(), Shape({2, 3}));
  EXPECT_EQ(empty({}).dim(), 0);
  EXPECT_EQ(empty(5).sizes(), Shape({5}));
}

TEST_F(ApiSpellingsTest, AGeneratorMayStandForTheOptions) {
  Generator g(Device::cpu(), 7);
  const auto again = [&]() -> Generator& {
    g.manual_seed(7);
    return g;
  };
  EXPECT_TRUE(rand({2}, again()).equal(rand({2}, {}, again())));
  EXPECT_TRUE(randn({2}, again()).equal(randn({2}, {}, again())));
  EXPECT_TRUE(randint(0, 5, {2}, again()).equal(randint(0, 5, {2}, {}, again())));
  EXPECT_TRUE(randint(5, {2}, again()).equal(randint(5, {2}, {}, again())));
  EXPECT_TRUE(randperm(5, again()).equal(randperm(5, {}, again())));
  EXPECT_TRUE(rand({2}, &again()).equal(rand({2}, {}, again())));
  EXPECT_TRUE(rand({2}, Generator(Device::cpu(), 7)).equal(rand({2}, f32, again())));
  EXPECT_EQ(rand({2}, {}).sizes(), Shape({2}));
}

TEST_F(ApiSpellingsTest, ADevicesNameMayStandForTheOptions) {
  const std::string name = "cuda:0";
  EXPECT_EQ(zeros({2}, "cuda:0").device(), Device::cuda(0));
  EXPECT_EQ(ones({2}, name).device(), Device::cuda(0));
  EXPECT_EQ(rand({2}, std::string_view(name)).device(), Device::cuda(0));
  EXPECT_EQ(tensor({1, 2}, "cuda").device().type, DeviceType::cuda);
  EXPECT_THAT([] { (void)zeros({2}, "gpu"); },
              ThrowsMessage<InvalidArgument>(
                  "Invalid device string: 'gpu' (expected cpu, cuda or cuda:N)"));
}

TEST_F(ApiSpellingsTest, BlobsTakeStridesWithoutADeleter) {
  std::vector<float> values{0, 1, 2, 3, 4, 5};
  const Tensor columns = from_blob(values.data(), {3, 2}, {1, 3}, {.dtype = f32});
  EXPECT_THAT(columns.to_vector<float>(), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(from_blob(values.data(), {3, 2}, {1, 3}).strides(), Dims({1, 3}));
  EXPECT_EQ(from_blob(values.data(), {3, 2}, {1, 3}, f32).strides(), Dims({1, 3}));
  EXPECT_EQ(from_blob(values.data(), {6}, {}).strides(), Dims({1})) << "empty options";
  EXPECT_EQ(from_blob(values.data(), {3, 2}, {1, 3}, {}).strides(), Dims({1, 3}));
  Tensor memory = zeros({6}, "cuda:0");
  EXPECT_EQ(from_blob(memory.data(), {2}, {3}, "cuda:0").device(), Device::cuda(0));
  EXPECT_EQ(from_blob(memory.data(), {6}, "cuda:0").device(), Device::cuda(0));
  int deleted = 0;
  const auto count = [&](void*) { ++deleted; };
  (void)from_blob(values.data(), {6}, count, f32);
  (void)from_blob(values.data(), {6}, {1}, count, f32);
  EXPECT_EQ(deleted, 2);
}

TEST_F(ApiSpellingsTest, VisibleDevicesComeApart) {
  const std::vector<DeviceIdentity> all{{"GPU-a", ""}, {"GPU-b", ""}};
  const auto [visible, dropped] = parse_visible_devices("1,7", all);
  EXPECT_THAT(visible, ElementsAre(1));
  ASSERT_EQ(dropped.size(), 1u);
  const auto& [token, reason] = dropped.front();
  EXPECT_EQ(token, "7");
  EXPECT_EQ(reason, "there are only 2 devices");
  EXPECT_FALSE(parse_visible_devices("1,7", all).invalid());
  EXPECT_TRUE(parse_visible_devices("1,1", all).invalid());
}

TEST_F(ApiSpellingsTest, ElementsOfAConstTensorMayBeWritten) {
  const std::vector<Tensor> parameters{ones({2}, "cuda:0"), ones({3}, "cuda:0")};
  for (const Tensor& parameter : parameters) parameter.add_(1).mul_(2);
  EXPECT_THAT(parameters[0].to_vector<float>(), ElementsAre(4, 4));
  const Tensor& first = parameters[0];
  first.index_put_({0}, 7);
  first.narrow(0, 1, 1).fill_(5);
  EXPECT_THAT(first.to_vector<float>(), ElementsAre(7, 5));
  first.clamp_(6).neg_().copy_(first.abs()).masked_fill_(first.gt(6), 0);
  EXPECT_THAT(first.to_vector<float>(), ElementsAre(0, 6));
  first.uniform_().scatter_(0, zeros({1}, {.dtype = i64, .device = "cuda:0"}), 3);
  EXPECT_EQ(first[0].item<int>(), 3);
  for (const auto& parameter : parameters) parameter.zero_();
  EXPECT_EQ(parameters[1].count_nonzero().item<int>(), 0);
}

TEST_F(ApiSpellingsTest, PlatformsAndDevicesHaveNames) {
  std::ostringstream text;
  text << platform() << ' ' << Platform::none << ' ' << Device::cuda(1);
  EXPECT_EQ(text.str(), std::string(name(platform())) + " none cuda:1");
  const char* nothing = nullptr;
  EXPECT_THAT([&] { (void)Device(nothing); },
              ThrowsMessage<InvalidArgument>(
                  "Invalid device string: a null pointer (expected cpu, cuda or cuda:N)"));
}

TEST_F(ApiSpellingsTest, TensorsAreJoinedFromAnyList) {
  const Tensor a = tensor({1, 2});
  const Tensor b = tensor({3, 4});
  const std::vector<Tensor> list{a, b};
  const std::array<Tensor, 2> array{a, b};
  const Tensor plain[] = {a, b};
  const Tensor joined = cat({a, b});
  EXPECT_THAT(joined.to_vector<int>(), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(cat(list).equal(joined));
  EXPECT_TRUE(cat(array).equal(joined));
  EXPECT_TRUE(cat(plain).equal(joined));
  EXPECT_TRUE(cat(std::span<const Tensor>(list)).equal(joined));
  EXPECT_TRUE(cat(std::span(list).subspan(1), 0).equal(b));
  EXPECT_EQ(stack(array, 1).sizes(), Shape({2, 2}));
  EXPECT_EQ(stack(std::span(list)).sizes(), Shape({2, 2}));
  EXPECT_EQ(hstack(plain).sizes(), Shape({4}));
  EXPECT_EQ(vstack(array).sizes(), Shape({2, 2}));
  EXPECT_THROW((void)cat({}), InvalidArgument);
}

TEST_F(ApiSpellingsTest, NoDevicesInBracesAreAClearError) {
  const Tensor t = zeros({2});
  EXPECT_THAT(
      [&] { (void)comm::scatter(t, {}); },
      ThrowsMessage<InvalidArgument>("scatter: Expected at least one device to scatter to"));
  EXPECT_THAT(
      [&] { (void)comm::scatter(t, {}, {.dim = 0}); },
      ThrowsMessage<InvalidArgument>("scatter: Expected at least one device to scatter to"));
  EXPECT_THAT(
      [&] { (void)comm::broadcast(t, {}); },
      ThrowsMessage<InvalidArgument>("broadcast: expected at least one device, but got none"));
}

TEST_F(ApiSpellingsTest, CollectivesTakeTheirOptionsWithoutAnOperation) {
  Communicator world = Communicator::world();
  Tensor t = ones({2}, world.device());
  world.all_reduce(t, {.reproducible = false});
  world.all_reduce(t, {});
  world.all_reduce(t);
  world.all_reduce(t, ReduceOp::max);
  world.all_reduce(t, ReduceOp::sum, {.reproducible = false});
  world.reduce(t, 0, {.reproducible = false});
  Tensor out = zeros({2}, world.device());
  world.reduce_scatter(out, t, {.reproducible = false});
  world.all_reduce_coalesced({&t, 1}, {.reproducible = false});
  EXPECT_THAT(out.to_vector<float>(), ElementsAre(1, 1));
}

TEST_F(ApiSpellingsTest, ACpuNumberIsCloseToDeviceElements) {
  const Tensor t = tensor({1.0, 2.0}, "cuda:0");
  EXPECT_THAT(isclose(t, tensor(2.0)).to_vector<bool>(), ElementsAre(false, true));
  EXPECT_THAT(isclose(tensor(1.0), t).to_vector<bool>(), ElementsAre(true, false));
  EXPECT_FALSE(t.allclose(tensor(2.0)));
}

}  // namespace
