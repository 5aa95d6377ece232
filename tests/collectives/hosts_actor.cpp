// One rank of a job on several hosts. Prints what it sees, a line at a time.
//
//   hosts_actor check   compares sums and moves with what they must be, and ends
//   hosts_actor loop    sums until it fails, and ends with 3
//   hosts_actor die     the same, but rank 1 dies in the middle
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

namespace {

using gantry::Communicator;
using gantry::Tensor;

void say(int rank, const std::string& text) {
  std::printf("rank %d: %s\n", rank, text.c_str());
  std::fflush(stdout);
}

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(std::string("wrong: ") + what);
}

void check(Communicator& world) {
  const auto n = static_cast<float>(world.size());
  for (const std::int64_t count : {1, 1000, 1'000'003}) {
    Tensor sum =
        gantry::full({count}, static_cast<float>(world.rank() + 1), {.device = world.device()});
    world.all_reduce(sum);
    require(sum.amin().item<float>() == n * (n + 1) / 2, "smallest sum");
    require(sum.amax().item<float>() == n * (n + 1) / 2, "largest sum");
    Tensor all = gantry::zeros({count * world.size()}, {.device = world.device()});
    const Tensor mine =
        gantry::full({count}, static_cast<float>(world.rank()), {.device = world.device()});
    world.all_gather(all, mine);
    for (int r = 0; r < world.size(); ++r) {
      const Tensor part = all.narrow(0, r * count, count);
      require(part.amin().item<float>() == static_cast<float>(r), "gathered part");
      require(part.amax().item<float>() == static_cast<float>(r), "gathered part");
    }
  }
  world.barrier();
}

void loop(Communicator& world, bool dies) {
  Tensor sum = gantry::zeros({300'000}, {.device = world.device()});
  for (int round = 0;; ++round) {
    world.all_reduce(sum);
    if (round == 20) say(world.rank(), "sums");
    if (round == 25 && dies) std::raise(SIGKILL);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "check";
  int rank = -1;
  try {
    Communicator world = Communicator::world();
    rank = world.rank();
    say(rank, "transport " + world.transport());
    if (mode != "check") {
      loop(world, mode == "die" && rank == 1);
    } else {
      check(world);
    }
    say(rank, "ok");
    return 0;
  } catch (const gantry::PeerLostError& error) {
    say(rank, std::string("PeerLostError ") + error.what());
  } catch (const gantry::TimeoutError& error) {
    say(rank, std::string("TimeoutError ") + error.what());
  } catch (const std::exception& error) {
    say(rank, std::string("failed ") + error.what());
    return 1;
  }
  // Whoever lost a peer is not asked to say goodbye.
  std::_Exit(3);
}
