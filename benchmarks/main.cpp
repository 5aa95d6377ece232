// All benchmarks in one program; --benchmark_filter picks. peer_torch.* has the same names, so that
// compare.py can put both side by side.

#include <cstdio>

#include "benchmarks/timing.hpp"

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  if (!gantry::is_available()) {
    std::fprintf(stderr, "bench: no device; set GANTRY_SIM_DEVICES=4 for simulated ones\n");
    return 1;
  }
  benchmark::AddCustomContext("device", gantry::device_properties(gantry::Device::cuda(0)).name);
  benchmark::AddCustomContext("devices", std::to_string(gantry::device_count()));
  gantry::benchmarks::register_dispatch();
#ifdef GANTRY_BENCH_CUDA
  gantry::benchmarks::register_launch();
#endif
  gantry::benchmarks::register_allocation();
  gantry::benchmarks::register_copy();
  gantry::benchmarks::register_cpu();
  gantry::benchmarks::register_kernels();
  gantry::benchmarks::register_selection();
  gantry::benchmarks::register_matmul();
  gantry::benchmarks::register_graph();
  gantry::benchmarks::register_comm();
  gantry::benchmarks::register_sanitizer();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
