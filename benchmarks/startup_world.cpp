// A rank that makes the world and ends after its first collective, for job_startup.py.
#include <cstdio>
#include <exception>

#include <gantry/gantry.hpp>

int main() try {
  const gantry::Communicator world = gantry::Communicator::world();
  const gantry::Tensor value = gantry::ones({256}, world.device());
  world.all_reduce(value);
  gantry::synchronize(world.device());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "startup_world: %s\n", error.what());
  return 1;
}
