#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/ipc/ipc.hpp>
#include <gantry/tensor/factories.hpp>

#include "core/bytes.hpp"
#include "tests/ipc/ipc_text.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/pipe_process.hpp"
#include "tests/support/stream_hold.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::from_text;
using ::testing::HasSubstr;
using testing::PipeProcess;
using testing::StreamHold;
using ::testing::ThrowsMessage;

class TensorIpcTest : public testing::DeviceTest {
 protected:
  static std::string exporter() {
    return std::string(GANTRY_TEST_PROGRAM_DIR) + "/tensor_exporter";
  }
};

TEST_F(TensorIpcTest, ImporterSeesLayoutDeviceAndElements) {
  PipeProcess process({exporter()});
  const Tensor view = Tensor::from_ipc(from_text(process.read_line()));
  EXPECT_EQ(view.sizes(), (Shape{3, 4}));
  EXPECT_EQ(view.strides(), (Dims{2, 6}));
  EXPECT_EQ(view.storage_offset(), 1);
  EXPECT_EQ(view.dtype(), i32);
  EXPECT_EQ(view.device(), Device::cuda(device_count() - 1));
  EXPECT_FALSE(Stream::current(view.device()).query()) << "the import must wait for the export";
  process.write_line("release");
  std::vector<int> expected(12);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(view.to_vector<int>(), expected);
}

TEST_F(TensorIpcTest, DataDTypesAreImported) {
  for (const DType dtype : {u16, u32, u64, f8e4m3, f8e5m2}) {
    PipeProcess process({exporter(), std::string(name(dtype))});
    const Tensor view = Tensor::from_ipc(from_text(process.read_line()));
    EXPECT_EQ(view.dtype(), dtype);
    process.write_line("release");
    EXPECT_EQ(testing::elements(view),
              testing::elements(arange(12, {.dtype = i32}).to(dtype).view({3, 4})));
  }
}

TEST_F(TensorIpcTest, ExporterSeesWhatTheImporterWrites) {
  PipeProcess process({exporter()});
  Tensor view = Tensor::from_ipc(from_text(process.read_line()));
  process.write_line("release");
  EXPECT_EQ(process.read_line(), "released");
  view.select(0, 1).fill_(-5);
  synchronize(view.device());
  process.write_line("read");
  EXPECT_EQ(process.read_line(), "0 1 2 3 -5 -5 -5 -5 8 9 10 11 ");
  process.write_line("quit");
  EXPECT_EQ(process.wait(), 0);
}

TEST_F(TensorIpcTest, TheSameProcessGetsTheOriginalMemory) {
  const Tensor original = arange(6, {.device = "cuda"}).view({2, 3}).t();
  Tensor view = Tensor::from_ipc(original.ipc_handle());
  EXPECT_EQ(view.data(), original.data());
  view.fill_(4);
  EXPECT_EQ(original.to_vector<int>(), std::vector<int>(6, 4));
}

// An import of this process's own memory: its allocator tells whether a stream was recorded.
TEST_F(TensorIpcTest, ImportedMemoryIsKeptForTheStreamsThatUseIt) {
  const Device device = Device::cuda(0);
  const Stream user = Stream::from_pool(device);
  using Record = std::function<void(const Tensor&)>;
  const std::vector<Record> records{[](const Tensor&) {},
                                    [&](const Tensor& t) { t.record_stream(user); },
                                    [&](const Tensor& t) { t.storage().record_use(user); }};
  for (std::size_t i = 0; i < records.size(); ++i) {
    Tensor original = zeros({12345}, {.device = device});
    Tensor view = Tensor::from_ipc(original.ipc_handle());
    const void* const data = view.data();
    synchronize(device);
    const StreamHold hold(user);
    records[i](view);
    original = Tensor();
    view = Tensor();
    memory::ipc_collect();
    EXPECT_EQ(empty({12345}, {.device = device}).data() == data, i == 0) << i;
  }
}

