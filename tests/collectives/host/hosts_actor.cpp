// One rank of a job on several hosts. Prints one line per event.
//
//   hosts_actor check   compares sums and moves with what they must be, and ends
//   hosts_actor loop    sums until it fails, and ends with 3
//   hosts_actor die     the same, but rank 1 dies in the middle
//   hosts_actor splits  makes many groups in two threads
//   hosts_actor part    three ranks: one leaves a group, one aborts one, one waits in vain in one
//   hosts_actor sent    two ranks: one drops a group whose message the other receives later
//   hosts_actor unsent  two ranks: one drops a group in which it waited in vain, and is sent to
//   then
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

namespace {

using gantry::Communicator;
using gantry::Tensor;

// Few enough bytes to be on their way before they are received, too many for MPI to copy them.
constexpr std::int64_t kDetachedElements = 5000;

void say(int rank, const std::string& text) {
  std::printf("rank %d: %s\n", rank, text.c_str());
  std::fflush(stdout);
}

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(std::string("wrong: ") + what);
}

// `call` throws an E that says `text`.
template <class E, class Call>
void expect(Call call, const std::string& text) {
  try {
    call();
  } catch (const E& error) {
    if (std::string(error.what()).find(text) != std::string::npos) return;
    throw std::runtime_error("expected '" + text + "', but got: " + error.what());
  }
  throw std::runtime_error("expected '" + text + "'");
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

// Allocates the memory that was freed last, and checks later that it is not written.
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
    expect<gantry::TimeoutError>([&] { group.send(data, 0); }, "says rank 0");
    world.send(data, 0);
  }
}

// Errors of the other ranks when a rank leaves, aborts or times out; one group for each.
void part_ways(Communicator& world) {
  Communicator left = world.split(0);
  Communicator aborted = world.split(0);
  Communicator late = world.split(0);
  Tensor data = gantry::full({kDetachedElements}, static_cast<float>(world.rank()),
                             {.device = world.device()});
  Tensor token = gantry::zeros({1}, {.device = world.device()});
  if (world.rank() == 1) {
    left.send(data, 0);
    left = {};
    aborted.abort();
  }
  world.host_barrier();
  if (world.rank() == 0) {
    left.recv(data, 1);
    require(data.amin().item<float>() == 1 && data.amax().item<float>() == 1, "last message");
  }
  world.host_barrier();
  if (world.rank() != 1) {
    expect<gantry::PeerLostError>([&] { left.all_reduce(data); }, "rank 1 has left the job");
  }
  for (int i = 0; i < 2; ++i) {
    expect<gantry::PeerLostError>([&] { aborted.all_reduce(data); }, "rank 1 aborted");
  }
  // Rank 0 has the shortest deadline.
  if (world.rank() == 0) {
    expect<gantry::TimeoutError>([&] { late.recv(data, 2); }, "rank(s) 2 did not enter");
    world.send(token, 2);
  } else {
    if (world.rank() == 2) world.recv(token, 0);
    expect<gantry::TimeoutError>([&] { late.recv(data, 3 - world.rank()); },
                                 "rank 2 did not enter the operation in time, says rank 0");
  }
  check(world);
}

// Two threads make groups at the same time, each of a group of its own, and sum its own numbers.
void split_side_by_side(Communicator& world) {
  std::vector<Communicator> groups{world.split(0), world.split(0)};
  std::vector<std::exception_ptr> failures(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t which = 0; which < groups.size(); ++which) {
    threads.emplace_back([&, which] {
      try {
        gantry::set_device(world.device());
        for (int i = 0; i < 300; ++i) {
          Communicator part = groups[which].split(0);
          const auto mine = static_cast<float>(which + 1);
          Tensor sum = gantry::full({8}, mine, {.device = world.device()});
          part.all_reduce(sum);
          require(sum.amin().item<float>() == mine * static_cast<float>(part.size()), "sum");
        }
      } catch (...) {
        failures[which] = std::current_exception();
        groups[which].abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
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
    } else if (mode == "part") {
      part_ways(world);
    } else if (mode == "splits") {
      split_side_by_side(world);
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
  // A rank that lost a peer need not deregister.
  std::_Exit(3);
}
