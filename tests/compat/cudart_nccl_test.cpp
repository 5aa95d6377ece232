// The order between NCCL's work and the program's own, by a program of CUDA and NCCL.
#include <array>
#include <functional>
#include <memory>

#include "tests/compat/cudart_checks.hpp"
#include "tests/compat/nccl_functions.hpp"
#include "tests/support/device_fixture.hpp"

#define ASSERT_NCCL(call) ASSERT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)
#define EXPECT_NCCL(call) EXPECT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)

namespace gantry::testing {
namespace {

constexpr std::size_t kSize = 100;

// Two ranks, whose inputs are 1 and 10. The second one's part cannot end before the first one's.
class CudartNccl : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    GANTRY_REQUIRE_DEVICES(2);
    for (int device : {1, 0}) {
      const auto at = static_cast<std::size_t>(device);
      ASSERT_CUDA(cudaSetDevice(device));
      if (device == 1) second_ = std::make_unique<OwnStream>(cudaStreamNonBlocking);
      in_[at] = std::make_unique<DeviceBytes>(kSize, device == 0 ? 1 : 10);
      out_[at] = std::make_unique<DeviceBytes>(kSize);
    }
    ASSERT_NCCL(ncclCommInitAll(comms_.data(), 2, nullptr));
    run([&] { all_reduce({nullptr, nullptr}); });  // loads the kernels
    EXPECT_EQ(out_[0]->read(), bytes_of(kSize, 11));
    EXPECT_CUDA(cudaSetDevice(1));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_CUDA(cudaSetDevice(0));
  }
  void TearDown() override {
    for (ncclComm_t comm : comms_) EXPECT_NCCL(ncclCommDestroy(comm));
    in_ = {};
    out_ = {};
    second_.reset();
    DeviceTest::TearDown();
  }

  void run(const std::function<void()>& calls) {
    EXPECT_NCCL(ncclGroupStart());
    calls();
    EXPECT_NCCL(ncclGroupEnd());
  }
  void all_reduce(std::array<cudaStream_t, 2> streams) {
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_NCCL(ncclAllReduce(in_[i]->data(), out_[i]->data(), kSize, ncclUint8, ncclSum,
                                comms_[i], streams[i]));
    }
  }

  std::array<std::unique_ptr<DeviceBytes>, 2> in_;
  std::array<std::unique_ptr<DeviceBytes>, 2> out_;
  std::array<ncclComm_t, 2> comms_{};
  std::unique_ptr<OwnStream> second_;  // of the second device
};

TEST_F(CudartNccl, ACollectiveOfTheDefaultStreamComesAfterBlockingStreams) {
  const OwnStream blocking(cudaStreamDefault);
  {
    Hold hold(blocking);
    EXPECT_CUDA(cudaMemsetAsync(in_[0]->data(), 2, kSize, blocking));
    run([&] { all_reduce({nullptr, *second_}); });
    expect_held_back(*second_, hold);
  }
  EXPECT_EQ(out_[0]->read(), bytes_of(kSize, 12));
}

TEST_F(CudartNccl, ACollectiveOfABlockingStreamComesAfterTheDefaultStream) {
  const OwnStream blocking(cudaStreamDefault);
  {
    Hold hold(nullptr);
    EXPECT_CUDA(cudaMemsetAsync(in_[0]->data(), 3, kSize, nullptr));
    run([&] { all_reduce({blocking, *second_}); });
    expect_held_back(*second_, hold);
  }
  EXPECT_EQ(out_[0]->read(), bytes_of(kSize, 13));
}

TEST_F(CudartNccl, BlockingStreamsComeAfterACollectiveOfTheDefaultStream) {
  const OwnStream blocking(cudaStreamDefault);
  {
    const Hold hold(nullptr);
    run([&] { all_reduce({nullptr, *second_}); });
    EXPECT_CUDA(cudaMemsetAsync(out_[0]->data(), 4, kSize, blocking));
  }
  EXPECT_EQ(out_[0]->read(), bytes_of(kSize, 4));
}

TEST_F(CudartNccl, AMessageOfTheDefaultStreamComesAfterBlockingStreams) {
  const OwnStream blocking(cudaStreamDefault);
  {
    Hold hold(blocking);
    EXPECT_CUDA(cudaMemsetAsync(in_[0]->data(), 5, kSize, blocking));
    run([&] {
      EXPECT_NCCL(ncclSend(in_[0]->data(), kSize, ncclUint8, 1, comms_[0], nullptr));
      EXPECT_NCCL(ncclRecv(out_[1]->data(), kSize, ncclUint8, 0, comms_[1], *second_));
    });
    expect_held_back(*second_, hold);
  }
  EXPECT_EQ(out_[1]->read(), bytes_of(kSize, 5));
}

}  // namespace
}  // namespace gantry::testing