TEST_F(TensorIpcTest, EmptyTensorsCanBeImported) {
  const Tensor view = Tensor::from_ipc(zeros({0, 3}, {.dtype = u8, .device = "cuda"}).ipc_handle());
  EXPECT_EQ(view.sizes(), (Shape{0, 3}));
  EXPECT_EQ(view.dtype(), u8);
}

TEST_F(TensorIpcTest, RejectsTensorsThatCannotBeShared) {
  EXPECT_THAT([] { static_cast<void>(zeros({2}).ipc_handle()); },
              ThrowsMessage<NotSupported>("ipc_handle: expected memory of a device allocator, but "
                                          "got a CPU tensor"));
  const Tensor own = zeros({2}, {.device = "cuda"});
  const Tensor foreign = from_blob(own.data(), {2}, {.device = "cuda:0"});
  EXPECT_THAT(
      [&] { static_cast<void>(foreign.ipc_handle()); },
      ThrowsMessage<NotSupported>(HasSubstr("but got foreign or imported memory on cuda:0")));
}

// Writes the right checksum into a handle that was changed.
void fix_checksum(IpcHandle& handle) {
  const std::size_t body = handle.bytes.size() - 8;
  ByteWriter checksum;
  checksum.number(fnv1a(std::span(handle.bytes).first(body)));
  std::ranges::copy(checksum.bytes(), handle.bytes.begin() + static_cast<std::ptrdiff_t>(body));
}

void expect_malformed(const IpcHandle& handle, const std::string& actual) {
  EXPECT_THAT([&] { static_cast<void>(Tensor::from_ipc(handle)); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "from_ipc: expected a handle made by Tensor::ipc_handle, but got " + actual)));
}

TEST_F(TensorIpcTest, RefusesTruncatedAndDamagedHandles) {
  const Tensor exported = zeros({2}, {.device = "cuda"});
  const IpcHandle handle = exported.ipc_handle();
  expect_malformed({}, "0 bytes");
  for (std::size_t size = 0; size < handle.bytes.size(); ++size) {
    IpcHandle truncated = handle;
    truncated.bytes.resize(size);
    expect_malformed(truncated, "");
  }
  for (std::size_t i = 0; i < handle.bytes.size(); ++i) {
    IpcHandle damaged = handle;
    damaged.bytes[i] ^= std::byte{64};
    expect_malformed(damaged, i < 8 ? "bytes of another kind" : "damaged bytes");
  }
}

TEST_F(TensorIpcTest, RefusesForgedLayouts) {
  const Tensor exported = zeros({2}, {.device = "cuda"});
  const auto forged = [handle = exported.ipc_handle()](std::size_t byte, int value) {
    IpcHandle changed = handle;
    changed.bytes.at(byte) = static_cast<std::byte>(value);
    fix_checksum(changed);
    return changed;
  };
  // The layout: 8 bytes of magic, dtype, ndim, sizes, strides, offset.
  expect_malformed(forged(8, 77), "fields out of range");
  expect_malformed(forged(9, kMaxDims + 1), "fields out of range");
  expect_malformed(forged(9, kMaxDims), "fields out of range");
  EXPECT_THAT([&] { static_cast<void>(Tensor::from_ipc(forged(10 + 6, 1))); },  // size + 2^48
              ThrowsMessage<ShapeError>(HasSubstr("out of bounds for storage of size")));
  EXPECT_THROW(static_cast<void>(Tensor::from_ipc(forged(10 + 7, 0x80))), Error);  // negative
  EXPECT_THROW(static_cast<void>(Tensor::from_ipc(forged(10 + 16 + 7, 0x80))), Error);
  // Every other bit: an error, or a tensor within its memory.
  const std::size_t bits = 8 * (exported.ipc_handle().bytes.size() - 8);
  for (std::size_t bit = 0; bit < bits; ++bit) {
    IpcHandle changed = exported.ipc_handle();
    changed.bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    fix_checksum(changed);
    try {
      const Tensor view = Tensor::from_ipc(changed);
      EXPECT_LE(static_cast<std::size_t>(view.numel()) * view.element_size(), 8u) << bit;
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace gantry
