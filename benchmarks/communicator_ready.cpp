// How long Communicator::world() takes in processes whose contexts exist. All ranks begin at the
// same second, so that none is charged with waiting for another that started late:
//
//   glaunch -n 8 communicator_ready --at $(( $(date +%s) + 15 ))
//   mpirun -n 8 communicator_ready --at $(( $(date +%s) + 15 ))
//
// One line per rank, in milliseconds: world(), the first collective until its result is there, and
// split(), the median of five.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <thread>
#include <vector>

#include <gantry/gantry.hpp>
#include <gantry/job/process_identity.hpp>

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Everything that a rank uses anyway, on the device that world() will choose: a context, its
// allocator, a kernel that has been loaded.
void make_context() {
  const int local_rank = gantry::detect_process_identity().local_rank;
  gantry::set_device(gantry::Device::cuda(local_rank % gantry::device_count()));
  gantry::Tensor warm = gantry::ones({256}, gantry::current_device());
  warm.add_(1.0);
  gantry::synchronize();
}

int measure(std::chrono::system_clock::time_point at) {
  make_context();
  if (std::chrono::system_clock::now() > at) {
    throw gantry::InvalidArgument(
        "--at: expected a time after the contexts exist, some seconds on");
  }
  std::this_thread::sleep_until(at);

  const Clock::time_point begin = Clock::now();
  gantry::Communicator world = gantry::Communicator::world();
  const double ready = milliseconds_since(begin);

  const Clock::time_point second = Clock::now();
  gantry::Tensor value = gantry::ones({256}, world.device());
  world.all_reduce(value);
  gantry::synchronize();
  const double first = milliseconds_since(second);

  std::vector<double> splits;
  for (int i = 0; i < 5; ++i) {
    world.barrier();
    const Clock::time_point third = Clock::now();
    const gantry::Communicator part = world.split(0, world.rank());
    splits.push_back(milliseconds_since(third));
  }
  std::sort(splits.begin(), splits.end());
  fmt::print("rank {} of {}: world {:.1f}, first all_reduce {:.1f}, split {:.1f}\n", world.rank(),
             world.size(), ready, first, splits[splits.size() / 2]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3 || std::string_view(argv[1]) != "--at") {
    fmt::print(stderr, "usage: communicator_ready --at SECONDS_SINCE_1970\n");
    return 2;
  }
  return measure(std::chrono::system_clock::time_point(std::chrono::seconds(std::atoll(argv[2]))));
} catch (const std::exception& error) {
  fmt::print(stderr, "communicator_ready: {}\n", error.what());
  return 2;
}
