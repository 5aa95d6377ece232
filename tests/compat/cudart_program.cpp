// A program of CUDA and NCCL that knows nothing of gantry: one thread, all devices, no kernels.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/compat/nccl_functions.hpp"

namespace {

constexpr std::size_t kCount = 1000;

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  std::printf("%s: %s\n", call, cudaGetErrorName(result));
  std::exit(3);
}

void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  std::printf("%s: %s\n", call, ncclGetLastError(nullptr));
  std::exit(4);
}

#define CHECK(call) check(call, #call)

struct Rank {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  float* send = nullptr;
  float* recv = nullptr;
  float* host = nullptr;
};

void open(Rank& rank, int device) {
  CHECK(cudaSetDevice(device));
  CHECK(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&rank.begin));
  CHECK(cudaEventCreate(&rank.end));
  CHECK(cudaMalloc(&rank.send, kCount * sizeof(float)));
  CHECK(cudaMalloc(&rank.recv, kCount * sizeof(float)));
  CHECK(cudaMallocHost(&rank.host, kCount * sizeof(float)));
  CHECK(cudaMemset(rank.recv, 0, kCount * sizeof(float)));
  const std::vector<float> values(kCount, static_cast<float>(device + 1));
  CHECK(cudaMemcpy(rank.send, values.data(), kCount * sizeof(float), cudaMemcpyHostToDevice));
}

void close(Rank& rank, int device) {
  CHECK(cudaSetDevice(device));
  CHECK(ncclCommDestroy(rank.comm));
  CHECK(cudaFreeHost(rank.host));
  CHECK(cudaFree(rank.recv));
  CHECK(cudaFree(rank.send));
  CHECK(cudaEventDestroy(rank.end));
  CHECK(cudaEventDestroy(rank.begin));
  CHECK(cudaStreamDestroy(rank.stream));
}

// Prints what each rank has received, which is the same everywhere in its memory.
void print(const char* what, std::vector<Rank>& ranks) {
  std::printf("%s:", what);
  for (Rank& rank : ranks) {
    CHECK(cudaMemcpyAsync(rank.host, rank.recv, kCount * sizeof(float), cudaMemcpyDeviceToHost,
                          rank.stream));
    CHECK(cudaStreamSynchronize(rank.stream));
    for (std::size_t i = 1; i < kCount; ++i) {
      if (rank.host[i] != rank.host[0]) std::printf(" torn");
    }
    std::printf(" %g", static_cast<double>(rank.host[0]));
  }
  std::printf("\n");
}

void reduce_all(std::vector<Rank>& ranks) {
  CHECK(ncclGroupStart());
  for (Rank& rank : ranks) {
    CHECK(
        ncclAllReduce(rank.send, rank.recv, kCount, ncclFloat32, ncclSum, rank.comm, rank.stream));
  }
  CHECK(ncclGroupEnd());
}

void pass_on(std::vector<Rank>& ranks) {
  const int size = static_cast<int>(ranks.size());
  CHECK(ncclGroupStart());
  for (int i = 0; i < size; ++i) {
    Rank& rank = ranks[static_cast<std::size_t>(i)];
    CHECK(ncclSend(rank.send, kCount, ncclFloat32, (i + 1) % size, rank.comm, rank.stream));
    CHECK(ncclRecv(rank.recv, kCount, ncclFloat32, (i + size - 1) % size, rank.comm, rank.stream));
  }
  CHECK(ncclGroupEnd());
}

// Captures an all-reduce on every device and runs it twice.
void reduce_by_graphs(std::vector<Rank>& ranks) {
  for (Rank& rank : ranks) {
    CHECK(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
  }
  reduce_all(ranks);
  std::vector<cudaGraphExec_t> instances;
  for (Rank& rank : ranks) {
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(rank.stream, &graph));
    CHECK(cudaGraphInstantiate(&instances.emplace_back(), graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      CHECK(cudaGraphLaunch(instances[i], ranks[i].stream));
    }
  }
  for (Rank& rank : ranks) CHECK(cudaStreamSynchronize(rank.stream));
  for (cudaGraphExec_t instance : instances) CHECK(cudaGraphExecDestroy(instance));
}

}  // namespace

int main() {
  int count = 0;
  CHECK(cudaGetDeviceCount(&count));
  cudaDeviceProp facts{};
  CHECK(cudaGetDeviceProperties(&facts, count - 1));
  std::printf("%d devices: %s\n", count, facts.name);
  std::vector<Rank> ranks(static_cast<std::size_t>(count));
  std::vector<ncclComm_t> comms(ranks.size());
  CHECK(ncclCommInitAll(comms.data(), count, nullptr));
  for (int i = 0; i < count; ++i) {
    Rank& rank = ranks[static_cast<std::size_t>(i)];
    rank.comm = comms[static_cast<std::size_t>(i)];
    open(rank, i);
    CHECK(cudaEventRecord(rank.begin, rank.stream));
  }
  reduce_all(ranks);
  for (int i = 0; i < count; ++i) {
    Rank& rank = ranks[static_cast<std::size_t>(i)];
    CHECK(cudaSetDevice(i));
    CHECK(cudaEventRecord(rank.end, rank.stream));
    CHECK(cudaEventSynchronize(rank.end));
    float ms = -1;
    CHECK(cudaEventElapsedTime(&ms, rank.begin, rank.end));
    if (ms < 0) std::printf("negative time\n");
  }
  print("all_reduce", ranks);
  pass_on(ranks);
  print("ring", ranks);
  reduce_by_graphs(ranks);
  print("graphs", ranks);
  for (int i = 0; i < count; ++i) close(ranks[static_cast<std::size_t>(i)], i);
  std::printf("last error: %s\n", cudaGetErrorName(cudaGetLastError()));
}
