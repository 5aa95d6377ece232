#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/tensor.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/stream_hold.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::all_dtypes;
using testing::all_places;
using testing::converted;
using testing::elements;
using testing::Layout;
using testing::patterned;

std::vector<double> expected_after(const std::vector<double>& source, DType from, DType to) {
  std::vector<double> result;
  for (const double value : source) result.push_back(converted(value, from, to));
  return result;
}

// Copies between all layouts. Asserts that only the output's elements have changed.
void check_copies(DType from, DType to, Device source_place, Device out_place) {
  for (const Layout source_layout :
       {Layout::contiguous, Layout::transposed, Layout::sliced, Layout::offset, Layout::expanded}) {
    for (const Layout out_layout :
         {Layout::contiguous, Layout::transposed, Layout::sliced, Layout::offset}) {
      SCOPED_TRACE(::testing::Message()
                   << from << " " << source_layout << " on " << source_place << " to " << to << " "
                   << out_layout << " on " << out_place);
      const Tensor source = patterned(source_layout, from, source_place);
      Tensor out = patterned(out_layout, to, out_place);
      std::vector<double> whole = elements(Tensor::from_storage(
          out.storage(), {static_cast<std::int64_t>(out.storage().bytes() / out.element_size())},
          {1}, 0, to));
      const std::vector<double> wanted = expected_after(elements(source), from, to);
      const std::vector<std::int64_t> places = testing::addresses(out);
      for (std::size_t i = 0; i < places.size(); ++i) {
        whole[static_cast<std::size_t>(places[i])] = wanted[i];
      }
      out.copy_(source);
      const Tensor all = Tensor::from_storage(
          out.storage(), {static_cast<std::int64_t>(whole.size())}, {1}, 0, to);
      ASSERT_EQ(elements(all), whole);
    }
  }
}

class CopyDTypeTest : public ::testing::TestWithParam<DType> {};

TEST_P(CopyDTypeTest, ConvertsBetweenAllLayoutsOnEveryDevice) {
  for (const DType to : all_dtypes()) {
    for (const Device place : all_places()) check_copies(GetParam(), to, place, place);
  }
}

