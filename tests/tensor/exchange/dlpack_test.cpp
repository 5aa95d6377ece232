#include <gantry/tensor/dlpack.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/sanitizer.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/stream_hold.hpp"
#include "tests/tensor/exchange/dlpack_producer.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::all_dtypes;
using testing::all_places;
using testing::device_kind;
using testing::elements;
using testing::kCpu;
using testing::kCudaHost;
using testing::Layout;
using testing::patterned;
using testing::Producer;

constexpr Layout kLayouts[] = {Layout::contiguous, Layout::transposed, Layout::sliced,
                               Layout::offset,     Layout::expanded,   Layout::zero_dim,
                               Layout::empty};

// The elements as a consumer in C reads them.
std::vector<double> consumed(const DLTensor& array, DType dtype) {
  std::vector<double> result;
  const auto* const first = static_cast<const std::byte*>(array.data) + array.byte_offset;
  std::vector<std::int64_t> at(static_cast<std::size_t>(array.ndim), 0);
  for (int d = 0; d < array.ndim; ++d) {
    if (array.shape[d] == 0) return result;
  }
  while (true) {
    std::int64_t offset = 0;
    for (int d = 0; d < array.ndim; ++d)
      offset += at[static_cast<std::size_t>(d)] * array.strides[d];
    result.push_back(testing::decode(first + offset * (array.dtype.bits / 8), dtype));
    int d = array.ndim - 1;
    while (d >= 0 && ++at[static_cast<std::size_t>(d)] == array.shape[d]) {
      at[static_cast<std::size_t>(d--)] = 0;
    }
    if (d < 0) return result;
  }
}

TEST(DlpackTest, AConsumerReadsEveryDtypeAndLayout) {
  const std::map<DType, std::pair<int, int>> types{
      {bool_, {6, 8}}, {u8, {1, 8}},   {i8, {0, 8}},    {i16, {0, 16}},    {i32, {0, 32}},
      {i64, {0, 64}},  {f16, {2, 16}}, {bf16, {4, 16}}, {f32, {2, 32}},    {f64, {2, 64}},
      {u16, {1, 16}},  {u32, {1, 32}}, {u64, {1, 64}},  {f8e4m3, {10, 8}}, {f8e5m2, {12, 8}}};
  for (const DType dtype : all_dtypes()) {
    for (const Layout layout : kLayouts) {
      SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(static_cast<int>(layout)));
      const Tensor tensor = patterned(layout, dtype, Device::cpu());
      DLManagedTensorVersioned* const array = to_dlpack(tensor);
      EXPECT_EQ(array->version.major, 1U);
      EXPECT_EQ(array->flags, 0U);
      const DLTensor& fields = array->dl_tensor;
      EXPECT_EQ(fields.device.device_type, kCpu);
      EXPECT_EQ(fields.device.device_id, 0);
      EXPECT_EQ(fields.dtype.code, types.at(dtype).first);
      EXPECT_EQ(fields.dtype.bits, types.at(dtype).second);
      EXPECT_EQ(fields.dtype.lanes, 1);
      ASSERT_EQ(fields.ndim, tensor.dim());
      for (int d = 0; d < fields.ndim; ++d) {
        EXPECT_EQ(fields.shape[d], tensor.size(d));
        EXPECT_EQ(fields.strides[d], tensor.stride(d));
      }
      EXPECT_EQ(consumed(fields, dtype), elements(tensor));
      EXPECT_EQ(fields.data == nullptr, layout == Layout::empty);
      array->deleter(array);

      DLManagedTensor* const old = to_dlpack_unversioned(tensor);
      EXPECT_EQ(consumed(old->dl_tensor, dtype), elements(tensor));
      old->deleter(old);
    }
  }
}

