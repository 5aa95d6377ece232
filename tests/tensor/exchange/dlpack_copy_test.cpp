// Copies of arrays that cannot be shared: any strides, any alignment.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/dlpack.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/tensor/exchange/dlpack_producer.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::all_dtypes;
using testing::device_kind;
using testing::elements;
using testing::Producer;

TEST(DlpackCopyTest, StridesOfDimsOfOneElementMeanNothing) {
  for (const bool copy : {false, true}) {
    for (const std::int64_t stride : {std::int64_t{-1}, std::int64_t{-3}, INT64_MIN, INT64_MAX}) {
      Producer producer;
      producer.array.dl_tensor.ndim = 2;
      producer.shape[0] = 1;
      producer.shape[1] = 3;
      producer.strides[0] = stride;
      const Tensor row = from_dlpack(&producer.array, {.copy = copy});
      EXPECT_EQ(row.sizes(), (Shape{1, 3}));
      EXPECT_EQ(elements(row), (std::vector<double>{1, 2, 3})) << stride;
    }
    Producer producer;
    producer.array.dl_tensor.ndim = 2;
    producer.shape[0] = 0;
    producer.shape[1] = 3;
    producer.strides[0] = -3;
    producer.strides[1] = -1;
    EXPECT_EQ(from_dlpack(&producer.array, {.copy = copy}).sizes(), (Shape{0, 3}));
  }
}

