#include <gantry/device/monitor.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>

#include "device/device_monitor.hpp"
#include "machine/process_ids.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using testing::message_of;

// What NVML would tell of a machine, from the fake library.
class MonitorTest : public ::testing::Test {
 protected:
  ~MonitorTest() override {
    unsetenv("FAKE_NVML");
    unsetenv("FAKE_NVML_FACTS");
    unsetenv("FAKE_NVML_FAILS");
  }
  static void machine(const std::string& devices, const std::string& facts = "") {
    setenv("FAKE_NVML", devices.c_str(), 1);
    setenv("FAKE_NVML_FACTS", facts.c_str(), 1);
  }
  static constexpr const char* kTwo = "H200,GPU-a,00000000:1B:00.0;H200,GPU-b,00000000:1C:00.0";
  static constexpr const char* kDivided = "A100,GPU-a,00000000:06:00.0,MIG-x,MIG-y";
};

// Each reading by its name.
const std::map<std::string, std::function<void(const DeviceMonitor&)>> kReadings{
    {"utilization", [](const DeviceMonitor& monitor) { (void)monitor.utilization(); }},
    {"memory_usage", [](const DeviceMonitor& monitor) { (void)monitor.memory_usage(); }},
    {"temperature", [](const DeviceMonitor& monitor) { (void)monitor.temperature(); }},
    {"power_draw", [](const DeviceMonitor& monitor) { (void)monitor.power_draw(); }},
    {"clock_rate", [](const DeviceMonitor& monitor) { (void)monitor.clock_rate(); }},
    {"list_gpu_processes", [](const DeviceMonitor& monitor) { (void)monitor.processes(true); }},
};
// The object of each error, and NVML's function.
const std::map<std::string, std::pair<std::string, std::string>> kSources{
    {"utilization", {"the utilization", "nvmlDeviceGetUtilizationRates"}},
    {"memory_usage", {"the memory usage", "nvmlDeviceGetUtilizationRates"}},
    {"temperature", {"the temperature", "nvmlDeviceGetTemperature"}},
    {"power_draw", {"the power draw", "nvmlDeviceGetPowerUsage"}},
    {"clock_rate", {"the clock rate", "nvmlDeviceGetClockInfo"}},
    {"list_gpu_processes", {"the processes", "nvmlDeviceGetComputeRunningProcesses_v3"}},
};

std::string failure_of(const std::string& reading, const DeviceMonitor& monitor) {
  return message_of<NotSupported>([&] { kReadings.at(reading)(monitor); });
}

std::string begin_of_failure(const std::string& reading) {
  return reading + ": failed to read " + kSources.at(reading).first + " of cuda:3: ";
}

TEST_F(MonitorTest, ReadsTheDeviceThatHasTheUuid) {
  machine(kTwo,
          "0 utilization 1 2;1 utilization 40 5;1 temperature 61;1 power 312000 700000;"
          "1 clocks 1755 1980 2619;1 processes 17 1000 18 0xffffffffffffffff;pid17 name train");
  const machine::Nvml nvml(GANTRY_TEST_FAKE_NVML);
  const DeviceMonitor monitor(nvml, "GPU-b", "cuda:0");
  EXPECT_EQ(monitor.utilization(), 40);
  EXPECT_EQ(monitor.memory_usage(), 5);
  EXPECT_EQ(monitor.temperature(), 61);
  EXPECT_EQ(monitor.power_draw(), 312000);
  EXPECT_EQ(monitor.clock_rate(), 1980);
  EXPECT_THAT(monitor.processes(true),
              ElementsAre(GpuProcess{17, "train", 1000}, GpuProcess{18, "", std::nullopt}));
  EXPECT_THAT(monitor.processes(false),
              ElementsAre(GpuProcess{17, "", 1000}, GpuProcess{18, "", std::nullopt}));
}

TEST_F(MonitorTest, AnInstanceHasTheTemperaturePowerAndClockOfItsGpu) {
  machine(kDivided,
          "0 utilization 1 2;0 temperature 44;0 power 250000;0 clocks 1 1410 2;"
          "0/1 processes 17 1000");
  const machine::Nvml nvml(GANTRY_TEST_FAKE_NVML);
  const DeviceMonitor monitor(nvml, "MIG-y", "cuda:3");
  EXPECT_EQ(monitor.temperature(), 44);
  EXPECT_EQ(monitor.power_draw(), 250000);
  EXPECT_EQ(monitor.clock_rate(), 1410);
  EXPECT_THAT(monitor.processes(false), ElementsAre(GpuProcess{17, "", 1000}));
  for (const std::string reading : {"utilization", "memory_usage"}) {
    EXPECT_EQ(
        failure_of(reading, monitor),
        begin_of_failure(reading) + "MIG-y is a MIG instance, and the driver counts whole GPUs");
  }
}

