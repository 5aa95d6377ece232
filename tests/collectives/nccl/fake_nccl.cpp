// A libnccl.so.2 of a version that is too old. FAKE_NCCL_VERSION sets another one.
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version);

int ncclGetVersion(int* version) {
  const char* const text = std::getenv("FAKE_NCCL_VERSION");
  *version = text != nullptr ? std::atoi(text) : 21'703;
  return 0;
}