TEST(DlpackCopyTest, ACopyTakesAnyStridesAndAlignment) {
  for (const std::uint64_t offset : {0, 1, 2, 3, 5}) {
    Producer producer;
    alignas(8) std::byte bytes[64];
    const float values[6] = {1, 2, 3, 4, 5, 6};
    std::memcpy(bytes + offset, values, sizeof values);
    DLTensor& array = producer.array.dl_tensor;
    array.data = bytes;
    const auto copied = [&](std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides,
                            std::uint64_t first) {
      array.ndim = static_cast<std::int32_t>(sizes.size());
      array.byte_offset = offset + 4 * first;
      std::copy(sizes.begin(), sizes.end(), producer.shape);
      std::copy(strides.begin(), strides.end(), producer.strides);
      const int before = producer.deleted;
      const Tensor copy = from_dlpack(&producer.array, {.copy = true});
      EXPECT_EQ(producer.deleted, before + 1);
      EXPECT_TRUE(copy.is_contiguous());
      return elements(copy);
    };
    using Values = std::vector<double>;
    EXPECT_EQ(copied({6}, {1}, 0), (Values{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(copied({6}, {-1}, 5), (Values{6, 5, 4, 3, 2, 1}));
    EXPECT_EQ(copied({3}, {-2}, 5), (Values{6, 4, 2}));
    EXPECT_EQ(copied({2, 3}, {-3, 1}, 3), (Values{4, 5, 6, 1, 2, 3}));
    EXPECT_EQ(copied({2, 3}, {3, -1}, 2), (Values{3, 2, 1, 6, 5, 4}));
    EXPECT_EQ(copied({3, 2}, {-1, -3}, 5), (Values{6, 3, 5, 2, 4, 1}));
    EXPECT_EQ(copied({2, 2}, {0, -1}, 1), (Values{2, 1, 2, 1}));
    EXPECT_EQ(copied({1, 1, 1, 1, 1, 1, 2, 3}, {9, 9, -9, 9, 9, 9, -3, -1}, 5),
              (Values{6, 5, 4, 3, 2, 1}));
    EXPECT_EQ(copied({}, {}, 4), (Values{5}));
  }
}

TEST(DlpackCopyTest, ACopyOfEveryDtypeAndWidthMayBeMisaligned) {
  for (const DType dtype : all_dtypes()) {
    const Tensor from = arange(5, {.dtype = f32}).to(dtype);
    std::vector<std::byte> bytes(5 * from.element_size() + 1);
    std::memcpy(bytes.data() + 1, from.data(), from.nbytes());
    Producer producer;
    DLTensor& array = producer.array.dl_tensor;
    DLManagedTensorVersioned* const typed = to_dlpack(from);
    array.dtype = typed->dl_tensor.dtype;
    typed->deleter(typed);
    array.data = bytes.data();
    array.byte_offset = 1 + 4 * from.element_size();
    producer.shape[0] = 5;
    producer.strides[0] = -1;
    EXPECT_EQ(elements(from_dlpack(&producer.array, {.copy = true})), elements(from.flip(0)))
        << name(dtype);
  }
}

TEST(DlpackCopyTest, ACopyOfADeviceTakesAnyStridesAndAlignment) {
  GANTRY_REQUIRE_DEVICES(1);
  const Tensor memory = arange(64, {.dtype = u8, .device = "cuda:0"});
  Producer producer;
  DLTensor& array = producer.array.dl_tensor;
  array.device = {device_kind(), 0};
  array.dtype = {0, 16, 1};
  array.data = memory.data();
  producer.shape[0] = 3;
  producer.strides[0] = -2;
  for (const std::uint64_t offset : {8, 9}) {
    array.byte_offset = offset;
    const Tensor copy = from_dlpack(&producer.array, {.copy = true});
    EXPECT_EQ(copy.device(), memory.device());
    std::vector<double> expected;
    for (std::uint64_t i = 0; i < 3; ++i) {
      const double low = static_cast<double>(offset - 4 * i);
      expected.push_back(low + 256 * (low + 1));
    }
    EXPECT_EQ(elements(copy), expected) << offset;
  }
  producer.strides[0] = -(1 << 20);  // before the memory
  EXPECT_ERROR(from_dlpack(&producer.array, {.copy = true}), InvalidArgument,
               "expected memory of cuda:0, but got");
  array.data = producer.values;
  EXPECT_ERROR(from_dlpack(&producer.array, {.copy = true}), InvalidArgument,
               "expected memory of cuda:0, but got a host address");
}

TEST(DlpackCopyTest, ACopyRefusesElementsOutsideOfMemory) {
  Producer producer;
  for (const std::int64_t stride :
       {INT64_MIN, INT64_MAX, INT64_MIN / 8, -(std::int64_t{1} << 60)}) {
    producer.strides[0] = stride;
    EXPECT_ERROR(from_dlpack(&producer.array, {.copy = true}), ShapeError,
                 "from_dlpack: expected elements within the memory, but got sizes [3]");
  }
}

TEST(DlpackCopyTest, AnExportIsACopyWhereTheConsumerWantsOne) {
  const Tensor x = arange(6).view({2, 3}).t();
  for (const bool copy : {false, true}) {
    for (const std::optional<Device>& device : {std::optional<Device>{}, {Device::cpu()}}) {
      DLManagedTensorVersioned* const array = to_dlpack(x, {}, {.copy = copy, .device = device});
      EXPECT_EQ(array->flags, copy ? dlpack::kIsCopied : 0U);
      EXPECT_EQ(array->dl_tensor.data == x.data(), !copy);
      const Tensor back = from_dlpack(array);
      EXPECT_TRUE(back.equal(x));
      back.fill_(0);
      EXPECT_EQ(x.sum().item<std::int64_t>(), copy ? 15 : 0);
      x.copy_(arange(6).view({2, 3}).t());
    }
  }
  DLManagedTensor* const old = to_dlpack_unversioned(x, {}, {.copy = true});
  EXPECT_NE(old->dl_tensor.data, x.data());
  old->deleter(old);
}

class DlpackDeviceCopyTest : public testing::DeviceTest {};

TEST_F(DlpackDeviceCopyTest, AnExportIsWhereTheConsumerWantsIt) {
  const Device here("cuda:0");
  const Tensor x = arange(5, {.dtype = f32, .device = here});
  for (const Device& there : {Device::cpu(), here, Device::cuda(device_count() - 1)}) {
    const bool moves = there != here;
    DLManagedTensorVersioned* const array = to_dlpack(x, {}, {.device = there});
    EXPECT_EQ(array->flags, moves ? dlpack::kIsCopied : 0U) << there.str();
    const Tensor back = from_dlpack(array);
    EXPECT_EQ(back.device(), there);
    EXPECT_EQ(elements(back), (std::vector<double>{0, 1, 2, 3, 4}));
  }
  // The consumer's stream is of the device that it named.
  EXPECT_ERROR(to_dlpack(x, Stream::current(here), {.device = Device::cpu()}), InvalidArgument,
               "to_dlpack: expected no stream for a CPU tensor");
}

}  // namespace
}  // namespace gantry
