// Programs of CUDA and NCCL that start with both libraries in LD_PRELOAD.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "tests/support/subprocess.hpp"

namespace gantry::testing {
namespace {

Outcome run_preloaded(const std::string& program, const std::optional<std::string>& devices) {
  const std::string folder = GANTRY_CUDART_FOLDER;
  return run_command({.argv = {std::string(GANTRY_TEST_PROGRAM_DIR) + "/" + program},
                      .environment = {{"LD_PRELOAD", folder + "/libgantry_cudart.so:" + folder +
                                                         "/libgantry_nccl.so"},
                                      {"GANTRY_SIM_DEVICES", devices}}});
}

constexpr const char* kResults =
    "4 devices: Simulated GPU\n"
    "all_reduce: 10 10 10 10\n"
    "ring: 4 1 2 3\n"
    "graphs: 10 10 10 10\n"
    "last error: cudaSuccess\n";

TEST(CudartPrograms, AProgramWithoutKernelsRunsOnSimulatedDevices) {
  const Outcome outcome = run_preloaded("cudart_program", "4");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(outcome.out, kResults) << outcome.describe();
}

TEST(CudartPrograms, AProgramWithADefaultStreamForEachThreadRuns) {
  const Outcome outcome = run_preloaded("cudart_per_thread_program", "4");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(outcome.out, kResults) << outcome.describe();
}

TEST(CudartPrograms, AKernelIsRefusedByItsNameOnce) {
  const Outcome outcome = run_preloaded("cudart_kernel_program", "1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(outcome.out,
            "launch: cudaErrorNotSupported\nlaunch: cudaErrorNotSupported\n"
            "synchronize: cudaSuccess\n")
      << outcome.describe();
  EXPECT_EQ(outcome.err,
            "gantry: cannot launch kernel (anonymous namespace)::scale(float*, float): simulated "
            "devices run no kernels of the program (cudaErrorNotSupported)\n")
      << outcome.describe();
}

TEST(CudartPrograms, ProcessesShareMemoryAndEvents) {
  const Outcome outcome = run_preloaded("cudart_ipc_program", "2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(outcome.out, "the child read 5\nthe parent reads 6\n") << outcome.describe();
}

// Without simulated devices the CUDA runtime answers: with results, or that it has no GPU.
TEST(CudartPrograms, WithoutSimulatedDevicesTheRuntimeAnswers) {
  const Outcome outcome = run_preloaded("cudart_kernel_program", std::nullopt);
  const bool has_gpu = outcome.exit_code == 0;
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.exit_code, has_gpu ? 0 : 3) << outcome.describe();
  EXPECT_EQ(outcome.err, "") << outcome.describe();
  EXPECT_EQ(outcome.out.find("cudaErrorNotSupported"), std::string::npos) << outcome.describe();
}

TEST(CudartPrograms, HiddenDevicesAreNone) {
  const std::string folder = GANTRY_CUDART_FOLDER;
  const Outcome outcome =
      run_command({.argv = {std::string(GANTRY_TEST_PROGRAM_DIR) + "/cudart_program"},
                   .environment = {{"LD_PRELOAD", folder + "/libgantry_cudart.so"},
                                   {"GANTRY_SIM_DEVICES", "2"},
                                   {"CUDA_VISIBLE_DEVICES", ""}}});
  EXPECT_EQ(outcome.exit_code, 3) << outcome.describe();
  EXPECT_EQ(outcome.out, "cudaGetDeviceCount(&count): cudaErrorNoDevice\n") << outcome.describe();
}

}  // namespace
}  // namespace gantry::testing
