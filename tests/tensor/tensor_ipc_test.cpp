#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/memory/ipc_text.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/pipe_process.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::from_text;
using ::testing::HasSubstr;
using testing::PipeProcess;
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
  EXPECT_FALSE(Stream::current(view.device()).query()) << "the import does not wait";
  process.write_line("release");
  std::vector<int> expected(12);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(view.to_vector<int>(), expected);
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

TEST_F(TensorIpcTest, EmptyTensorsCanBeShared) {
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

TEST_F(TensorIpcTest, RejectsMalformedHandles) {
  EXPECT_THAT([] { static_cast<void>(Tensor::from_ipc({})); },
              ThrowsMessage<InvalidArgument>(
                  "from_ipc: expected a handle made by Tensor::ipc_handle, but got 0 bytes"));
  const Tensor exported = zeros({2}, {.device = "cuda"});
  const IpcHandle handle = exported.ipc_handle();
  IpcHandle other_magic = handle;
  other_magic.bytes[0] ^= std::byte{1};
  EXPECT_THAT([&] { static_cast<void>(Tensor::from_ipc(other_magic)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("but got bytes of another kind")));
  IpcHandle other_dtype = handle;
  other_dtype.bytes[56] = std::byte{77};
  EXPECT_THAT([&] { static_cast<void>(Tensor::from_ipc(other_dtype)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("but got damaged bytes")));
  IpcHandle other_device = handle;
  other_device.bytes[20] = std::byte{'#'};
  EXPECT_THAT([&] { static_cast<void>(Tensor::from_ipc(other_device)); },
              ThrowsMessage<NotSupported>(HasSubstr("to be visible in this process")));
  IpcHandle too_large = handle;
  too_large.bytes[64 + 6] = std::byte{1};  // sizes[0] += 2^48
  EXPECT_THAT([&] { static_cast<void>(Tensor::from_ipc(too_large)); },
              ThrowsMessage<ShapeError>(HasSubstr("out of bounds for storage of size")));
}

}  // namespace
}  // namespace gantry
