// first_use_program NAME [copied]: runs an operation first inside a capture, replays it, and
// compares the results with the results of an eager run. With "copied" a copy between the devices
// precedes. Exit code 77: too few devices.
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "tests/integration/first_use_operations.hpp"

namespace gantry::testing {
namespace {

constexpr int kSkipped = 77;

// Copies from host memory make the inputs: no kernel has run.
FirstUseInputs make_inputs() {
  const Device first = Device::cuda(0);
  const Tensor square = arange(32 * 32, {.dtype = DType::f32}).view({32, 32});
  FirstUseInputs in;
  in.square = square.to(first);
  in.indices = (arange(32, {.dtype = DType::i64}) * 7).remainder(32).to(first);
  in.flag = ones({}, {.dtype = DType::bool_}).to(first);
  in.pinned = square.pin_memory();
  in.large = arange(256 * 1024, {.dtype = DType::f32}).view({256, 1024}).to(first);
  in.devices = {first};
  if (device_count() >= 2) {
    in.far = square.to(Device::cuda(1));
    in.devices.push_back(Device::cuda(1));
    synchronize(Device::cuda(1));
  }
  synchronize(first);
  return in;
}

bool are_equal(const Tensor& a, const Tensor& b) {
  const Tensor x = a.cpu().contiguous();
  const Tensor y = b.cpu().contiguous();
  return x.device() == y.device() && x.dtype() == y.dtype() && x.sizes() == y.sizes() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

int run(const std::string& name, bool copies_before) {
  for (const FirstUse& use : first_uses()) {
    if (use.name != name) continue;
    if (device_count() < use.devices) {
      std::cout << "needs " << use.devices << " devices\n";
      return kSkipped;
    }
    const FirstUseInputs in = make_inputs();
    if (copies_before) {
      in.far.clone().copy_(in.square);
      in.square.clone().copy_(in.far);
    }
    Graph graph;
    std::vector<Tensor> captured;
    {
      GraphCapture capture(graph, {.devices = in.devices});
      captured = use.run(in);
      capture.end();
    }
    graph.replay();
    graph.replay();
    const std::vector<Tensor> eager = use.run(in);
    for (std::size_t i = 0; i < eager.size(); ++i) {
      if (are_equal(captured.at(i), eager[i])) continue;
      std::cerr << name << ": result " << i << " of the replay differs from the eager one\n";
      return 1;
    }
    std::cout << name << ": " << eager.size() << " equal results\n";
    return 0;
  }
  std::cerr << "no operation is called '" << name << "'\n";
  return 1;
}

}  // namespace
}  // namespace gantry::testing

int main(int argc, char** argv) {
  try {
    return gantry::testing::run(argc > 1 ? argv[1] : "", argc > 2);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
