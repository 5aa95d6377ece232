// One rank of the tests of elastic jobs. The first argument is the scenario.

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/bootstrap/joining.hpp"
#include "collectives/sim/schedule.hpp"

using namespace gantry;

namespace {

using Arguments = std::vector<std::string>;

void say(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("check failed: " + what);
}

int job_rank() { return static_cast<int>(env::get_int("GANTRY_RANK", 0, 4096).value()); }
int job_size() { return static_cast<int>(env::get_int("GANTRY_WORLD_SIZE", 1, 4096).value()); }
int replacement() { return static_cast<int>(env::get_int("GANTRY_RESTART", 0, 1'000'000).value()); }

// Points that this process may still pass before it kills itself; negative: all. It passes one
// before every signal that its kernels read or write, every message that it sends to the store or
// to another host, and every check.
std::atomic<std::int64_t> points_left{-1};

void pass_point() {
  if (points_left.load() >= 0 && points_left.fetch_sub(1) == 0) kill(getpid(), SIGKILL);
}

void plan_death(std::uint64_t points) { points_left = static_cast<std::int64_t>(points); }
// So at most two ranks of a round die, and one is left.
void cancel_death() { points_left = -1; }

ssize_t send_behind_point(int descriptor, const void* bytes, std::size_t count, int flags) {
  using Send = ssize_t (*)(int, const void*, std::size_t, int);
  static const auto real = reinterpret_cast<Send>(dlsym(RTLD_NEXT, "send"));
  pass_point();
  return real(descriptor, bytes, count, flags);
}

// The largest value of all ranks.
std::int64_t largest(const Communicator& group, std::int64_t value) {
  const Tensor tensor = full({1}, value, {.dtype = i64, .device = group.device()});
  group.all_reduce(tensor, ReduceOp::max).synchronize();
  return tensor.item<std::int64_t>();
}

void check_sum(const Communicator& group, std::int64_t length) {
  pass_point();
  const Tensor tensor = full({length}, group.rank() + 1, {.dtype = f32, .device = group.device()});
  group.all_reduce(tensor).synchronize();
  const double sum = group.size() * (group.size() + 1) / 2.0;
  require(tensor.amin().item<double>() == sum && tensor.amax().item<double>() == sum, "all_reduce");
}

// Goes on without `lost` and waits for the replacements. `interrupt` runs before each step.
Communicator recover(Communicator group, int lost, const std::function<void()>& interrupt) {
  for (std::vector<int> failed{lost};;) {
    try {
      interrupt();
      group = group.shrink(failed);
      failed.clear();
      interrupt();
      return group.size() == job_size() ? group : group.grow(job_size());
    } catch (const PeerLostError& error) {
      failed.push_back(error.rank());
    }
  }
}

// rounds <n> <seed>: in each round ranks that the seed chooses kill themselves somewhere, and the
// others go on with their replacements.
int rounds(const Arguments& arguments) {
  const std::int64_t most = std::stoll(arguments[0]);
  const auto seed = static_cast<std::uint64_t>(std::stoull(arguments[1]));
  const auto generator = [&](std::uint64_t number, int who) {
    std::seed_seq sequence{seed, number, static_cast<std::uint64_t>(who)};
    return std::mt19937_64(sequence);
  };
  // Some replacements die while they join.
  std::mt19937_64 mine = generator(1'000'000 + static_cast<std::uint64_t>(replacement()), -1);
  if (replacement() > 0 && replacement() < most && mine() % 8 == 0) plan_death(mine() % 30);
  Communicator group = Communicator::world();
  cancel_death();
  protocol::schedule::set_hook(pass_point);
  std::int64_t round = 0;
  for (;;) {
    std::function<void()> interrupt = [] {};
    try {
      round = largest(group, round);
      require(group.size() == job_size() && group.rank() == job_rank(), "the ranks of the job");
      const bool is_spread = env::get("GANTRY_BOOT_ID").has_value();
      require(group.local_size() == group.size() / (is_spread ? 2 : 1), "local size");
      if (round >= most) break;
      std::mt19937_64 draw = generator(static_cast<std::uint64_t>(round), 0);
      const int first = static_cast<int>(draw() % static_cast<std::uint64_t>(group.size()));
      const int second = static_cast<int>(draw() % static_cast<std::uint64_t>(group.size()));
      // Only simulated kernels on one machine pass points at their signals.
      const bool counts = platform() == Platform::simulated && !is_spread;
      const std::uint64_t way = draw() % 4;
      const std::uint64_t when = draw();
      const bool has_second = draw() % 4 == 0 && group.size() > 2;
      if (group.rank() == 0) say(fmt::format("round {} way {} rank {}", round, way, first));
      if (group.rank() == first) {
        if (way == 3) kill(getpid(), SIGKILL);
        plan_death(when % (counts ? 400 : 40));
      }
      // Another one dies while the others recover.
      if (has_second && group.rank() == second) {
        interrupt = [when] { plan_death(when % 20); };
      }
      const auto length = static_cast<std::int64_t>(1) << (draw() % 16);
      for (;;) check_sum(group, length);
    } catch (const PeerLostError& error) {
      ++round;
      group = recover(group, error.rank(), interrupt);
      cancel_death();
    }
  }
  group.host_barrier();
  say(fmt::format("rank {} is done", group.rank()));
  return 0;
}

// Prints the class and the text of what `call` throws.
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const TimeoutError& error) {
    return fmt::format("TimeoutError: {}", error.what());
  } catch (const PeerLostError& error) {
    return fmt::format("PeerLostError {}: {}", error.rank(), error.what());
  } catch (const InvalidArgument& error) {
    return fmt::format("InvalidArgument: {}", error.what());
  } catch (const NotSupported& error) {
    return fmt::format("NotSupported: {}", error.what());
  } catch (const Error& error) {
    return fmt::format("Error: {}", error.what());
  }
  return "nothing";
}