TEST(DlpackTest, TheArrayKeepsTheMemory) {
  for (const Device place : all_places()) {
    Tensor tensor = full({1000}, 3.0, {.device = place});
    const Storage storage = tensor.storage();
    DLManagedTensorVersioned* const array = to_dlpack(tensor.narrow(0, 10, 5));
    tensor = Tensor();
    EXPECT_EQ(storage.use_count(), 2);
    EXPECT_EQ(array->dl_tensor.data, static_cast<float*>(storage.data()) + 10);
    array->deleter(array);
    EXPECT_EQ(storage.use_count(), 1);
  }
}

TEST(DlpackTest, NamesThePlace) {
  for (int i = 0; i < device_count(); ++i) {
    DLManagedTensorVersioned* const array = to_dlpack(empty({2}, Device::cuda(i)));
    EXPECT_EQ(array->dl_tensor.device.device_type, device_kind());
    EXPECT_EQ(array->dl_tensor.device.device_id, i);
    array->deleter(array);
  }
  const Tensor pinned = empty({2}, {.pinned = true});
  // Consumers such as PyTorch know no other type of host memory.
  DLManagedTensorVersioned* const array = to_dlpack(pinned);
  EXPECT_EQ(array->dl_tensor.device.device_type, kCpu);
  EXPECT_EQ(array->dl_tensor.device.device_id, 0);
  EXPECT_EQ(from_dlpack(array).is_pinned(), pinned.is_pinned());
  DLManagedTensor* const unversioned = to_dlpack_unversioned(pinned);
  EXPECT_EQ(unversioned->dl_tensor.device.device_type, kCpu);
  unversioned->deleter(unversioned);
  const std::int32_t named = pinned.is_pinned() ? kCudaHost : kCpu;
  DLManagedTensorVersioned* const host = to_dlpack(pinned, {}, {.cuda_host = true});
  EXPECT_EQ(host->dl_tensor.device.device_type, named);
  EXPECT_EQ(host->dl_tensor.device.device_id, 0);
  EXPECT_EQ(from_dlpack(host).is_pinned(), pinned.is_pinned());
  DLManagedTensor* const old_host = to_dlpack_unversioned(pinned, {}, {.cuda_host = true});
  EXPECT_EQ(old_host->dl_tensor.device.device_type, named);
  old_host->deleter(old_host);
  DLManagedTensorVersioned* const pageable = to_dlpack(empty({2}), {}, {.cuda_host = true});
  EXPECT_EQ(pageable->dl_tensor.device.device_type, kCpu);
  pageable->deleter(pageable);
}

TEST(DlpackTest, TheFieldsOfGantryAreThoseOfDlpack) {
  Producer producer;
  const dlpack::ManagedVersioned& fields = dlpack::fields(producer.array);
  producer.array.flags = dlpack::kReadOnly;
  producer.array.dl_tensor.byte_offset = 77;
  EXPECT_EQ(fields.version.major, 1U);
  EXPECT_EQ(fields.manager_ctx, &producer);
  EXPECT_EQ(fields.flags, dlpack::kReadOnly);
  EXPECT_EQ(fields.dl_tensor.device.kind, dlpack::MemoryKind::cpu);
  EXPECT_EQ(fields.dl_tensor.dtype.code, dlpack::TypeCode::floating);
  EXPECT_EQ(fields.dl_tensor.dtype.bits, 32);
  EXPECT_EQ(fields.dl_tensor.shape, producer.shape);
  EXPECT_EQ(fields.dl_tensor.strides, producer.strides);
  EXPECT_EQ(fields.dl_tensor.byte_offset, 77U);
  EXPECT_EQ(sizeof(dlpack::ManagedVersioned), sizeof(DLManagedTensorVersioned));
  EXPECT_EQ(sizeof(dlpack::Managed), sizeof(DLManagedTensor));
}

TEST(DlpackTest, ImportsWithoutACopy) {
  Producer producer;
  {
    Tensor tensor = from_dlpack(&producer.array);
    EXPECT_EQ(tensor.data(), producer.values);
    EXPECT_EQ(elements(tensor), (std::vector<double>{1, 2, 3}));
    tensor.add_(10);
    EXPECT_EQ(producer.values[2], 13);
    const Tensor view = tensor[1];
    tensor = Tensor();
    EXPECT_EQ(producer.deleted, 0);
    EXPECT_EQ(view.item<float>(), 12);
  }
  EXPECT_EQ(producer.deleted, 1);
}

