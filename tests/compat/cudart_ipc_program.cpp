// Two processes of CUDA: the child opens the parent's memory and event.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  std::printf("%s: %s\n", call, cudaGetErrorName(result));
  std::exit(3);
}

#define CHECK(call) check(call, #call)

struct Handles {
  cudaIpcMemHandle_t memory;
  cudaIpcEventHandle_t event;
};

// Reads the byte after the parent's event, and adds 1.
void be_child(int input) {
  Handles handles{};
  if (::read(input, &handles, sizeof(handles)) != sizeof(handles)) std::exit(4);
  void* data = nullptr;
  cudaEvent_t event = nullptr;
  CHECK(cudaSetDevice(1));
  CHECK(cudaIpcOpenMemHandle(&data, handles.memory, cudaIpcMemLazyEnablePeerAccess));
  CHECK(cudaIpcOpenEventHandle(&event, handles.event));
  CHECK(cudaStreamWaitEvent(nullptr, event, 0));
  cudaPointerAttributes facts{};
  CHECK(cudaPointerGetAttributes(&facts, data));
  if (facts.devicePointer != data) std::exit(6);
  unsigned char byte = 0;
  CHECK(cudaMemcpy(&byte, data, 1, cudaMemcpyDeviceToHost));
  std::printf("the child read %d\n", byte++);
  CHECK(cudaMemcpy(data, &byte, 1, cudaMemcpyHostToDevice));
  CHECK(cudaEventDestroy(event));
  CHECK(cudaIpcCloseMemHandle(data));
}

void be_parent(int output) {
  void* data = nullptr;
  cudaEvent_t event = nullptr;
  CHECK(cudaMalloc(&data, 100));
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  CHECK(cudaMemsetAsync(data, 5, 100, nullptr));
  CHECK(cudaEventRecord(event, nullptr));
  Handles handles{};
  CHECK(cudaIpcGetMemHandle(&handles.memory, data));
  CHECK(cudaIpcGetEventHandle(&handles.event, event));
  if (::write(output, &handles, sizeof(handles)) != sizeof(handles)) std::exit(4);
  int status = 0;
  if (::wait(&status) < 0 || status != 0) std::exit(5);
  unsigned char byte = 0;
  CHECK(cudaMemcpy(&byte, data, 1, cudaMemcpyDeviceToHost));
  std::printf("the parent reads %d\n", byte);
  CHECK(cudaEventDestroy(event));
  CHECK(cudaFree(data));
}

}  // namespace

int main() {
  int ends[2];
  if (::pipe(ends) != 0) return 4;
  if (const pid_t child = ::fork(); child == 0) {  // before the first call of CUDA
    be_child(ends[0]);
  } else {
    be_parent(ends[1]);
  }
}