// Arguments that grow() refuses; the group stays usable.
int refusals(const Arguments&) {
  const Communicator world = Communicator::world();
  for (const int expected : {-1, 3, 4, 5}) {
    say(fmt::format("{}: {}", expected, error_of([&] { (void)world.grow(expected); })));
  }
  const Communicator half = world.split(world.rank() / 2);
  say("late: " + error_of([&] { (void)half.grow(3, std::chrono::milliseconds(-1)); }));
  say("differ: " + error_of([&] { (void)half.grow(3 + half.rank()); }));
  say("other: " +
      error_of([&] { half.rank() == 0 ? (void)half.grow(3) : (void)half.all_gather_bytes("x"); }));
  check_sum(half, 100);
  world.host_barrier();
  return 0;
}

// Two halves of the job grow at once. One leads until its deadline; the other one cannot.
int two_at_once(const Arguments&) {
  const Communicator world = Communicator::world();
  const Communicator half = world.split(world.rank() / 2);
  const bool leads = world.rank() < 2;
  const std::chrono::milliseconds timeout(leads ? 4000 : 1);
  const std::string awaited = leads ? "TimeoutError" : "Error";
  std::string error;
  while (!error.starts_with(awaited)) error = error_of([&] { (void)half.grow(4, timeout); });
  say(error);
  check_sum(half, 100);
  world.host_barrier();
  return 0;
}

// die <how the replacement behaves>: rank 1 dies. The others try to grow, and then end.
int die(const Arguments& arguments) {
  const std::string how = arguments[0];
  if (replacement() == 1 && how != "joins") {
    const ProcessIdentity identity = detect_process_identity();
    JobConnection job(identity, StoreRole::of(identity), std::chrono::seconds(60));
    if (how == "is-old") {
      announce_arrival(*job.client(), {job.self().rank, job.self().id, "gantry-0"});
    }
    if (how == "dies-half-way") {
      JoiningRank self(job);
      (void)self.await();
      kill(getpid(), SIGKILL);
    }
    for (;;) pause();
  }
  const Communicator world = Communicator::world();
  if (replacement() == 0) {
    world.host_barrier();
    if (world.rank() == 1) kill(getpid(), SIGKILL);
    const std::string lost = error_of([&] {
      for (;;) check_sum(world, 1000);
    });
    require(lost.starts_with("PeerLostError 1:"), lost);
    const Communicator rest = world.shrink({1});
    const std::chrono::milliseconds timeout(arguments.size() > 1 ? std::stoll(arguments[1]) : 0);
    Communicator whole;
    say("grows");
    say("grow: " + error_of([&] { whole = rest.grow(4, timeout); }));
    check_sum(rest, 1000);
    if (!whole.defined()) return 0;
    check_sum(whole, 1000);
    say(fmt::format("rank {} of {} was {}", whole.rank(), whole.size(), rest.rank()));
    whole.host_barrier();
    return 0;
  }
  check_sum(world, 1000);
  say(fmt::format("rank {} of {} is number {}", world.rank(), world.size(), replacement()));
  world.host_barrier();
  return 0;
}

// Rank 1 dies, and no rank catches what it throws then.
int unaware(const Arguments&) {
  const Communicator world = Communicator::world();
  world.host_barrier();
  if (world.rank() == 1 && replacement() == 0) kill(getpid(), SIGKILL);
  for (;;) check_sum(world, 1000);
}

// Rank 3 ends in order, rank 1 dies: the group cannot be whole again.
int ends(const Arguments&) {
  const Communicator world = Communicator::world();
  if (replacement() > 0) return 0;
  world.host_barrier();
  if (world.rank() == 1) kill(getpid(), SIGKILL);
  if (world.rank() == 3) return 0;
  const Communicator rest = world.shrink({1, 3});
  say("grow: " + error_of([&] { (void)rest.grow(4); }));
  return 0;
}

const std::map<std::string, std::function<int(const Arguments&)>> kScenarios{
    {"refusals", refusals}, {"two-at-once", two_at_once}, {"die", die},
    {"ends", ends},         {"unaware", unaware},         {"rounds", rounds},
};

}  // namespace

// Instead of the system's, for this whole process.
extern "C" [[gnu::visibility("default")]] ssize_t send(int descriptor, const void* bytes,
                                                       std::size_t count, int flags) {
  return send_behind_point(descriptor, bytes, count, flags);
}

int main(int argc, char** argv) {
  const auto scenario = argc > 1 ? kScenarios.find(argv[1]) : kScenarios.end();
  if (scenario == kScenarios.end()) {
    std::fputs("elastic_actor: unknown scenario\n", stderr);
    return 99;
  }
  return scenario->second({argv + 2, argv + argc});
}
