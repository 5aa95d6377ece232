// One of two ranks over NCCL, of which rank 1 comes to no operation but the first and waits to be
// killed. The argument says how rank 0 hears of it.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
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

// Requires that `action` blames `rank`.
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

void run(const std::string& how) {
  Communicator world = Communicator::world();
  require(world.transport() == "nccl", "the transport is " + world.transport());
  check_sum(world, kLength);
  Tensor tensor = ones({kLength}, {.dtype = i32, .device = world.device()});
  const bool survives = world.rank() == 0;
  // Kernels of rank 0 wait for those of rank 1, which never begin.
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

int main(int, char** argv) {
  try {
    run(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    say(fmt::format("failed: {}", error.what()));
    return 1;
  }
}
