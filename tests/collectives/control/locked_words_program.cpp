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

void tell() {
  for (const auto& entry : std::filesystem::directory_iterator(gantry::flight::folder())) {
    std::cout << entry.path().extension().string() << ' ';
  }
  std::cout << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string end = argc > 1 ? argv[1] : "exit";
  gantry::Communicator::local({gantry::Device::cuda(0), gantry::Device::cuda(1)}).clear();
  tell();
  if (end == "world") {
    gantry::Communicator world = gantry::Communicator::world();
    const gantry::Tensor tensor =
        gantry::full({1000}, world.rank() + 1, {.dtype = gantry::f32, .device = world.device()});
    world.all_reduce(tensor).synchronize();
    std::cout << "sum " << tensor[0].item<float>() << std::endl;
    world.host_barrier();
  }
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