TEST_P(CopyDTypeTest, ConvertsBetweenAllLayoutsInAllDirections) {
  GANTRY_REQUIRE_DEVICES(1);
  std::vector<Device> places = all_places();
  places.resize(std::min<std::size_t>(places.size(), 3));
  for (const Device from : places) {
    for (const Device to : places) {
      if (from == to) continue;
      check_copies(GetParam(), GetParam(), from, to);
      for (const DType other : {bool_, u8, i32, bf16, f64}) {
        check_copies(GetParam(), other, from, to);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CopyDTypeTest, ::testing::ValuesIn(all_dtypes()),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(CopyTest, CopiesBetweenEveryPairOfDevices) {
  for (const Device from : all_places()) {
    for (const Device to : all_places()) {
      const Tensor source = patterned(Layout::contiguous, f32, from);
      const Tensor moved = source.to(to, {.copy = true});
      EXPECT_EQ(moved.device(), to);
      EXPECT_FALSE(moved.is_view_of(source));
      EXPECT_EQ(elements(moved), elements(source)) << from << " to " << to;
    }
  }
}

TEST(CopyTest, BroadcastsTheSource) {
  for (const Device from : all_places()) {
    for (const Device to : all_places()) {
      const Tensor row = tensor({1.5, 2.5, 3.5}, {.device = from});
      Tensor out = zeros({2, 3}, {.dtype = f64, .device = to});
      out.copy_(row);
      EXPECT_EQ(elements(out), (std::vector<double>{1.5, 2.5, 3.5, 1.5, 2.5, 3.5}));
      Tensor columns = zeros({3, 2}, {.dtype = i32, .device = to});
      columns.t().copy_(row);
      EXPECT_EQ(elements(columns), (std::vector<double>{1, 1, 2, 2, 3, 3}));
    }
  }
}

TEST(CopyTest, ConvertsSpecialNumbers) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Device place : all_places()) {
    const Tensor source =
        tensor({nan, inf, -inf, 3e10, -3e10, -0.5}, {.dtype = f64, .device = place});
    EXPECT_EQ(elements(source.to(i32)),
              (std::vector<double>{0, 2147483647, -2147483648.0, 2147483647, -2147483648.0, 0}));
    EXPECT_EQ(elements(source.to(u8)), (std::vector<double>{0, 255, 0, 255, 0, 0}));
    EXPECT_EQ(elements(source.to(bool_)), (std::vector<double>{1, 1, 1, 1, 1, 1}));
    const Tensor wide = tensor({300, -1, 256}, {.device = place});
    EXPECT_EQ(elements(wide.to(u8)), (std::vector<double>{44, 255, 0}));
    EXPECT_EQ(elements(wide.to(i8)), (std::vector<double>{44, -1, 0}));
  }
}

TEST(CopyTest, KeepsEmptyAndZeroDimTensors) {
  for (const Device from : all_places()) {
    for (const Device to : all_places()) {
      EXPECT_EQ(patterned(Layout::empty, f32, from).to(to).sizes(), (Shape{3, 0, 5}));
      const Tensor scalar = patterned(Layout::zero_dim, i16, from);
      EXPECT_EQ(elements(scalar.to(to)), elements(scalar));
    }
  }
}

TEST(CopyTest, ToReturnsItselfWhenNothingChanges) {
  for (const Device place : all_places()) {
    const Tensor source = patterned(Layout::transposed, f32, place);
    EXPECT_TRUE(source.to(place).is_view_of(source));
    EXPECT_TRUE(source.to(f32).is_view_of(source));
    EXPECT_TRUE(source.to(f32).strides() == source.strides());
    EXPECT_FALSE(source.to(f32, {.copy = true}).is_view_of(source));
    EXPECT_FALSE(source.to(f64).is_view_of(source));
    EXPECT_TRUE(source.type_as(source).is_view_of(source));
    EXPECT_FALSE(source.clone().is_view_of(source));
    EXPECT_TRUE(source.clone().is_contiguous());
    EXPECT_FALSE(source.contiguous().is_view_of(source));
    EXPECT_TRUE(source.clone().contiguous().sizes() == source.sizes());
  }
}

TEST(CopyTest, IsANoOpOntoItself) {
  for (const Device place : all_places()) {
    Tensor self = patterned(Layout::sliced, f32, place);
    const std::vector<double> before = elements(self);
    EXPECT_EQ(&self.copy_(self), &self);
    EXPECT_EQ(elements(self), before);
  }
}

class CopyStreamTest : public testing::DeviceTest {};

TEST_F(CopyStreamTest, NonBlockingCopiesFromPinnedMemoryDoNotBlock) {
  const Tensor source = patterned(Layout::contiguous, f32, Device::cpu(), true);
  ASSERT_TRUE(source.is_pinned());
  const Stream stream = Stream::from_pool();
  const StreamGuard guard(stream);
  Tensor out = empty({3, 4, 5}, {.device = "cuda"});
  testing::StreamHold hold(stream);
  out.copy_(source, {.non_blocking = true});
  EXPECT_FALSE(stream.query());
  const Tensor back = out.to(Device::cpu(), {.non_blocking = true});
  EXPECT_TRUE(back.is_pinned());
  EXPECT_FALSE(stream.query());
  hold.release();
  stream.synchronize();
  EXPECT_EQ(elements(back), elements(source));
}

TEST_F(CopyStreamTest, PinnedMemoryIsKeptUntilTheCopyIsDone) {
  const Stream stream = Stream::from_pool();
  const StreamGuard guard(stream);
  Tensor out = empty({3, 4, 5}, {.device = "cuda"});
  std::vector<double> wanted;
  {
    testing::StreamHold hold(stream);
    {
      const Tensor source = patterned(Layout::contiguous, f32, Device::cpu(), true);
      wanted = elements(source);
      const void* address = source.data();
      out.copy_(source, {.non_blocking = true});
      static_cast<void>(address);
    }
    // The allocator would reuse the block for the same size if it were free.
    Tensor other = empty({3, 4, 5}, {.pinned = true});
    other.fill_(-1);
  }
  stream.synchronize();
  EXPECT_EQ(elements(out), wanted);
}

TEST_F(CopyStreamTest, CrossDeviceCopiesAreOrderedWithBothStreams) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const bool dense : {true, false}) {
    SCOPED_TRACE(dense);
    const Stream from = Stream::from_pool(Device::cuda(0));
    const Stream to = Stream::from_pool(Device::cuda(1));
    const MultiStreamGuard guard(std::vector<Stream>{from, to});
    Tensor source = zeros({4, 4}, {.device = "cuda:0"});
    Tensor out = zeros({4, 4}, {.device = "cuda:1"});
    const Tensor snapshot = zeros({4, 4}, {.device = "cuda:1"});
    synchronize(Device::cuda(0));
    synchronize(Device::cuda(1));
    testing::StreamHold hold_from(from);
    testing::StreamHold hold_to(to);
    source.fill_(7);
    Tensor(snapshot).copy_(out);  // must read zeros: before the copy below
    if (dense) {
      out.copy_(source);
    } else {
      out.t().copy_(source);
    }
    source.fill_(9);              // must come after the copy has read
    Tensor result = out.clone();  // must see the copy
    EXPECT_FALSE(from.query());
    EXPECT_FALSE(to.query());
    hold_from.release();
    EXPECT_FALSE(to.query());
    hold_to.release();
    from.synchronize();
    to.synchronize();
    EXPECT_EQ(elements(snapshot), std::vector<double>(16, 0));
    EXPECT_EQ(elements(result), std::vector<double>(16, 7));
    EXPECT_EQ(elements(source), std::vector<double>(16, 9));
  }
}

