// One rank of a job on several hosts. Prints what it sees, a line at a time.
//
//   hosts_actor check   compares sums and moves with what they must be, and ends
//   hosts_actor loop    sums until it fails, and ends with 3
//   hosts_actor die     the same, but rank 1 dies in the middle
//   hosts_actor sent    two ranks: one drops a group whose message the other receives later
//   hosts_actor unsent  two ranks: one drops a group in which it waited in vain, and is sent to
//   then
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

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

// Takes the memory that was freed last, and tells later whether somebody else writes to it.
class FreedMemory {
 public:
  FreedMemory() {
    for (int i = 0; i < 4000; ++i) blocks_.emplace_back(std::size_t{64} * (1 + i % 1100), kByte);
  }
  bool is_intact() const {
    return std::all_of(blocks_.begin(), blocks_.end(), [](const std::vector<char>& block) {
      return std::count(block.begin(), block.end(), kByte) ==
             static_cast<std::ptrdiff_t>(block.size());
    });
  }

 private:
  static constexpr char kByte = 0x55;
  std::vector<std::vector<char>> blocks_;
};

// Few enough bytes to be on their way before they are received, too many for MPI to copy them.
constexpr std::int64_t kDetachedElements = 5000;

void drop_sender(Communicator& world) {
  Tensor token = gantry::zeros({1}, {.device = world.device()});
  Tensor data = gantry::full({kDetachedElements}, static_cast<float>(7 - 7 * world.rank()),
                             {.device = world.device()});
  Communicator group = world.split(0, world.rank());
  if (world.rank() == 0) {
    group.send(data, 1);
    group = {};
    const FreedMemory memory;
    world.send(token, 1);
    world.host_barrier();
  } else {
    world.recv(token, 0);
    group.recv(data, 0);
    require(data.amin().item<float>() == 7 && data.amax().item<float>() == 7, "message");
    world.host_barrier();
  }
}

void drop_receiver(Communicator& world) {
  Tensor data = gantry::full({kDetachedElements}, 7.0F, {.device = world.device()});
  Communicator group = world.split(0, world.rank());
  if (world.rank() == 0) {
    try {
      group.recv(data, 1);
      require(false, "a message that was not sent");
    } catch (const gantry::TimeoutError&) {
    }
    group = {};
    const FreedMemory memory;
    world.send(data, 1);
    world.recv(data, 1);
    require(memory.is_intact(), "memory that was freed");
  } else {
    world.recv(data, 0);
    group.send(data, 0);
    world.send(data, 0);
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
    if (mode == "check") {
      check(world);
    } else if (mode == "sent") {
      drop_sender(world);
    } else if (mode == "unsent") {
      drop_receiver(world);
    } else {
      loop(world, mode == "die" && rank == 1);
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
