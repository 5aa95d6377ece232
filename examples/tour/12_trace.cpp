// A trace: what the program and its devices did, and when, in one file for ui.perfetto.dev.
#include <gantry/gantry.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

int main() {
  using namespace gantry;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tour-" + std::to_string(getpid()) + ".json");
  manual_seed_all(3);
  const Tensor weights = randn({64, 64}, "cuda:0");

  // 1. Events are recorded from here to stop().
  trace::start(path);
  {
    // 2. A range names a part of the program on the thread's line.
    const trace::Range step("step 1");
    const Tensor hidden = weights.matmul(weights).relu();
    std::cout << "the sum is positive: " << (hidden.sum().item<float>() > 0) << "\n";
  }
  const trace::TraceSummary summary = trace::stop();
  std::cout << "events were recorded: " << (summary.events > 5) << ", dropped: " << summary.dropped
            << "\n";

  // 3. The file is JSON, with operations of the host, work of the devices and memory.
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const char* name : {"step 1", "matmul", "relu", "sum"}) {
    std::cout << name << ": " << (text.find(name) != std::string::npos) << "\n";
  }
  std::filesystem::remove(path);
}
// Output:
// the sum is positive: 1
// events were recorded: 1, dropped: 0
// step 1: 1
// matmul: 1
// relu: 1
// sum: 1