TEST_F(CopyStreamTest, TheCurrentDeviceIsUnchanged) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor source = patterned(Layout::transposed, f32, Device::cuda(1));
  static_cast<void>(source.to(f64));
  static_cast<void>(source.cpu());
  static_cast<void>(source.to(Device::cuda(0)));
  static_cast<void>(source.to_vector<float>());
  EXPECT_EQ(current_device(), Device::cuda(0));
  EXPECT_EQ(source.clone().device(), Device::cuda(1));
}

TEST_F(CopyStreamTest, ItemWaitsForTheStream) {
  const Stream stream = Stream::from_pool();
  const StreamGuard guard(stream);
  Tensor value = zeros({}, {.dtype = i64, .device = "cuda"});
  value.fill_((std::int64_t{1} << 53) + 1);
  EXPECT_EQ(value.item<std::int64_t>(), (std::int64_t{1} << 53) + 1);
  EXPECT_EQ(full({1}, 2.5, {.device = "cuda"}).item<double>(), 2.5);
  EXPECT_TRUE(full({1, 1}, true, {.device = "cuda"}).item<bool>());
  EXPECT_EQ(tensor({1, 2, 3}, {.device = "cuda"}).to_vector<float>(),
            (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(tensor({0, 2}, {.device = "cuda"}).to_vector<bool>(), (std::vector<bool>{false, true}));
}

TEST_F(CopyStreamTest, APageableCopyDoesNotBlockOtherThreadsOfItsDevice) {
  const Device device = Device::cuda(0);
  for (const bool to_host : {true, false}) {
    testing::FaultDriver driver;
    const Tensor large = zeros({1 << 20}, {.device = device});
    Tensor host = zeros({1 << 20});
    synchronize(device);
    driver.reset_counts();
    const Stream stood = Stream::from_pool(device);
    testing::StreamHold hold(stood);
    std::thread waiting([&] {
      const StreamGuard guard(stood);
      if (to_host) {
        host.copy_(large);
      } else {
        Tensor(large).copy_(host);
      }
    });
    std::promise<void> passed;
    std::thread working([&] {
      const StreamGuard guard(Stream::from_pool(device));
      // The other thread has made the call in which it waits for the stream that is held.
      EXPECT_TRUE(testing::eventually(
          [&] { return driver.calls("copy") + driver.calls("synchronize_stream") > 0; }));
      const Tensor ours = ones({1 << 20}, {.device = device});
      EXPECT_EQ(ours.cpu()[0].item<int>(), 1);
      passed.set_value();
    });
    EXPECT_EQ(passed.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
    hold.release();
    working.join();
    waiting.join();
    synchronize(device);  // before the driver goes
  }
}

// Every 16-bit pattern as the upper half of an f32, with lower halves around all ties.
Tensor floats_around_ties() {
  const std::uint32_t lower[] = {0,      1,      0x7ff,  0x800,  0x801,  0xfff,  0x1000, 0x1001,
                                 0x1fff, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff};
  std::vector<std::int32_t> patterns;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const std::uint32_t low : lower) {
      patterns.push_back(static_cast<std::int32_t>(upper << 16 | low));
    }
  }
  return tensor(patterns).view(f32);
}

TEST_F(CopyStreamTest, DevicesConvert16BitFloatsAsTheHostDoes) {
  const Tensor floats = floats_around_ties();
  const Tensor patterns = arange(0x10000, {.dtype = i32}).to(i16);
  for (const DType narrow : {f16, bf16}) {
    const Tensor rounded = floats.to(Device::cuda(0)).to(narrow).cpu();
    EXPECT_TRUE(rounded.view(i16).equal(floats.to(narrow).view(i16))) << narrow;
    const Tensor all = patterns.view(narrow);
    for (const DType wide : {f32, f64}) {
      const Tensor widened = all.to(Device::cuda(0)).to(wide).cpu();
      const DType bits = wide == f32 ? i32 : i64;
      EXPECT_TRUE(widened.view(bits).equal(all.to(wide).view(bits))) << narrow << " to " << wide;
    }
  }
}

TEST(CopyTest, AcceptsNonBlockingAsABool) {
  for (const Device place : all_places()) {
    const Tensor source = tensor({1.5, 2.5}).pin_memory();
    Tensor out = zeros({2}, {.device = place});
    out.copy_(source, true);
    EXPECT_EQ(elements(out), (std::vector<double>{1.5, 2.5}));
    EXPECT_EQ(elements(source.to(place, true)), (std::vector<double>{1.5, 2.5}));
    EXPECT_FALSE(source.to(source.device(), false, true).is_view_of(source));
    EXPECT_EQ(source.to(f64, true).dtype(), f64);
    EXPECT_EQ(source.to({.dtype = f64, .device = place}, true).device(), place);
    EXPECT_EQ(source.to(place, f64, true, true).dtype(), f64);
    EXPECT_EQ(source.to("cpu", true).device(), Device::cpu());
  }
  EXPECT_EQ(ones({1}).half().dtype(), f16);
  EXPECT_EQ(ones({1}).bfloat16().dtype(), bf16);
}

TEST(CopyTest, AFillWithACpuNumberDoesNotBlock) {
  GANTRY_REQUIRE_DEVICES(1);
  Tensor t = zeros({2, 2}, {.device = Device::cuda(0)});
  synchronize(Device::cuda(0));
  {
    const testing::StreamHold hold(Stream::current(Device::cuda(0)));  // a wait would never return
    t.fill_(scalar_tensor(2.5));
    t.index_put_({0}, scalar_tensor(7));
  }
  EXPECT_EQ(elements(t), (std::vector<double>{7, 7, 2.5, 2.5}));
}

}  // namespace
}  // namespace gantry
