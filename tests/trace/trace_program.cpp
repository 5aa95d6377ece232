// A rank whose work is traced, for trace_test: trace_program PATH [exit|kill].
#include <csignal>
#include <cstring>
#include <gantry/gantry.hpp>
#include <iostream>

int main(int argc, char** argv) {
  using namespace gantry;
  trace::start(argv[1]);
  const char* end = argc > 2 ? argv[2] : "stop";
  Communicator world = Communicator::world();
  Tensor t = ones({1000}, world.device());
  {
    trace::Range range("step");
    t.add_(1);
    world.all_reduce(t);
  }
  synchronize(world.device());
  world.host_barrier();
  if (std::strcmp(end, "kill") == 0) std::raise(SIGKILL);
  if (std::strcmp(end, "exit") == 0) return 0;
  const trace::TraceSummary summary = trace::stop();
  std::cout << summary.events << " " << summary.dropped << "\n";
}
