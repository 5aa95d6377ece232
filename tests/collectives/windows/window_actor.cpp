// One rank of a group of processes with a window. The argument is the scenario.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include <gantry/collectives/window.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/collectives/windows/view_kernels.hpp"

using namespace gantry;

namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("check failed: " + what);
}

// Numbers go round: each rank adds one to what it got, and passes it on.
void pass_round(const Communicator& world, const Window& window, const Tensor& mine) {
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    if (world.rank() != 0 || round > 0) window.wait_signal(previous);
    window.peer(next).copy_(mine.add(1));
    window.put_signal(next);
  }
  if (world.rank() == 0) window.wait_signal(previous);
  window.barrier();
  const int passed =
      world.rank() == 0 ? kRounds * world.size() : (kRounds - 1) * world.size() + world.rank();
  require(mine.amin().item<int>() == passed && mine.amax().item<int>() == passed,
          fmt::format("expected {}, but got {}", passed, mine.amax().item<int>()));
}

// Rank 0 ends while its wait for rank 1 is pending. The others wait for a signal of rank 0.
void end_with_a_pending_wait(const Communicator& world, const Window& window,
                             const std::string& what) {
  if (world.rank() != 0) {
    window.wait_signal(0);
    return synchronize(world.device());
  }
  window.wait_signal(1);
  if (what == "returns") return;
  fmt::print("exits\n");
  std::exit(0);  // with the window, and so the group
}

// Kernels of all ranks meet for ever. Rank 1 dies, or stops, inside its kernel.
void meet_until(const Communicator& world, const Window& window, const std::string& what) {
  constexpr int kBlocks = 2;
  constexpr int kThreads = 32;
  const Tensor results = zeros({kBlocks * kThreads}, {.dtype = i32, .device = world.device()});
  constexpr int kForEver = 1 << 30;
  Tensor pid = full({1}, getpid(), {.dtype = i32, .device = world.device()});
  world.broadcast(pid, 1);
  const pid_t pid_of_1 = pid.item<std::int32_t>();
  view_kernels::meet(Stream::current(world.device()), window, results, kBlocks, kThreads, kForEver);
  world.host_barrier();
  if (world.rank() == 1) raise(what == "kernel-dies" ? SIGKILL : SIGSTOP);
  try {
    synchronize(world.device());
  } catch (const TimeoutError&) {
    if (world.rank() == 0) kill(pid_of_1, SIGKILL);  // the launcher waits for it
    throw;
  }
}

void run(const std::string& what) {
  const Communicator world = Communicator::world();
  const Tensor mine = zeros({1000}, {.dtype = i32, .device = world.device()});
  const Window window = world.window(mine);
  window.barrier();
  if (what == "ring") return pass_round(world, window, mine);
  if (what == "returns" || what == "exits") return end_with_a_pending_wait(world, window, what);
  synchronize(world.device());
  world.host_barrier();
  if (what.starts_with("kernel-")) return meet_until(world, window, what);
  if (world.rank() == 1) {
    if (what == "dies") raise(SIGKILL);
    return;  // it leaves
  }
  window.wait_signal(1);
  synchronize(world.device());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : "");
    fmt::print("ok\n");
    return 0;
  } catch (const PeerLostError& error) {
    fmt::print("lost rank {}: {}\n", error.rank(), error.what());
  } catch (const TimeoutError& error) {
    fmt::print("late rank {}: {}\n", fmt::join(error.ranks(), " "), error.what());
  } catch (const std::exception& error) {
    fmt::print("failed: {}\n", error.what());
  }
  std::fflush(stdout);
  return 3;
}
