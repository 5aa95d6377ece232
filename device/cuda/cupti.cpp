#include "device/cuda/cupti.hpp"

namespace gantry::profiling {
namespace {

SharedLibrary load_cupti() {
  return SharedLibrary({"libcupti.so." GANTRY_CUDA_MAJOR,
                        GANTRY_CUPTI_FOLDER "/libcupti.so." GANTRY_CUDA_MAJOR, "libcupti.so"},
                       "install CUPTI, or add its folder to LD_LIBRARY_PATH");
}

}  // namespace

const LoadedLibrary<Cupti>& cupti() {
  static const auto& loaded = *new LoadedLibrary<Cupti>(load_cupti());
  return loaded;
}

const CuptiCalls& cupti_calls() {
  static const auto& loaded = *new CuptiCalls([] {
    const SharedLibrary library = load_cupti();
    CuptiCalls calls;
    library.find(calls.set_thread_id_type, "cuptiSetThreadIdType");
    library.find(calls.enable_runtime, "cuptiActivityEnableRuntimeApi");
    library.find(calls.enable_driver, "cuptiActivityEnableDriverApi");
    return calls;
  }());
  return loaded;
}

}  // namespace gantry::profiling
