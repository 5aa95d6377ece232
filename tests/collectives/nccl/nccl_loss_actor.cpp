// One of two ranks over NCCL. Rank 1 comes to no operation but the first and waits to be killed,
// and the argument says how rank 0 hears of it; or both call what does not fit together.

#include <dlfcn.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/stream_hold.hpp"

using namespace gantry;

namespace {

constexpr std::int64_t kLength = std::int64_t{64} << 20;  // 256 MiB of i32
constexpr int kPending = 8;
// More than a device's queue holds.
constexpr int kMostCalls = 20'000;

enum class AtStart { goes_on, dies, gives_up };
AtStart at_start = AtStart::goes_on;

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("check failed: " + what);
}

void say(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void check_sum(Communicator& group, std::int64_t length) {
  Tensor tensor = ones({length}, {.dtype = i32, .device = group.device()});
  group.all_reduce(tensor).synchronize();
  require(tensor.amin().item<int>() == group.size() && tensor.amax().item<int>() == group.size(),
          "all_reduce");
}

// Requires that `action` throws PeerLostError with `rank`.
template <class Action>
void expect_loss(int rank, const std::string& what, Action action) {
  try {
    action();
  } catch (const PeerLostError& error) {
    require(error.rank() == rank, what + ": " + error.what());
    return;
  }
  require(false, what + " threw nothing");
}

void go_on_alone(Communicator& world, Tensor& tensor) {
  expect_loss(1, "a call of a broken group", [&] { (void)world.all_reduce(tensor); });
  Communicator rest = world.shrink({1});
  check_sum(rest, 1000);
  synchronize(world.device());
}

void call_until_it_throws(Communicator& world, Tensor& tensor) {
  for (int call = 0; call < kMostCalls; ++call) {
    if (call % 100 == 0) say(fmt::format("called {}.", call));
    (void)world.all_reduce(tensor);
  }
  // The queue is longer than that.
  synchronize(world.device());
}

// A message without a sender, after others.
void receive_in_vain(Communicator& world) {
  Tensor tensor = full({1000}, world.rank(), {.dtype = i32, .device = world.device()});
  const int peer = 1 - world.rank();
  for (int turn = 0; turn < 2; ++turn) {
    if (turn == world.rank()) world.send(tensor, peer);
    if (turn != world.rank()) world.recv(tensor, peer);
  }
  synchronize(world.device());
  if (world.rank() == 1) {
    say("enqueued");
    pause();
  }
  const Work work = world.recv(tensor, peer);
  try {
    work.synchronize();
  } catch (const TimeoutError& error) {
    require(std::string(error.what()).find("rank(s) 1") != std::string::npos, error.what());
    synchronize(world.device());
    return say("survived");
  }
  require(false, "a message that nobody sent arrived");
}

// A rank of another host is late for a call, or dies before it.
void wait_between_hosts(Communicator& world, Tensor& tensor) {
  if (world.rank() == 1) {
    say("enqueued");
    pause();
  }
  const Work work = world.all_reduce(tensor);
  say("enqueued");
  std::string seen;
  try {
    work.synchronize();
  } catch (const TimeoutError&) {
    seen = "a TimeoutError";
  } catch (const NcclError&) {
    seen = "an NcclError";
  }
  require(!seen.empty(), "a call without rank 1 ended");
  synchronize(world.device());
  say("survived " + seen);
}

// Blocks of which rank 0 sends fewer than rank 1 expects; then the group goes on.
void exchange_unequal_blocks(Communicator& world) {
  constexpr std::int64_t kRows = 1 << 20;
  Tensor in = ones({2 * kRows}, {.dtype = i32, .device = world.device()});
  Tensor out = zeros({3 * kRows}, {.dtype = i32, .device = world.device()});
  const std::vector<std::int64_t> sends = {kRows, kRows};
  const std::vector<std::int64_t> wrong = {2 * kRows, kRows};
  Tensor part = out.narrow(0, 0, 2 * kRows);
  try {
    world.rank() == 0 ? world.all_to_all(part, in, sends, sends)
                      : world.all_to_all(out, in, wrong, sends);
    require(false, "blocks of different sizes were exchanged");
  } catch (const InvalidArgument& error) {
    require(std::string(error.what())
                    .find("rank 0 sends 1048576 elements to rank 1, which expects "
                          "2097152") != std::string::npos,
            error.what());
  }
  world.all_to_all(part, in, sends, sends).synchronize();
  require(part.amin().item<int>() == 1, "all_to_all");
  say("survived");
}

// Rank 1 does not come to where NCCL waits for it.
void start_without_rank_1(AtStart how) {
  if (std::getenv("RANK") == std::string("1")) at_start = how;
  try {
    (void)Communicator::world();
  } catch (const PeerLostError& error) {
    require(error.rank() == 1, error.what());
    return say("survived");
  }
  require(false, "NCCL started without rank 1");
}

void run(const std::string& how) {
  if (how == "start, dying") return start_without_rank_1(AtStart::dies);
  if (how == "start, giving up") return start_without_rank_1(AtStart::gives_up);
  Communicator world = Communicator::world();
  require(world.transport() == "nccl", "the transport is " + world.transport());
  check_sum(world, kLength);
  if (how == "message") return receive_in_vain(world);
  if (how == "blocks") return exchange_unequal_blocks(world);
  Tensor tensor = ones({kLength}, {.dtype = i32, .device = world.device()});
  if (how == "between hosts") return wait_between_hosts(world, tensor);
  const bool survives = world.rank() == 0;
  // Kernels of rank 0 wait for kernels of rank 1, which never begin.
  if (!survives) new testing::StreamHold(Stream::current(world.device()));
  if (how == "full") {
    Tensor few = tensor.narrow(0, 0, 1000);
    expect_loss(1, "a full queue", [&] { call_until_it_throws(world, few); });
    go_on_alone(world, few);
    return say("survived");
  }
  std::vector<Work> works;
  for (int i = 0; i < kPending; ++i) works.push_back(world.all_reduce(tensor));
  say("enqueued");
  if (!survives) pause();
  if (how == "exit") return;
  if (how == "abort") {
    world.abort();
    expect_loss(0, "a pending call", [&] { works.back().synchronize(); });
    synchronize(world.device());
    return say("survived");
  }
  if (how == "work") {
    expect_loss(1, "a pending call", [&] { works.back().synchronize(); });
  } else {
    expect_loss(1, "synchronize", [&] { synchronize(world.device()); });
  }
  for (const Work& work : works) {
    expect_loss(1, "a call without a result", [&] { work.synchronize(); });
  }
  go_on_alone(world, tensor);
  say("survived");
}

}  // namespace

// In place of NCCL's, also where there is no NCCL. gantry has loaded NCCL for itself alone.
struct UniqueId {
  char bytes[128];
};
extern "C" __attribute__((visibility("default"))) int ncclCommInitRank(void** comm, int ranks,
                                                                       UniqueId id, int rank) {
  constexpr int kInternalError = 3;
  if (at_start == AtStart::dies) ::kill(::getpid(), SIGKILL);
  if (at_start == AtStart::gives_up) return kInternalError;
  static const auto start = reinterpret_cast<decltype(&ncclCommInitRank)>(
      ::dlsym(::dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD), "ncclCommInitRank"));
  return start(comm, ranks, id, rank);
}

int main(int, char** argv) {
  try {
    run(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    say(fmt::format("failed: {}", error.what()));
    return 1;
  }
}
