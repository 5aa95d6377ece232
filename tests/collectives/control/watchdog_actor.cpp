// One rank of the tests of ranks that die, stop, leave or are late. The first argument is the
// scenario. SIGUSR1 continues a rank that waits for it.

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/sim/schedule.hpp"
#include "job/flight_folder.hpp"

using namespace gantry;

namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("check failed: " + what);
}

void say(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void await_go() {
  sigset_t go;
  sigemptyset(&go);
  sigaddset(&go, SIGUSR1);
  int signal = 0;
  sigwait(&go, &signal);
}

// Signals that this rank's kernels have read or written.
std::atomic<std::int64_t> points{0};
// The process ends by SIGKILL at this one; 0: at none.
std::atomic<std::int64_t> last_point{0};

void count_point() {
  if (points.fetch_add(1) + 1 == last_point.load()) kill(getpid(), SIGKILL);
}

// Returns once a kernel has polled in vain for a while.
void await_polls() {
  const std::int64_t begin = points.load();
  while (points.load() < begin + 1000) std::this_thread::yield();
}

Tensor values(const Communicator& group, std::int64_t length, double value) {
  return full({length}, value, {.dtype = f32, .device = group.device()});
}

// Registered memory for what operations read and write, while there is some.
Tensor arena;

Tensor input(const Communicator& group, std::int64_t length, double value) {
  if (!arena.defined()) return values(group, length, value);
  Tensor tensor = arena.narrow(0, 0, length);
  return tensor.fill_(value);
}

Tensor gathered_output(const Communicator& group, std::int64_t length) {
  const std::int64_t all = length * group.size();
  return arena.defined() ? arena.narrow(0, length, all).fill_(0) : values(group, all, 0);
}

// Sum of rank + 1.
double sum_of(const Communicator& group) { return group.size() * (group.size() + 1) / 2.0; }

void check_all_reduce(Communicator& group, std::int64_t length) {
  Tensor tensor = input(group, length, group.rank() + 1);
  group.all_reduce(tensor).synchronize();
  require(tensor.amin().item<double>() == sum_of(group) &&
              tensor.amax().item<double>() == sum_of(group),
          "all_reduce");
}

// To the last rank, and back from there.
void check_rooted(Communicator& group, std::int64_t length) {
  const int root = group.size() - 1;
  Tensor tensor = input(group, length, group.rank() + 1);
  group.reduce(tensor, root).synchronize();
  const double wanted = group.rank() == root ? sum_of(group) : group.rank() + 1;
  require(tensor.amin().item<double>() == wanted && tensor.amax().item<double>() == wanted,
          "reduce");
  group.broadcast(tensor, root).synchronize();
  require(tensor.amin().item<double>() == sum_of(group) &&
              tensor.amax().item<double>() == sum_of(group),
          "broadcast");
}

void check_all_gather(Communicator& group, std::int64_t length) {
  const Tensor mine = input(group, length, group.rank() + 1);
  const Tensor all = gathered_output(group, length);
  group.all_gather(all, mine).synchronize();
  for (int rank = 0; rank < group.size(); ++rank) {
    require(all[rank * length].item<double>() == rank + 1 &&
                all[(rank + 1) * length - 1].item<double>() == rank + 1,
            "all_gather");
  }
}

// Every rank sends to the next rank.
void check_messages(Communicator& group, std::int64_t length) {
  const int next = (group.rank() + 1) % group.size();
  const int previous = (group.rank() + group.size() - 1) % group.size();
  const Tensor mine = values(group, length, group.rank() + 1);
  Tensor theirs = values(group, length, 0);
  synchronize(group.device());
  std::optional<Work> sent;
  {
    const StreamGuard guard(Stream::from_pool(group.device()));
    sent = group.send(mine, next);
    // It may not be waited for, below.
    mine.record_use(Stream::current(group.device()));
  }
  group.recv(theirs, previous).synchronize();
  sent->synchronize();
  require(
      theirs.amin().item<double>() == previous + 1 && theirs.amax().item<double>() == previous + 1,
      "messages");
}

void check(const std::string& operation, Communicator& group, std::int64_t length) {
  if (operation == "all_gather") return check_all_gather(group, length);
  if (operation == "rooted") return check_rooted(group, length);
  if (operation == "messages") return check_messages(group, length);
  check_all_reduce(group, length);
}

// Runs `action`, which must end in an error of the group, and says which.
template <class Action>
void report(Action action) {
  try {
    action();
    say("no error");
  } catch (const PeerLostError& error) {
    say(fmt::format("lost rank {}: {}", error.rank(), error.what()));
  } catch (const TimeoutError& error) {
    say(fmt::format("timeout: {}", error.what()));
  }
}

// Calls all_reduce, says "waiting" when its kernel waits for others, and then what became of it.
void wait_in_vain(Communicator& world) {
  report([&] {
    Tensor tensor = values(world, 1000, 1);
    const Work work = world.all_reduce(tensor);
    await_polls();
    say("waiting");
    work.synchronize();
  });
}

// The ranks named wait for the others, who say "ready", await SIGUSR1 and then do as `how` says.
int run_absence(Communicator& world, const std::string& absent, const std::string& how) {
  check_all_reduce(world, 10);
  if (absent.find(static_cast<char>('0' + world.rank())) == std::string::npos) {
    wait_in_vain(world);
  } else {
    say("ready");
    await_go();
    if (how == "leave") return 0;
    if (how == "abort") world.abort();
    report([&] { check_all_reduce(world, 1000); });
  }
  // A second error would come from another rank.
  report([&] { check_all_reduce(world, 1000); });
  await_go();
  return 0;
}

// Rank 1 stops itself before its call.
int run_stop(Communicator& world) {
  check_all_reduce(world, 10);
  Tensor tensor = values(world, 1000, world.rank() + 1);
  if (world.rank() == 1) raise(SIGSTOP);
  const Work work = world.all_reduce(tensor);
  if (world.rank() != 1) {
    await_polls();
    say("waiting");
  }
  work.synchronize();
  require(tensor.amin().item<double>() == sum_of(world), "all_reduce after a stop");
  say("all came");
  return 0;
}

// Rank 0 sends more than a connection holds to rank 1, which receives nothing.
int run_unreceived(Communicator& world) {
  check_all_reduce(world, 10);
  if (world.rank() == 0) {
    report([&] { world.send(values(world, 8 << 20, 1), 1).synchronize(); });
  } else {
    await_go();
  }
  report([&] { check_all_reduce(world, 10); });
  return 0;
}

// The same with graphs, which both have run once before.
int run_unreceived_again(Communicator& world) {
  Tensor data = values(world, 8 << 20, world.rank());
  synchronize(world.device());
  const StreamGuard guard(Stream::from_pool(world.device()));
  const NativeStream stream = Stream::current(world.device()).native();
  driver().begin_capture(stream, CaptureMode::thread_local_);
  world.rank() == 0 ? world.send(data, 1) : world.recv(data, 0);
  const NativeGraph graph = driver().end_capture(stream);
  driver().launch_graph(graph, stream);
  synchronize(world.device());
  if (world.rank() == 0) {
    report([&] {
      driver().launch_graph(graph, stream);
      synchronize(world.device());
    });
  } else {
    await_go();
  }
  driver().destroy_graph(graph);
  return 0;
}

// Rank 1 makes another call than the rest.
int run_mismatch(Communicator& world) {
  check_all_reduce(world, 10);
  try {
    check_all_reduce(world, world.rank() == 1 ? 20 : 30);
    say("no error");
  } catch (const InvalidArgument& error) {
    say(error.what());
  }
  say("ready");
  await_go();
  check_all_reduce(world, 10);
  return 0;
}

// Rank 0 receives from all others in turn. Rank 1 sends and ends, which rank 2 awaits.
int run_early_end(Communicator& world) {
  check_all_reduce(world, 10);
  if (world.rank() > 0) {
    if (world.rank() == 2) await_go();
    world.send(values(world, 100, world.rank()), 0).synchronize();
    return 0;
  }
  for (int from = 1; from < world.size(); ++from) {
    Tensor tensor = values(world, 100, 0);
    world.recv(tensor, from).synchronize();
    require(tensor.amin().item<int>() == from, "a message");
    say(fmt::format("got {}", from));
  }
  report([&] { check_all_reduce(world, 10); });
  return 0;
}

// How often the host of `rank` has come to a call for which hosts wait for each other, in all
// groups.
std::uint64_t fences_of(int rank) {
  std::uint64_t sum = 0;
  for (const std::string& path : flight::list_files()) {
    const auto file = flight::OpenFile::open(path);
    if (file) sum += file->view().rank(rank).fence.load();
  }
  return sum;
}

// Rank 0 forks a child that drops a group and ends in order, while a thread that the child does not
// have is inside a call.
int run_fork(Communicator& world) {
  Communicator part = world.split(0);
  check_all_reduce(part, 1000);
  if (world.rank() == 0) {
    const std::uint64_t before = fences_of(0);
    std::thread caller([&] { world.host_barrier(); });
    while (fences_of(0) == before) std::this_thread::yield();
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      part = {};
      std::exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    say(status == 0 ? "child ended" : "child did not end");
    caller.join();
  } else {
    await_go();
    world.host_barrier();
  }
  check_all_reduce(part, 1000);
  check_all_reduce(world, 1000);
  say("went on");
  return 0;
}

// Even and odd ranks have a group each; one rank dies.
int run_groups(Communicator& world) {
  Communicator part = world.split(world.rank() % 2);
  check_all_reduce(part, 1000);
  say("ready");
  await_go();
  report([&] { check_all_reduce(world, 1000); });
  report([&] { check_all_reduce(part, 1000); });
  return 0;
}

// Holds 64 MiB, then frees them.
int run_memory(Communicator& world) {
  {
    const Tensor held = zeros({64 << 20}, {.dtype = u8, .device = world.device()});
    say("holds");
    await_go();
  }
  say("freed");
  await_go();
  return 0;
}

// Rank `dying` dies at its `point`th signal from now; the others go on without it. If
// `registered`, their tensors are.
int run_step(Communicator& world, const std::string& operation, int dying, std::int64_t point,
             std::int64_t length, bool registered) {
  const auto register_tensors = [&](Communicator& group) {
    if (!registered) return;
    arena = values(group, length * (group.size() + 1), 0);
    group.register_memory(arena);
  };
  register_tensors(world);
  // Who is done with world() earlier must not take the store away from the others.
  world.host_barrier();
  if (world.rank() == dying) last_point = points.load() + point;
  try {
    for (;;) check(operation, world, length);
  } catch (const PeerLostError& error) {
    require(error.rank() == dying, error.what());
  }
  try {
    check(operation, world, length);
    require(false, "a call of a broken group");
  } catch (const PeerLostError& error) {
    require(error.rank() == dying, error.what());
  }
  Communicator rest = world.shrink({dying});
  require(rest.size() == world.size() - 1, "size after shrink");
  register_tensors(rest);
  check(operation, rest, length);
  check_all_reduce(rest, length);
  arena = Tensor();
  say("survived");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  sigset_t go;
  sigemptyset(&go);
  sigaddset(&go, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &go, nullptr);
  protocol::schedule::set_hook(count_point);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  arguments.resize(6);
  try {
    Communicator world = Communicator::world();
    const std::string& what = arguments[0];
    if (what == "check") {
      check_all_reduce(world, 1000);
      say(fmt::format("rank {} of {} by {}", world.rank(), world.size(), world.launched_by()));
      return 0;
    }
    if (what == "absence") return run_absence(world, arguments[1], arguments[2]);
    if (what == "stop") return run_stop(world);
    if (what == "unreceived") return run_unreceived(world);
    if (what == "unreceived_again") return run_unreceived_again(world);
    if (what == "mismatch") return run_mismatch(world);
    if (what == "early_end") return run_early_end(world);
    if (what == "fork") return run_fork(world);
    if (what == "groups") return run_groups(world);
    if (what == "memory") return run_memory(world);
    if (what == "step") {
      return run_step(world, arguments[1], std::stoi(arguments[2]), std::stoll(arguments[3]),
                      std::stoll(arguments[4]), arguments[5] == "registered");
    }
    fmt::print(stderr, "unknown command '{}'\n", what);
    return 2;
  } catch (const std::exception& error) {
    say(fmt::format("failed: {}", error.what()));
    return 1;
  }
}