TEST(DlpackTest, ImportsStridesOffsetsAndEmptyArrays) {
  Producer producer;
  DLTensor& array = producer.array.dl_tensor;
  array.ndim = 2;
  producer.shape[0] = producer.shape[1] = 2;
  producer.strides[0] = 1;
  producer.strides[1] = 2;
  EXPECT_EQ(elements(from_dlpack(&producer.array)), (std::vector<double>{1, 3, 2, 4}));
  array.strides = nullptr;  // allowed before DLPack 1.2
  EXPECT_EQ(elements(from_dlpack(&producer.array)), (std::vector<double>{1, 2, 3, 4}));
  array.ndim = 1;
  array.byte_offset = 8;
  EXPECT_EQ(elements(from_dlpack(&producer.array)), (std::vector<double>{3, 4}));
  array.ndim = 0;
  array.shape = nullptr;
  EXPECT_EQ(elements(from_dlpack(&producer.array)), (std::vector<double>{3}));
  EXPECT_EQ(producer.deleted, 4);
  array.ndim = 2;
  array.shape = producer.shape;
  producer.shape[0] = 0;
  array.data = nullptr;
  const Tensor none = from_dlpack(&producer.array);
  EXPECT_EQ(none.sizes(), (Shape{0, 2}));
  EXPECT_EQ(none.data(), nullptr);
}

TEST(DlpackTest, AReadOnlyArrayNeedsACopy) {
  Producer producer;
  producer.array.flags = 1;
  EXPECT_ERROR(from_dlpack(&producer.array), InvalidArgument,
               "from_dlpack: expected memory that may be written, but got a read-only array; pass "
               "{.copy = true}");
  EXPECT_EQ(producer.deleted, 1);
  const Tensor copy = from_dlpack(&producer.array, {.copy = true});
  EXPECT_EQ(producer.deleted, 2);
  producer.values[0] = 9;
  EXPECT_EQ(elements(copy), (std::vector<double>{1, 2, 3}));
}

TEST(DlpackTest, AnArrayMayHaveNoDeleter) {
  Producer producer;
  producer.array.deleter = nullptr;
  EXPECT_EQ(from_dlpack(&producer.array).numel(), 3);
}

struct Refusal {
  const char* what;
  std::function<void(Producer&)> change;
  std::string text;
};

