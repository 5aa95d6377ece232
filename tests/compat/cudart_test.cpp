// The CUDA runtime's calls for devices and memory, and its errors, by a program of CUDA's.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>

#include <gantry/device/device.hpp>
#include <gantry/device/properties.hpp>

#include "tests/compat/cudart_checks.hpp"
#include "tests/support/device_fixture.hpp"

extern "C" {
cudaError_t cudaMemcpy_ptds(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemset_ptds(void* data, int value, std::size_t bytes);
}

namespace gantry::testing {
namespace {

class Cudart : public DeviceTest {};

TEST_F(Cudart, CountsDevicesAndKeepsOneForEachThread) {
  GANTRY_REQUIRE_DEVICES(2);
  int count = 0;
  ASSERT_CUDA(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, device_count());
  EXPECT_CUDA(cudaSetDevice(1));
  EXPECT_EQ(current_device(), Device::cuda(1));
  std::thread([] {
    int device = -1;
    EXPECT_CUDA(cudaGetDevice(&device));
    EXPECT_EQ(device, 0);
  }).join();
  int device = -1;
  EXPECT_CUDA(cudaGetDevice(&device));
  EXPECT_EQ(device, 1);
}

TEST_F(Cudart, TellsTheSameFactsByEveryCall) {
  GANTRY_REQUIRE_DEVICES(2);
  cudaDeviceProp facts{};
  ASSERT_CUDA(cudaGetDeviceProperties(&facts, 1));
  const DeviceProperties& expected = device_properties(Device::cuda(1));
  EXPECT_EQ(facts.name, expected.name);
  EXPECT_EQ(facts.totalGlobalMem, expected.total_memory);
  EXPECT_EQ(facts.multiProcessorCount, expected.multiprocessors);
  EXPECT_EQ(facts.unifiedAddressing, 1);
  int major = 0;
  int processors = 0;
  int bus = 0;
  EXPECT_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 1));
  EXPECT_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 1));
  EXPECT_CUDA(cudaDeviceGetAttribute(&bus, cudaDevAttrPciBusId, 1));
  EXPECT_EQ(major, expected.major);
  EXPECT_EQ(processors, expected.multiprocessors);
  EXPECT_EQ(bus, facts.pciBusID);
  std::array<char, 32> id{};
  EXPECT_CUDA(cudaDeviceGetPCIBusId(id.data(), id.size(), 1));
  EXPECT_EQ(strcasecmp(id.data(), expected.pci_bus_id.c_str()), 0) << id.data();
  int device = -1;
  EXPECT_CUDA(cudaDeviceGetByPCIBusId(&device, id.data()));
  EXPECT_EQ(device, 1);
  int runtime = 0;
  EXPECT_CUDA(cudaRuntimeGetVersion(&runtime));
  EXPECT_EQ(runtime / 1000, CUDART_VERSION / 1000);
}

TEST_F(Cudart, AnUuidIsTheOneOfTheDevice) {
  cudaDeviceProp facts{};
  ASSERT_CUDA(cudaGetDeviceProperties(&facts, 0));
  std::string digits;
  for (const char byte : facts.uuid.bytes) {
    std::array<char, 3> two{};
    std::snprintf(two.data(), two.size(), "%02x", static_cast<unsigned char>(byte));
    digits += two.data();
  }
  std::string expected = device_properties(Device::cuda(0)).uuid.substr(4);
  std::erase(expected, '-');
  EXPECT_EQ(digits, expected);
}

TEST_F(Cudart, KeepsFlagsAndLimits) {
  GANTRY_REQUIRE_SIM();  // GPUs round limits
  unsigned flags = 0;
  EXPECT_CUDA(cudaSetDeviceFlags(cudaDeviceScheduleYield));
  EXPECT_CUDA(cudaGetDeviceFlags(&flags));
  EXPECT_EQ(flags, unsigned{cudaDeviceScheduleYield | cudaDeviceMapHost});
  EXPECT_CUDA(cudaSetDeviceFlags(cudaDeviceScheduleAuto));
  std::size_t limit = 0;
  EXPECT_CUDA(cudaDeviceSetLimit(cudaLimitStackSize, 4096));
  EXPECT_CUDA(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
  EXPECT_EQ(limit, 4096U);
  EXPECT_CUDA_ERROR(cudaDeviceGetLimit(&limit, static_cast<cudaLimit>(100)),
                    cudaErrorUnsupportedLimit);
  EXPECT_CUDA(cudaDeviceReset());
}

TEST_F(Cudart, AWrongDeviceChangesNothing) {
  EXPECT_CUDA_ERROR(cudaSetDevice(device_count()), cudaErrorInvalidDevice);
  EXPECT_CUDA_ERROR(cudaSetDevice(-1), cudaErrorInvalidDevice);
  cudaDeviceProp facts{};
  EXPECT_CUDA_ERROR(cudaGetDeviceProperties(&facts, device_count()), cudaErrorInvalidDevice);
  int value = 0;
  EXPECT_CUDA_ERROR(
      cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, device_count()),
      cudaErrorInvalidDevice);
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(Cudart, TheLastErrorStaysUntilItIsTaken) {
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  EXPECT_CUDA(cudaSetDevice(0));
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  std::thread([] { EXPECT_EQ(cudaGetLastError(), cudaSuccess); }).join();
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInvalidDevice), "invalid device ordinal");
}

