#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <string>
#include <vector>

#include <gantry/gantry.hpp>

namespace gantry::benchmarks {

// Calls that are timed together: few enough that the device's queue never fills and stops the host.
inline constexpr int kBatch = 200;
// How often each measurement is made.
inline constexpr int kRounds = 30;

inline std::vector<Device> all_devices() {
  std::vector<Device> devices;
  for (int i = 0; i < device_count(); ++i) devices.push_back(Device::cuda(i));
  return devices;
}

inline void synchronize_all() {
  for (const Device device : all_devices()) synchronize(device);
}

// Host time of one call, in batches; the device is waited for outside the timing.
template <class Call>
void time_host(benchmark::State& state, Call call) {
  call();
  synchronize_all();
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kBatch; ++i) call();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(seconds.count() / kBatch);
    synchronize_all();
  }
}

// Time from the call to its completion on every device, averaged over back-to-back calls as the
// peers are measured.
template <class Call>
void time_completion(benchmark::State& state, int calls, Call call) {
  for (int i = 0; i < 3; ++i) call();
  synchronize_all();
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    synchronize_all();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(seconds.count() / calls);
  }
}

// Registers one benchmark that is timed by hand, as often as the peers are: time outside the timing
// would mislead the library's own choice. The name is what peers call the same thing.
template <class Body>
void add(const std::string& name, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), body)
      ->UseManualTime()
      ->Iterations(kRounds)
      ->Unit(benchmark::kMicrosecond);
}

// One function per file; each registers its benchmarks.
void register_dispatch();
void register_launch();  // with CUDA only
void register_allocation();
void register_copy();
void register_cpu();
void register_kernels();
void register_selection();
void register_matmul();
void register_graph();
void register_comm();
void register_sanitizer();

}  // namespace gantry::benchmarks
