// Makes and leaves a group of two ranks, tells what is in the folder of flight files, and ends as
// its argument says: exit, kill; fork: after a child that exits; world: after a group of all
// processes.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

#include <gantry/collectives/communicator.hpp>
#include <gantry/device/device.hpp>
#include <gantry/tensor/factories.hpp>

#include "job/flight_file.hpp"

namespace {

using namespace gantry;

void tell() {
  for (const auto& entry : std::filesystem::directory_iterator(flight::folder())) {
    std::cout << entry.path().extension().string() << ' ';
  }
  std::cout << std::endl;
}

void use_local_group() { Communicator::local({Device::cuda(0), Device::cuda(1)}).clear(); }

void tell_sum(const Communicator& group) {
  const Tensor tensor = full({1000}, group.rank() + 1, {.dtype = f32, .device = group.device()});
  group.all_reduce(tensor).synchronize();
  std::cout << "sum " << tensor[0].item<float>() << std::endl;
}

// Two groups of all processes, each after a group inside this one.
void use_world() {
  const Communicator world = Communicator::world();
  tell_sum(world);
  use_local_group();
  tell_sum(world.split(0));
  world.host_barrier();
  if (world.rank() == 0) tell();
  world.host_barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string end = argc > 1 ? argv[1] : "exit";
  use_local_group();
  tell();
  if (end == "world") use_world();
  if (end == "kill") kill(getpid(), SIGKILL);
  if (end == "fork") {
    const pid_t child = fork();
    if (child == 0) std::exit(0);
    int status = 0;
    waitpid(child, &status, 0);
    std::cout << "child " << status << ' ';
    tell();
  }
  return 0;
}