TEST_F(MonitorTest, WithoutALibraryEveryReadingSaysWhatIsMissing) {
  const machine::Nvml nvml("/nowhere/libnvidia-ml.so.1");
  const DeviceMonitor monitor(nvml, "GPU-a", "cuda:3");
  for (const auto& [reading, unused] : kReadings) {
    EXPECT_EQ(failure_of(reading, monitor),
              begin_of_failure(reading) + nvml.problem() +
                  "; install the library of the NVIDIA driver, or set GANTRY_NVML_PATH to it");
  }
  EXPECT_THAT(nvml.problem(), HasSubstr("failed to load /nowhere/libnvidia-ml.so.1: "));
}

TEST_F(MonitorTest, ADriverThatIsNotLoadedIsNamed) {
  setenv("FAKE_NVML_FAILS", "1", 1);
  const machine::Nvml nvml(GANTRY_TEST_FAKE_NVML);
  EXPECT_THAT(failure_of("temperature", DeviceMonitor(nvml, "GPU-a", "cuda:3")),
              HasSubstr("cuda:3: NVML does not start: Driver Not Loaded; "));
}

TEST_F(MonitorTest, AValueThatTheDriverDoesNotTellIsAnErrorWithItsFunction) {
  machine(kTwo);
  const machine::Nvml nvml(GANTRY_TEST_FAKE_NVML);
  const DeviceMonitor monitor(nvml, "GPU-a", "cuda:3");
  for (const auto& [reading, source] : kSources) {
    EXPECT_EQ(failure_of(reading, monitor),
              begin_of_failure(reading) + source.second + ": Not Supported");
  }
}

TEST_F(MonitorTest, AFunctionThatTheDriverLacksIsNamed) {
  machine(kTwo, "0 processes 17 1000;pid17 name train");
  const machine::Nvml nvml(GANTRY_TEST_FAKE_OLD_NVML);
  ASSERT_EQ(nvml.problem(), "");
  const DeviceMonitor monitor(nvml, "GPU-a", "cuda:3");
  for (const auto& [reading, source] : kSources) {
    if (reading == "list_gpu_processes") continue;
    EXPECT_EQ(failure_of(reading, monitor),
              begin_of_failure(reading) + source.second + ": the driver lacks this function");
  }
  // The name of a process is no reason to withhold the process.
  EXPECT_THAT(monitor.processes(true), ElementsAre(GpuProcess{17, "", 1000}));
}

TEST_F(MonitorTest, ADeviceThatNvmlDoesNotKnowIsNamed) {
  machine(kTwo, "0 temperature 40");
  const machine::Nvml nvml(GANTRY_TEST_FAKE_NVML);
  for (const auto& [reading, unused] : kReadings) {
    EXPECT_EQ(failure_of(reading, DeviceMonitor(nvml, "GPU-z", "cuda:3")),
              begin_of_failure(reading) + "nvmlDeviceGetHandleByUUID(GPU-z): Not Found");
  }
  // An instance whose GPU the driver does not tell.
  EXPECT_EQ(failure_of("temperature", DeviceMonitor(nvml, "MIG-z", "cuda:3")),
            begin_of_failure("temperature") + "nvmlDeviceGetHandleByUUID(MIG-z): Not Found");
  machine(kDivided);
  const machine::Nvml old(GANTRY_TEST_FAKE_OLD_NVML);
  EXPECT_EQ(failure_of("temperature", DeviceMonitor(old, "MIG-x", "cuda:3")),
            begin_of_failure("temperature") +
                "nvmlDeviceGetDeviceHandleFromMigDeviceHandle: the driver lacks this function");
}

TEST_F(MonitorTest, AnErrorHasItsDevice) {
  const machine::Nvml nvml("/nowhere/libnvidia-ml.so.1");
  try {
    (void)DeviceMonitor(nvml, "GPU-a", "cuda:3").temperature();
    ADD_FAILURE() << "no error";
  } catch (const NotSupported& error) {
    EXPECT_EQ(error.device(), "cuda:3");
  }
}