TEST(DlpackTest, RefusesAndDeletesOnce) {
  const std::vector<Refusal> refusals{
      {"major version",
       [](Producer& p) {
         p.array.version = {2, 1};
         p.array.dl_tensor = {};
       },
       "expected an array of DLPack 1.x, but got 2.1"},
      {"complex",
       [](Producer& p) {
         p.array.dl_tensor.dtype = {5, 64, 1};
       },
       "expected elements of a dtype of gantry, but got complex numbers, DLPack code 5 with 64 "
       "bits "
       "and 1 lanes"},
      {"lanes",
       [](Producer& p) {
         p.array.dl_tensor.dtype = {2, 32, 4};
       },
       "32 bits and 4 lanes"},
      {"sub-byte",
       [](Producer& p) {
         p.array.dl_tensor.dtype = {17, 4, 1};
       },
       "code 17 with 4 bits and 1 lanes"},
      {"bool of 1 bit",
       [](Producer& p) {
         p.array.dl_tensor.dtype = {6, 1, 1};
       },
       "code 6 with 1 bits"},
      {"unsigned of 128 bits",
       [](Producer& p) {
         p.array.dl_tensor.dtype = {1, 128, 1};
       },
       "code 1 with 128 bits"},
      {"too many dims", [](Producer& p) { p.array.dl_tensor.ndim = 9; },
       "expected 0 to 8 dims, but got 9"},
      {"negative ndim", [](Producer& p) { p.array.dl_tensor.ndim = -1; },
       "expected 0 to 8 dims, but got -1"},
      {"negative stride", [](Producer& p) { p.strides[0] = -1; },
       "Negative strides are not supported at the moment, got strides: [-1]; pass {.copy = true}"},
      {"negative size", [](Producer& p) { p.shape[0] = -3; }, "negative dimension -3"},
      {"too large",
       [](Producer& p) {
         p.array.dl_tensor.ndim = 2;
         p.shape[0] = p.shape[1] = INT64_MAX;
       },
       "from_dlpack: "},
      {"strides too large", [](Producer& p) { p.strides[0] = INT64_MAX / 2; }, "from_dlpack: "},
      {"null shape", [](Producer& p) { p.array.dl_tensor.shape = nullptr; },
       "expected a shape for 1 dims, but got a null pointer"},
      {"null data", [](Producer& p) { p.array.dl_tensor.data = nullptr; },
       "expected memory for the elements, but got a null pointer"},
      {"misaligned", [](Producer& p) { p.array.dl_tensor.byte_offset = 2; },
       "expected elements at a multiple of 4 bytes, but got address"},
      {"offset too large", [](Producer& p) { p.array.dl_tensor.byte_offset = UINT64_MAX - 3; },
       "expected an offset within the memory"},
      {"another device",
       [](Producer& p) {
         p.array.dl_tensor.device = {10, 0};
       },
       "but got DLPack device type 10"},
      {"managed memory",
       [](Producer& p) {
         p.array.dl_tensor.device = {13, 0};
       },
       "but got DLPack device type 13"},
      {"negative device",
       [](Producer& p) {
         p.array.dl_tensor.device = {device_kind(), -1};
       },
       "expected a device index, but got -1"},
      {"no such device",
       [](Producer& p) {
         p.array.dl_tensor.device = {device_kind(), 1000};
       },
       "1000"},
      {"host memory of a device",
       [](Producer& p) {
         p.array.dl_tensor.device = {device_kind(), 0};
       },
       "expected memory of cuda:0, but got a host address"}};
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.what);
    if (device_count() == 0 && std::string(refusal.what).find("device") != std::string::npos)
      continue;
    Producer producer;
    refusal.change(producer);
    EXPECT_ERROR(from_dlpack(&producer.array), Error, refusal.text);
    EXPECT_EQ(producer.deleted, 1);
  }
  DLManagedTensorVersioned* none = nullptr;
  EXPECT_ERROR(from_dlpack(none), InvalidArgument,
               "from_dlpack: expected an exported array, but got a null pointer");
}

TEST(DlpackTest, ExportsRefuseBadArguments) {
  EXPECT_ERROR(to_dlpack(Tensor()), InvalidArgument, "to_dlpack: expected a defined tensor");
  GANTRY_REQUIRE_DEVICES(2);
  const Stream stream = Stream::from_pool(Device::cuda(1));
  EXPECT_ERROR(to_dlpack(zeros({2}), stream), InvalidArgument,
               "to_dlpack: expected no stream for a CPU tensor, but got a stream of cuda:1");
  EXPECT_ERROR(to_dlpack(zeros({2}, Device::cuda(0)), stream), InvalidArgument,
               "to_dlpack: expected a stream of the tensor's device cuda:0, but got a stream of "
               "cuda:1");
}

TEST(DlpackTest, ComesBackOnItsStorage) {
  for (const Device place : all_places()) {
    for (const Layout layout : kLayouts) {
      const Tensor tensor = patterned(layout, f32, place);
      const Tensor back = from_dlpack(to_dlpack(tensor));
      EXPECT_TRUE(back.is_view_of(tensor));
      EXPECT_EQ(back.strides(), tensor.strides());
      EXPECT_EQ(elements(from_dlpack(to_dlpack_unversioned(tensor))), elements(tensor));
      EXPECT_EQ(elements(from_dlpack(to_dlpack(tensor), {.copy = true})), elements(tensor));
    }
  }
}