TEST_F(Cudart, CopiesInAllDirections) {
  GANTRY_REQUIRE_DEVICES(2);
  constexpr std::size_t kSize = 1000;
  std::vector<unsigned char> in(kSize);
  std::iota(in.begin(), in.end(), 3);
  const DeviceBytes first(kSize);
  const DeviceBytes second(kSize);
  EXPECT_CUDA(cudaSetDevice(1));
  const DeviceBytes far(kSize);
  EXPECT_CUDA(cudaMemcpy(first.data(), in.data(), kSize, cudaMemcpyHostToDevice));
  EXPECT_CUDA(cudaMemcpy(second.data(), first.data(), kSize, cudaMemcpyDeviceToDevice));
  EXPECT_CUDA(cudaMemcpy(far.data(), second.data(), kSize, cudaMemcpyDefault));
  EXPECT_EQ(far.read(), in);
  EXPECT_CUDA(cudaMemset(far.data(), 7, kSize));
  EXPECT_CUDA(cudaMemcpyPeer(first.data(), 0, far.data(), 1, kSize));
  EXPECT_EQ(first.read(), bytes_of(kSize, 7));
  std::vector<unsigned char> out(kSize);
  EXPECT_CUDA(cudaMemcpy(out.data(), in.data(), kSize, cudaMemcpyHostToHost));
  EXPECT_EQ(out, in);
  EXPECT_CUDA(cudaSetDevice(0));
  EXPECT_CUDA(cudaMemset_ptds(second.data(), 9, kSize));
  EXPECT_CUDA(cudaMemcpy_ptds(out.data(), second.data(), kSize, cudaMemcpyDeviceToHost));
  EXPECT_EQ(out, bytes_of(kSize, 9));
  EXPECT_CUDA_ERROR(cudaMemcpy(out.data(), in.data(), kSize, static_cast<cudaMemcpyKind>(5)),
                    cudaErrorInvalidMemcpyDirection);
}

TEST_F(Cudart, CopiesRowsOfMatrices) {
  void* data = nullptr;
  std::size_t pitch = 0;
  ASSERT_CUDA(cudaMallocPitch(&data, &pitch, 5, 4));
  ASSERT_GE(pitch, 5U);
  EXPECT_CUDA(cudaMemset2D(data, pitch, 1, 5, 4));
  std::vector<unsigned char> in(std::size_t{4} * 3);
  std::iota(in.begin(), in.end(), 10);
  // The middle of each row.
  EXPECT_CUDA(cudaMemcpy2D(static_cast<std::byte*>(data) + 1, pitch, in.data(), 3, 3, 4,
                           cudaMemcpyHostToDevice));
  std::vector<unsigned char> out(std::size_t{4} * 5);
  EXPECT_CUDA(cudaMemcpy2D(out.data(), 5, data, pitch, 5, 4, cudaMemcpyDeviceToHost));
  const std::vector<unsigned char> expected{1, 10, 11, 12, 1, 1, 13, 14, 15, 1,
                                            1, 16, 17, 18, 1, 1, 19, 20, 21, 1};
  EXPECT_EQ(out, expected);
  EXPECT_CUDA_ERROR(cudaMemcpy2D(out.data(), 4, data, pitch, 5, 4, cudaMemcpyDeviceToHost),
                    cudaErrorInvalidPitchValue);
  EXPECT_CUDA(cudaFree(data));
}

TEST_F(Cudart, TellsThatADeviceIsFull) {
  std::size_t free = 0;
  std::size_t total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  EXPECT_LE(free, total);
  void* data = nullptr;
  EXPECT_CUDA_ERROR(cudaMalloc(&data, total + 1), cudaErrorMemoryAllocation);
  EXPECT_CUDA_ERROR(cudaMallocAsync(&data, total + 1, nullptr), cudaErrorMemoryAllocation);
  EXPECT_CUDA(cudaMalloc(&data, 1024));
  EXPECT_CUDA(cudaFree(data));
}

