// The CUDA runtime's streams, events and graphs, by a program of CUDA's.
#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "tests/compat/cudart_checks.hpp"
#include "tests/support/device_fixture.hpp"

extern "C" {
cudaError_t cudaMemset_ptds(void* data, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync_ptsz(void* data, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream);
}

namespace gantry::testing {
namespace {

class CudartStreams : public DeviceTest {};

TEST_F(CudartStreams, HaveFlagsPriorityDeviceAndNumber) {
  int least = 1;
  int greatest = 1;
  ASSERT_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT_LE(greatest, least);  // equal on a device without priorities
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest - 100));
  unsigned flags = 0;
  int priority = 0;
  int device = -1;
  unsigned long long id = 0;
  unsigned long long id_of_default = 0;
  EXPECT_CUDA(cudaStreamGetFlags(stream, &flags));
  EXPECT_CUDA(cudaStreamGetPriority(stream, &priority));
  EXPECT_CUDA(cudaStreamGetDevice(stream, &device));
  EXPECT_CUDA(cudaStreamGetId(stream, &id));
  EXPECT_CUDA(cudaStreamGetId(nullptr, &id_of_default));
  EXPECT_EQ(flags, unsigned{cudaStreamNonBlocking});
  EXPECT_EQ(priority, greatest);
  EXPECT_EQ(device, 0);
  EXPECT_NE(id, id_of_default);
  EXPECT_CUDA(cudaStreamDestroy(stream));
  EXPECT_CUDA_ERROR(cudaStreamCreateWithFlags(&stream, 8), cudaErrorInvalidValue);
}

TEST_F(CudartStreams, AHandleEndsWithItsStreamOrEvent) {
  GANTRY_REQUIRE_SIM();  // CUDA reads through such a handle
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  EXPECT_CUDA(cudaStreamDestroy(stream));
  EXPECT_CUDA_ERROR(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA_ERROR(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA_ERROR(cudaMemsetAsync(&stream, 0, 1, stream), cudaErrorInvalidResourceHandle);
  cudaEvent_t event = nullptr;
  ASSERT_CUDA(cudaEventCreate(&event));
  EXPECT_CUDA(cudaEventDestroy(event));
  EXPECT_CUDA_ERROR(cudaEventRecord(event, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA_ERROR(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA_ERROR(cudaGraphLaunch(nullptr, nullptr), cudaErrorInvalidValue);
}

TEST_F(CudartStreams, TheDefaultStreamComesAfterBlockingStreams) {
  const OwnStream blocking(cudaStreamDefault);
  const DeviceBytes memory(100, 1);
  cudaEvent_t event = nullptr;
  ASSERT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  {
    Hold hold(blocking);
    EXPECT_CUDA(cudaMemsetAsync(memory.data(), 2, 100, blocking));
    if (platform() == Platform::simulated) {  // CUDA promises nothing about such a query
      EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
    }
    EXPECT_CUDA(cudaEventRecord(event, nullptr));
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    EXPECT_CUDA(cudaMemsetAsync(memory.data(), 3, 100, nullptr));
  }
  EXPECT_CUDA(cudaEventQuery(event));
  EXPECT_CUDA(cudaStreamQuery(nullptr));
  EXPECT_EQ(memory.read(), bytes_of(100, 3));
  EXPECT_CUDA(cudaEventDestroy(event));
  (void)cudaGetLastError();
}

TEST_F(CudartStreams, BlockingStreamsComeAfterTheDefaultStream) {
  const OwnStream blocking(cudaStreamDefault);
  const OwnStream other(cudaStreamDefault);
  const DeviceBytes memory(100, 1);
  {
    Hold hold(nullptr);
    EXPECT_CUDA(cudaMemsetAsync(memory.data(), 2, 100, blocking));
    EXPECT_EQ(cudaStreamQuery(blocking), cudaErrorNotReady);
    EXPECT_CUDA(cudaStreamQuery(other));  // it has no work to hold back
    cudaEvent_t event = nullptr;
    EXPECT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    EXPECT_CUDA(cudaEventRecord(event, other));
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    EXPECT_CUDA(cudaEventDestroy(event));
    expect_held_back(blocking, hold);
  }
  EXPECT_EQ(memory.read(), bytes_of(100, 2));
  (void)cudaGetLastError();
}

TEST_F(CudartStreams, ANewBlockingStreamComesAfterTheDefaultStream) {
  const DeviceBytes memory(100, 1);
  Hold hold(nullptr);
  EXPECT_CUDA(cudaMemsetAsync(memory.data(), 2, 100, nullptr));
  const OwnStream blocking(cudaStreamDefault);
  EXPECT_CUDA(cudaMemsetAsync(memory.data(), 3, 100, blocking));
  expect_held_back(blocking, hold);
  EXPECT_EQ(memory.read(), bytes_of(100, 3));
}

TEST_F(CudartStreams, NonBlockingStreamsDoNotWaitForTheDefaultStream) {
  const OwnStream free(cudaStreamNonBlocking);
  const DeviceBytes memory(100, 1);
  const Hold hold(nullptr);
  EXPECT_CUDA(cudaMemsetAsync(memory.data(), 2, 100, free));
  EXPECT_CUDA(cudaStreamSynchronize(free));
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  (void)cudaGetLastError();
}

TEST_F(CudartStreams, TheDefaultStreamWaitsForADestroyedStream) {
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  const DeviceBytes memory(100, 1);
  {
    const Hold hold(stream);
    EXPECT_CUDA(cudaMemsetAsync(memory.data(), 2, 100, stream));
    EXPECT_CUDA(cudaStreamDestroy(stream));
    EXPECT_CUDA(cudaMemsetAsync(memory.data(), 3, 100, nullptr));
  }
  EXPECT_EQ(memory.read(), bytes_of(100, 3));
}

TEST_F(CudartStreams, ACopyComesAfterTheDefaultStreamsOfBothDevices) {
  GANTRY_REQUIRE_DEVICES(2);
  GANTRY_REQUIRE_SIM();  // CUDA promises it for cudaMemcpyPeer() alone
  const OwnStream blocking(cudaStreamDefault);
  const DeviceBytes memory(100, 1);
  std::vector<unsigned char> host(100, 3);
  const auto copy_on_other = [&](void* dst, const void* src) {
    EXPECT_CUDA(cudaSetDevice(1));
    EXPECT_CUDA(cudaMemcpy(dst, src, 100, cudaMemcpyDefault));
  };
  const auto copy_meanwhile = [&](void* dst, const void* src) {
    Hold hold(blocking);
    EXPECT_CUDA(cudaMemsetAsync(memory.data(), 2, 100, blocking));
    std::future<void> end = std::async(std::launch::async, copy_on_other, dst, src);
    EXPECT_EQ(end.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
    hold.release();
    end.get();
  };
  copy_meanwhile(memory.data(), host.data());
  EXPECT_EQ(memory.read(), bytes_of(100, 3));
  copy_meanwhile(host.data(), memory.data());
  EXPECT_EQ(host, bytes_of(100, 2));
}

TEST_F(CudartStreams, EventsOrderStreamsAndMeasureTime) {
  GANTRY_REQUIRE_DEVICES(2);
  const OwnStream first(cudaStreamNonBlocking);
  ASSERT_CUDA(cudaSetDevice(1));
  const OwnStream second(cudaStreamNonBlocking);
  ASSERT_CUDA(cudaSetDevice(0));
  const DeviceBytes memory(100, 1);
  std::vector<unsigned char> out(100);
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  ASSERT_CUDA(cudaEventCreate(&begin));
  ASSERT_CUDA(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
  float ms = -1;
  EXPECT_CUDA_ERROR(cudaEventElapsedTime(&ms, begin, end), cudaErrorInvalidResourceHandle);
  {
    Hold hold(first);
    EXPECT_CUDA(cudaEventRecord(begin, first));
    EXPECT_CUDA(cudaMemsetAsync(memory.data(), 2, 100, first));
    EXPECT_CUDA(cudaEventRecord(end, first));
    EXPECT_CUDA(cudaStreamWaitEvent(second, end, 0));
    EXPECT_EQ(cudaStreamQuery(second), cudaErrorNotReady);
    EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
    (void)cudaGetLastError();
    hold.release();
    EXPECT_CUDA(cudaMemcpyAsync(out.data(), memory.data(), 100, cudaMemcpyDeviceToHost, second));
    EXPECT_CUDA(cudaStreamSynchronize(second));
    EXPECT_EQ(out, bytes_of(100, 2));
  }
  EXPECT_CUDA(cudaEventSynchronize(end));
  EXPECT_CUDA(cudaEventElapsedTime(&ms, begin, end));
  EXPECT_GE(ms, 0);
  EXPECT_CUDA_ERROR(cudaEventRecord(begin, second), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA(cudaEventDestroy(begin));
  EXPECT_CUDA(cudaEventDestroy(end));
}

TEST_F(CudartStreams, CallbacksRunInOrderOfTheStream) {
  const OwnStream stream(cudaStreamNonBlocking);
  struct Record {
    std::string text;
    cudaStream_t stream = nullptr;
    cudaError_t status = cudaErrorUnknown;
  } record;
  EXPECT_CUDA(cudaLaunchHostFunc(
      stream, [](void* to) { static_cast<Record*>(to)->text += "a"; }, &record));
  EXPECT_CUDA(cudaStreamAddCallback(
      stream,
      [](cudaStream_t of, cudaError_t status, void* to) {
        auto* const into = static_cast<Record*>(to);
        into->text += "b";
        into->stream = of;
        into->status = status;
      },
      &record, 0));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(record.text, "ab");
  EXPECT_EQ(record.stream, stream);
  EXPECT_EQ(record.status, cudaSuccess);
}

// Which is the reason why the blocking stream does not hold it back.
TEST_F(CudartStreams, EachThreadHasADefaultStream) {
  const DeviceBytes memory(100, 1);
  const OwnStream held(cudaStreamDefault);
  {
    const Hold hold(held);
    EXPECT_CUDA(cudaMemsetAsync_ptsz(memory.data(), 2, 50, nullptr));
    EXPECT_CUDA(cudaStreamSynchronize_ptsz(nullptr));
    EXPECT_CUDA(cudaMemset_ptds(memory.data(), 3, 20));
    EXPECT_CUDA(cudaMemsetAsync(memory.data(), 4, 10, cudaStreamPerThread));
    EXPECT_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
  }
  std::vector<unsigned char> expected = bytes_of(100, 1);
  std::fill_n(expected.begin(), 50, 2);
  std::fill_n(expected.begin(), 20, 3);
  std::fill_n(expected.begin(), 10, 4);
  EXPECT_EQ(memory.read(), expected);
}

TEST_F(CudartStreams, TheDefaultStreamOfAThreadComesAfterTheLegacyOne) {
  const DeviceBytes memory(100, 1);
  {
    Hold hold(nullptr);
    EXPECT_CUDA(cudaMemsetAsync(memory.data(), 2, 100, nullptr));
    EXPECT_CUDA(cudaMemsetAsync_ptsz(memory.data(), 3, 100, nullptr));
    EXPECT_EQ(cudaStreamQuery(cudaStreamPerThread), cudaErrorNotReady);
  }
  EXPECT_EQ(memory.read(), bytes_of(100, 3));
  (void)cudaGetLastError();
}

TEST_F(CudartStreams, TheLegacyDefaultStreamComesAfterThoseOfAllThreads) {
  GANTRY_REQUIRE_SIM();  // CUDA promises nothing about the query
  const DeviceBytes memory(100, 1);
  for (const bool has_ended : {false, true}) {
    std::promise<void> leave;
    std::promise<void> submitted;
    std::optional<Hold> hold;
    std::thread other([&] {
      hold.emplace(cudaStreamPerThread);
      EXPECT_CUDA(cudaMemsetAsync_ptsz(memory.data(), 2, 100, nullptr));
      submitted.set_value();
      leave.get_future().wait();
    });
    submitted.get_future().wait();
    if (has_ended) {
      leave.set_value();
      other.join();
    }
    EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
    EXPECT_CUDA(cudaMemsetAsync(memory.data(), 3, 100, nullptr));
    hold->release();
    EXPECT_EQ(memory.read(), bytes_of(100, 3));
    EXPECT_CUDA(cudaStreamQuery(nullptr));
    if (!has_ended) {
      leave.set_value();
      other.join();
    }
    (void)cudaGetLastError();
  }
}

TEST_F(CudartStreams, CallsWithoutAStreamBlockTheHost) {
  GANTRY_REQUIRE_SIM();  // on a GPU only some do
  const OwnStream blocking(cudaStreamDefault);
  const DeviceBytes memory(100, 1);
  const DeviceBytes other(100, 2);
  std::vector<std::function<void()>> calls;
  calls.emplace_back([&] { EXPECT_CUDA(cudaMemset(memory.data(), 3, 100)); });
  calls.emplace_back([&] { EXPECT_CUDA(cudaMemset2D(memory.data(), 10, 3, 10, 10)); });
  calls.emplace_back(
      [&] { EXPECT_CUDA(cudaMemcpy(memory.data(), other.data(), 100, cudaMemcpyDeviceToDevice)); });
  calls.emplace_back([&] {
    EXPECT_CUDA(cudaMemcpy2D(memory.data(), 10, other.data(), 10, 10, 10, cudaMemcpyDefault));
  });
  calls.emplace_back([&] { EXPECT_CUDA(cudaMemcpyPeer(memory.data(), 0, other.data(), 0, 100)); });
  calls.emplace_back([] { EXPECT_CUDA(cudaStreamSynchronize(nullptr)); });
  for (const auto& call : calls) {
    Hold hold(blocking);
    std::future<void> end = std::async(std::launch::async, call);
    EXPECT_EQ(end.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
    hold.release();
    end.get();
  }
}

TEST_F(CudartStreams, AGraphRunsWhatWasCaptured) {
  const OwnStream stream(cudaStreamNonBlocking);
  const DeviceBytes from(100, 1);
  const DeviceBytes to(100);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  EXPECT_CUDA(cudaStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  unsigned long long id = 0;
  EXPECT_CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_NE(id, 0U);
  EXPECT_CUDA(cudaMemcpyAsync(to.data(), from.data(), 100, cudaMemcpyDeviceToDevice, stream));
  EXPECT_CUDA(cudaMemsetAsync(from.data(), 2, 100, stream));
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  EXPECT_EQ(to.read(), bytes_of(100, 0));
  cudaGraphExec_t instance = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&instance, graph, 0));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  EXPECT_CUDA(cudaGraphUpload(instance, stream));
  EXPECT_CUDA(cudaGraphLaunch(instance, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(to.read(), bytes_of(100, 1));
  EXPECT_CUDA(cudaGraphLaunch(instance, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(to.read(), bytes_of(100, 2));
  EXPECT_CUDA(cudaGraphExecDestroy(instance));
}

TEST_F(CudartStreams, AGraphRecordsExternalEvents) {
  const OwnStream stream(cudaStreamNonBlocking);
  cudaEvent_t event = nullptr;
  ASSERT_CUDA(cudaEventCreate(&event));
  EXPECT_CUDA_ERROR(cudaEventRecordWithFlags(event, stream, 8), cudaErrorInvalidValue);
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_CUDA(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal));
  EXPECT_CUDA(cudaStreamWaitEvent(stream, event, cudaEventWaitExternal));
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  EXPECT_CUDA(cudaEventQuery(event));
  cudaGraphExec_t instance = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&instance, graph, 0));
  for (int round = 0; round < 2; ++round) {
    Hold hold(stream);
    EXPECT_CUDA(cudaGraphLaunch(instance, stream));
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    hold.release();
    EXPECT_CUDA(cudaEventSynchronize(event));
  }
  EXPECT_CUDA(cudaGraphExecDestroy(instance));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  EXPECT_CUDA(cudaEventDestroy(event));
  (void)cudaGetLastError();
}

TEST_F(CudartStreams, AnInstanceTakesAnotherGraphOfTheSameShape) {
  const OwnStream stream(cudaStreamNonBlocking);
  const DeviceBytes memory(100);
  const auto capture = [&](int value) {
    cudaGraph_t graph = nullptr;
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    EXPECT_CUDA(cudaMemsetAsync(memory.data(), value, 100, stream));
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
    return graph;
  };
  cudaGraph_t first = capture(1);
  cudaGraph_t second = capture(2);
  cudaGraphExec_t instance = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&instance, first, 0));
  cudaGraphExecUpdateResultInfo result{};
  ASSERT_CUDA(cudaGraphExecUpdate(instance, second, &result));
  EXPECT_EQ(result.result, cudaGraphExecUpdateSuccess);
  EXPECT_CUDA(cudaGraphDestroy(first));
  EXPECT_CUDA(cudaGraphDestroy(second));
  EXPECT_CUDA(cudaGraphLaunch(instance, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(memory.read(), bytes_of(100, 2));
  EXPECT_CUDA(cudaGraphExecDestroy(instance));
}

TEST_F(CudartStreams, TheDefaultStreamSpoilsTheCaptureOfABlockingStream) {
  const OwnStream stream(cudaStreamDefault);
  const DeviceBytes memory(100);
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  EXPECT_CUDA_ERROR(cudaMemsetAsync(memory.data(), 1, 100, nullptr),
                    cudaErrorStreamCaptureImplicit);
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA_ERROR(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  EXPECT_CUDA(cudaMemsetAsync(memory.data(), 2, 100, nullptr));
  EXPECT_EQ(memory.read(), bytes_of(100, 2));
}

}  // namespace
}  // namespace gantry::testing