TEST_F(MonitorTest, ThreadsReadAtOnce) {
  machine(kTwo, "0 utilization 40 5;0 temperature 61;0 processes 17 1000");
  const machine::Nvml nvml(GANTRY_TEST_FAKE_NVML);
  const DeviceMonitor monitor(nvml, "GPU-a", "cuda:0");
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        count += monitor.utilization() != 40 || monitor.temperature() != 61 ||
                 monitor.processes(false).size() != 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

TEST_F(MonitorTest, AListOfProcessesIsText) {
  std::ostringstream text;
  text << GpuProcessList{Device::cuda(1),
                         {{17, "/bin/train\x1b[2J", std::uint64_t{512} << 20}, {18, "", {}}}};
  EXPECT_EQ(text.str(),
            "cuda:1\n"
            "process 17 (/bin/train\\x1b[2J) uses 512.0 MiB GPU memory\n"
            "process 18 uses an unknown amount of GPU memory\n");
  EXPECT_EQ((GpuProcessList{Device::cuda(0), {}}.str()), "cuda:0\nno processes are running\n");
}

// The public functions.
class DeviceMonitorTest : public testing::DeviceTest {
 protected:
  // Each public function by its name.
  std::map<std::string, std::function<void(Device)>> functions_{
      {"utilization", [](Device device) { (void)utilization(device); }},
      {"memory_usage", [](Device device) { (void)memory_usage(device); }},
      {"temperature", [](Device device) { (void)temperature(device); }},
      {"power_draw", [](Device device) { (void)power_draw(device); }},
      {"clock_rate", [](Device device) { (void)clock_rate(device); }},
      {"list_gpu_processes", [](Device device) { (void)list_gpu_processes(device); }},
  };
};

TEST_F(DeviceMonitorTest, ADeviceThatIsNoGpuIsRefused) {
  for (const auto& [name, function] : functions_) {
    EXPECT_ERROR(function(Device::cpu()), InvalidArgument,
                 name + ": expected a CUDA device, but got cpu");
    EXPECT_THROW(function(Device::cuda(1000)), InvalidArgument);
  }
}

TEST_F(DeviceMonitorTest, SimulatedDevicesHaveNoLoad) {
  GANTRY_REQUIRE_SIM();
  for (const auto& [name, function] : functions_) {
    EXPECT_EQ(message_of<NotSupported>([&] { function(Device::cuda()); }),
              name + ": failed to read " + kSources.at(name).first +
                  " of cuda:0: it is a simulated device; unset GANTRY_SIM_DEVICES to use GPUs");
  }
}

// Each value that the driver tells is plausible; what it does not tell has a reason.
TEST_F(DeviceMonitorTest, RealDevicesHavePlausibleValues) {
  GANTRY_REQUIRE_CUDA();
  struct Reading {
    int (*read)(Device);
    int least, most;
  };
  const std::map<std::string, Reading> readings{{"utilization", {utilization, 0, 100}},
                                                {"memory_usage", {memory_usage, 0, 100}},
                                                {"temperature", {temperature, 5, 120}},
                                                {"power_draw", {power_draw, 1'000, 2'000'000}},
                                                {"clock_rate", {clock_rate, 50, 5'000}}};
  for (int i = 0; i < device_count(); ++i) {
    const Device device = Device::cuda(i);
    for (const auto& [name, reading] : readings) {
      try {
        EXPECT_THAT(reading.read(device), AllOf(Ge(reading.least), Le(reading.most))) << name;
      } catch (const NotSupported& error) {
        EXPECT_THAT(error.what(), HasSubstr(": nvmlDevice")) << name;
        RecordProperty(name, error.what());
      }
    }
    const GpuProcessList list = list_gpu_processes(device);
    EXPECT_EQ(list.device, device);
    for (const GpuProcess& process : list.processes) {
      EXPECT_GT(process.pid, 0);
      EXPECT_TRUE(machine::has_host_process_ids() || process.name.empty());
    }
    std::cout << list;
  }
}

TEST_F(DeviceMonitorTest, ThreadsReadRealDevicesAtOnce) {
  GANTRY_REQUIRE_CUDA();
  std::vector<std::thread> threads;
  std::vector<int> temperatures(4);
  for (int& value : temperatures) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) value = temperature(Device::cuda(0));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(temperatures, ::testing::Each(Ge(5)));
}

}  // namespace
}  // namespace gantry