TEST_F(Cudart, FreesOnlyMemoryOfItsOwn) {
  int host = 0;
  EXPECT_CUDA_ERROR(cudaFree(&host), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaFreeHost(&host), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFree(nullptr));
  EXPECT_CUDA(cudaFreeHost(nullptr));
  void* data = nullptr;
  ASSERT_CUDA(cudaMalloc(&data, 100));
  EXPECT_CUDA(cudaFree(data));
  EXPECT_CUDA_ERROR(cudaFree(data), cudaErrorInvalidValue);
  ASSERT_CUDA(cudaMalloc(&data, 0));
  EXPECT_EQ(data, nullptr);
  EXPECT_CUDA_ERROR(cudaMalloc(nullptr, 1), cudaErrorInvalidValue);
}

TEST_F(Cudart, AllocatesInOrderOfAStream) {
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  void* data = nullptr;
  ASSERT_CUDA(cudaMallocAsync(&data, 100, stream));
  EXPECT_CUDA(cudaMemsetAsync(data, 3, 100, stream));
  std::vector<unsigned char> out(100);
  EXPECT_CUDA(cudaMemcpyAsync(out.data(), data, 100, cudaMemcpyDeviceToHost, stream));
  EXPECT_CUDA(cudaFreeAsync(data, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(out, bytes_of(100, 3));
  // cudaFree() takes such memory, too. It does not wait for the stream.
  ASSERT_CUDA(cudaMallocAsync(&data, 100, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA(cudaFree(data));
  EXPECT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(Cudart, ADeviceHasAPoolOfMemory) {
  cudaMemPool_t pool = nullptr;
  cudaMemPool_t current = nullptr;
  ASSERT_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
  EXPECT_CUDA(cudaDeviceGetMemPool(&current, 0));
  EXPECT_EQ(current, pool);
  std::uint64_t threshold = 1 << 20;
  EXPECT_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  threshold = 0;
  EXPECT_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  EXPECT_EQ(threshold, 1U << 20);
  std::uint64_t used_before = 0;  // by earlier work of the process
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used_before));
  void* data = nullptr;
  ASSERT_CUDA(cudaMallocFromPoolAsync(&data, 5000, pool, nullptr));
  std::uint64_t used = 0;
  EXPECT_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  EXPECT_GE(used, used_before + 5000);
  EXPECT_CUDA(cudaFreeAsync(data, nullptr));
  EXPECT_CUDA(cudaStreamSynchronize(nullptr));
  EXPECT_CUDA(cudaMemPoolTrimTo(pool, 0));
  EXPECT_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  EXPECT_EQ(used, used_before);
  EXPECT_CUDA_ERROR(cudaDeviceGetDefaultMemPool(&pool, device_count()), cudaErrorInvalidDevice);
}

TEST_F(Cudart, KnowsThePlaceOfAPointer) {
  GANTRY_REQUIRE_DEVICES(2);
  ASSERT_CUDA(cudaSetDevice(1));
  const DeviceBytes memory(100);
  void* pinned = nullptr;
  ASSERT_CUDA(cudaHostAlloc(&pinned, 100, cudaHostAllocPortable));
  ASSERT_CUDA(cudaSetDevice(0));
  cudaPointerAttributes facts{};
  EXPECT_CUDA(cudaPointerGetAttributes(&facts, static_cast<std::byte*>(memory.data()) + 50));
  EXPECT_EQ(facts.type, cudaMemoryTypeDevice);
  EXPECT_EQ(facts.device, 1);
  EXPECT_EQ(facts.hostPointer, nullptr);
  EXPECT_CUDA(cudaPointerGetAttributes(&facts, pinned));
  EXPECT_EQ(facts.type, cudaMemoryTypeHost);
  EXPECT_EQ(facts.hostPointer, pinned);
  EXPECT_CUDA(cudaPointerGetAttributes(&facts, &facts));
  EXPECT_EQ(facts.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(facts.devicePointer, nullptr);
  void* mapped = nullptr;
  EXPECT_CUDA(cudaHostGetDevicePointer(&mapped, pinned, 0));
  EXPECT_EQ(mapped, pinned);
  EXPECT_CUDA(cudaFreeHost(pinned));
}

// The address at which work of the current device uses the memory; null if it cannot.
void* reached_at(const void* data) {
  cudaPointerAttributes facts{};
  EXPECT_CUDA(cudaPointerGetAttributes(&facts, data));
  EXPECT_EQ(facts.type, cudaMemoryTypeDevice);
  EXPECT_EQ(facts.device, 1);
  return facts.devicePointer;
}

TEST_F(Cudart, APointerIsNullOnADeviceWithoutAccess) {
  GANTRY_REQUIRE_DEVICES(2);
  int can = 0;
  ASSERT_CUDA(cudaDeviceCanAccessPeer(&can, 0, 1));
  if (can == 0) GTEST_SKIP() << "needs access between peers, but the devices have none";
  ASSERT_CUDA(cudaSetDevice(1));
  const DeviceBytes memory(100);
  void* const inside = static_cast<std::byte*>(memory.data()) + 50;
  EXPECT_EQ(reached_at(inside), inside);
  ASSERT_CUDA(cudaSetDevice(0));
  // libgantry itself may have enabled access between GPUs.
  const bool was_enabled = cudaDeviceDisablePeerAccess(1) == cudaSuccess;
  (void)cudaGetLastError();
  EXPECT_EQ(reached_at(inside), nullptr);
  EXPECT_CUDA(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_EQ(reached_at(inside), inside);
  if (!was_enabled) {
    EXPECT_CUDA(cudaDeviceDisablePeerAccess(1));
    EXPECT_EQ(reached_at(inside), nullptr);
  }
}

TEST_F(Cudart, APoolGrantsAccessOfItsOwn) {
  GANTRY_REQUIRE_DEVICES(2);
  GANTRY_REQUIRE_SIM();  // CUDA's text says it of all memory, and nobody has asked a GPU
  ASSERT_CUDA(cudaSetDevice(1));
  cudaMemPool_t pool = nullptr;
  ASSERT_CUDA(cudaDeviceGetDefaultMemPool(&pool, 1));
  void* data = nullptr;
  ASSERT_CUDA(cudaMallocAsync(&data, 100, nullptr));
  void* const inside = static_cast<std::byte*>(data) + 99;
  ASSERT_CUDA(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(reached_at(inside), inside);
  ASSERT_CUDA(cudaSetDevice(0));
  ASSERT_CUDA(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_EQ(reached_at(inside), nullptr);
  EXPECT_CUDA(cudaDeviceDisablePeerAccess(1));
  cudaMemAccessDesc access{};
  access.location = {.type = cudaMemLocationTypeDevice, .id = 0};
  access.flags = cudaMemAccessFlagsProtReadWrite;
  EXPECT_CUDA(cudaMemPoolSetAccess(pool, &access, 1));
  EXPECT_EQ(reached_at(inside), inside);
  access.flags = cudaMemAccessFlagsProtNone;
  EXPECT_CUDA(cudaMemPoolSetAccess(pool, &access, 1));
  EXPECT_EQ(reached_at(inside), nullptr);
  EXPECT_CUDA(cudaFree(data));
}

TEST_F(Cudart, RegistersAnyRangeOfTheHost) {
  std::vector<unsigned char> memory(100'000, 4);
  unsigned char* const begin = memory.data() + 100;
  ASSERT_CUDA(cudaHostRegister(begin, 50'000, cudaHostRegisterDefault));
  cudaPointerAttributes facts{};
  EXPECT_CUDA(cudaPointerGetAttributes(&facts, begin + 49'999));
  EXPECT_EQ(facts.type, cudaMemoryTypeHost);
  EXPECT_CUDA_ERROR(cudaHostRegister(begin, 50'000, cudaHostRegisterDefault),
                    cudaErrorHostMemoryAlreadyRegistered);
  const DeviceBytes device(50'000);
  EXPECT_CUDA(cudaMemcpy(device.data(), begin, 50'000, cudaMemcpyHostToDevice));
  EXPECT_EQ(device.read(), bytes_of(50'000, 4));
  EXPECT_CUDA(cudaHostUnregister(begin));
  EXPECT_CUDA_ERROR(cudaHostUnregister(begin), cudaErrorHostMemoryNotRegistered);
}

TEST_F(Cudart, EnablesAccessToAPeerOnce) {
  GANTRY_REQUIRE_DEVICES(2);
  GANTRY_REQUIRE_SIM();  // libgantry itself may have enabled access between GPUs
  int can = 0;
  EXPECT_CUDA(cudaDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  EXPECT_CUDA(cudaDeviceCanAccessPeer(&can, 0, 0));
  EXPECT_EQ(can, 0);
  EXPECT_CUDA_ERROR(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
  EXPECT_CUDA(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_CUDA_ERROR(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  EXPECT_CUDA(cudaDeviceDisablePeerAccess(1));
  EXPECT_CUDA_ERROR(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
  EXPECT_CUDA_ERROR(cudaDeviceEnablePeerAccess(device_count(), 0), cudaErrorInvalidDevice);
}

TEST_F(Cudart, RefusesWhatKernelsNeed) {
  GANTRY_REQUIRE_SIM();
  const auto* const function = reinterpret_cast<const void*>(&bytes_of);
  cudaFuncAttributes facts{};
  EXPECT_CUDA_ERROR(cudaFuncGetAttributes(&facts, function), cudaErrorNotSupported);
  int blocks = 0;
  EXPECT_CUDA_ERROR(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 32, 0),
                    cudaErrorNotSupported);
  EXPECT_CUDA_ERROR(cudaLaunchKernel(function, dim3(), dim3(), nullptr, 0, nullptr),
                    cudaErrorNotSupported);
  EXPECT_CUDA(cudaDeviceSynchronize());
}

}  // namespace
}  // namespace gantry::testing
