// A rank of a job that GANTRY_TRACE records: traced_rank [ROUNDS].
#include <cstdlib>
#include <gantry/gantry.hpp>

int main(int argc, char** argv) {
  using namespace gantry;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 10;
  Communicator world = Communicator::world();
  const Tensor sum = ones({1000}, world.device());
  for (int round = 0; round < rounds; ++round) {
    world.all_reduce(sum);
    synchronize(world.device());
  }
  world.host_barrier();
}