// Passes an array of gantry on as its own, as a library between two programs does.
TEST(DlpackTest, AnotherLibraryPassesItOn) {
  for (const Device place : all_places()) {
    for (const DType dtype : all_dtypes()) {
      for (const Layout layout : kLayouts) {
        Producer between;
        const Tensor tensor = patterned(layout, dtype, place);
        DLManagedTensorVersioned* const array = to_dlpack(tensor);
        between.array.dl_tensor = array->dl_tensor;
        {
          const Tensor back = from_dlpack(&between.array);
          EXPECT_EQ(back.device(), place);
          EXPECT_EQ(back.dtype(), dtype);
          EXPECT_FALSE(back.is_view_of(tensor));
          EXPECT_EQ(elements(back), elements(tensor));
          EXPECT_EQ(back.data(), tensor.numel() > 0 ? tensor.data() : nullptr);
        }
        EXPECT_EQ(between.deleted, 1);
        array->deleter(array);
      }
    }
  }
}

class DlpackDeviceTest : public testing::DeviceTest {};

TEST_F(DlpackDeviceTest, TheConsumersStreamWaits) {
  const Device device = Device::cuda(0);
  const Stream own = Stream::from_pool(device);
  const Stream consumer = Stream::from_pool(device);
  const Tensor host = empty({1000}, {.pinned = true});
  DLManagedTensorVersioned* array = nullptr;
  {
    testing::StreamHold hold(own);
    const StreamGuard guard(own);
    const Tensor tensor = full({1000}, 7.0, {.device = device});
    array = to_dlpack(tensor, consumer);
    driver().copy(host.data(), array->dl_tensor.data, 4000, consumer.native());
    EXPECT_FALSE(consumer.query());
  }
  consumer.synchronize();
  EXPECT_EQ(host[999].item<float>(), 7);
  array->deleter(array);
}

TEST_F(DlpackDeviceTest, TheSanitizerSeesThatTheConsumersStreamWaits) {
  const Device device = Device::cuda(0);
  const Stream own = Stream::from_pool(device);
  const Stream consumer = Stream::from_pool(device);
  const sanitizer::Mode before = sanitizer::mode();
  sanitizer::enable(sanitizer::Mode::throw_);
  const auto export_to = [&](const Tensor& tensor, bool is_versioned) {
    const StreamGuard guard(own);
    if (is_versioned) return from_dlpack(to_dlpack(tensor, consumer));
    return from_dlpack(to_dlpack_unversioned(tensor, consumer));
  };
  for (const bool is_versioned : {true, false}) {
    Tensor tensor;
    {
      const StreamGuard guard(own);
      tensor = full({1000}, 7.0, {.device = device});
    }
    const Tensor array = export_to(tensor, is_versioned);
    const StreamGuard guard(consumer);
    EXPECT_EQ(array.add(1).to_vector<float>(), std::vector<float>(1000, 8)) << is_versioned;
  }
  sanitizer::enable(before);
}

TEST_F(DlpackDeviceTest, TheMemoryWaitsForTheConsumer) {
  const Device device = Device::cuda(0);
  const Stream consumer = Stream::from_pool(device);
  Tensor tensor = zeros({1 << 16}, {.device = device});
  Stream::current(device).synchronize();
  const void* const data = tensor.data();
  testing::StreamHold hold(consumer);
  DLManagedTensorVersioned* const array = to_dlpack(tensor, consumer);
  tensor = Tensor();
  array->deleter(array);
  EXPECT_NE(empty({1 << 16}, {.device = device}).data(), data);
}

TEST_F(DlpackDeviceTest, NothingLeaks) {
  const Device device = Device::cuda(0);
  const std::size_t before = memory::allocated(device);
  {
    const Tensor back = from_dlpack(to_dlpack(zeros({1000}, {.device = device})));
    EXPECT_GT(memory::allocated(device), before);
  }
  Stream::current(device).synchronize();
  EXPECT_EQ(memory::allocated(device), before);
}

}  // namespace
}  // namespace gantry
