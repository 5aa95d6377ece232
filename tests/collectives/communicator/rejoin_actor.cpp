// One process of the tests of elastic groups without a launcher. Its arguments are the steps that
// it takes, in order. Variables tell where and as which rank it connects.

#include <dlfcn.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

using namespace gantry;

namespace {

void say(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("check failed: " + what);
}

std::string variable(const char* name) { return env::get(name).value_or(""); }
int number(const char* name, int otherwise) {
  const std::string text = variable(name);
  return text.empty() ? otherwise : std::stoi(text);
}
int job_size() { return number("SIZE", 3); }

// Messages that this process may still send before it kills itself; negative: all.
std::atomic<std::int64_t> messages_left{-1};

ssize_t send_or_die(int descriptor, const void* bytes, std::size_t count, int flags) {
  using Send = ssize_t (*)(int, const void*, std::size_t, int);
  static const auto real = reinterpret_cast<Send>(dlsym(RTLD_NEXT, "send"));
  if (messages_left.load() >= 0 && messages_left.fetch_sub(1) == 0) kill(getpid(), SIGKILL);
  return real(descriptor, bytes, count, flags);
}

std::atomic<bool> is_told_to_end{false};

// The group, and the ranks of it that are lost.
Communicator group;
std::vector<int> lost;

std::int64_t largest(std::int64_t value) {
  const Tensor tensor = full({1}, value, {.dtype = i64, .device = group.device()});
  group.all_reduce(tensor, ReduceOp::max).synchronize();
  return tensor.item<std::int64_t>();
}

void sum() {
  const Tensor tensor = full({1000}, group.rank() + 1, {.dtype = f32, .device = group.device()});
  group.all_reduce(tensor).synchronize();
  const double expected = group.size() * (group.size() + 1) / 2.0;
  require(tensor.amin().item<double>() == expected && tensor.amax().item<double>() == expected,
          "all_reduce");
}

// The class and the text of what `call` throws.
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

void connect() {
  const int rank = number("RANK", -1);
  group = Communicator::connect(
      {.address = variable("ADDRESS"),
       .rank = rank,
       .size = job_size(),
       .token = variable("TOKEN"),
       .device = Device::cuda(number("DEVICE", rank < 0 ? 0 : rank) % device_count()),
       .serves = variable("SERVES") != "no",
       .name = variable("NAME"),
       .timeout = std::chrono::milliseconds(number("TIMEOUT", 100'000)),
       .elastic = variable("ELASTIC") != "no"});
}

void world() { group = Communicator::world(); }

void tell_group() {
  say(fmt::format("rank {} of {} in {}", group.rank(), group.size(), group.name()));
}

// Runs collectives until a rank is lost or late.
void lose() {
  try {
    for (;;) sum();
  } catch (const PeerLostError& error) {
    lost = {error.rank()};
  } catch (const TimeoutError& error) {
    lost = error.ranks();
  }
  say(fmt::format("lost {}", lost.empty() ? -1 : lost.front()));
}

void shrink() {
  group = group.shrink(lost);
  lost.clear();
}

void grow(int timeout) {
  say("grows");
  Communicator whole;
  say("grow: " +
      error_of([&] { whole = group.grow(job_size(), std::chrono::milliseconds(timeout)); }));
  if (whole.defined()) group = whole;
}

// Goes on without the lost ranks and with others in their places.
void recover(int rank) {
  for (lost = {rank};;) {
    try {
      shrink();
      if (group.size() < job_size()) group = group.grow(job_size());
      return;
    } catch (const PeerLostError& error) {
      if (error.rank() < 0) throw;
      lost.push_back(error.rank());
    }
  }
}

// Goes on with new processes in the places of lost ones, until a rank is told to end.
void train() {
  for (std::int64_t step = 0;;) {
    try {
      require(group.size() == job_size(), "the number of ranks");
      step = largest(step) + 1;
      sum();
      say(fmt::format("step {}", step));
      if (largest(is_told_to_end ? 1 : 0) == 1) return;
    } catch (const PeerLostError& error) {
      if (error.rank() < 0) throw;
      recover(error.rank());
    }
  }
}

void await_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  int got = 0;
  sigwait(&set, &got);
}

const std::map<std::string_view, std::function<void(int)>> kSteps{
    {"connect", [](int) { connect(); }},
    {"world", [](int) { world(); }},
    {"group", [](int) { tell_group(); }},
    {"lose", [](int) { lose(); }},
    {"shrink", [](int) { shrink(); }},
    {"alone",
     [](int) {
       for (int rank = 0; rank < group.size(); ++rank) {
         if (rank != group.rank()) lost.push_back(rank);
       }
       shrink();
     }},
    {"grow", [](int timeout) { grow(timeout); }},
    {"sum", [](int) { sum(); }},
    {"barrier", [](int) { group.host_barrier(); }},
    {"train", [](int) { train(); }},
    {"wait", [](int) { await_signal(); }},
    {"dies", [](int messages) { messages_left = messages; }},
    {"lives", [](int) { messages_left = -1; }},
    {"drop", [](int) { group = Communicator(); }},
};

}  // namespace

// Instead of the system's, for this whole process.
extern "C" [[gnu::visibility("default")]] ssize_t send(int descriptor, const void* bytes,
                                                       std::size_t count, int flags) {
  return send_or_die(descriptor, bytes, count, flags);
}

// Each step is a name, or NAME=NUMBER. A step that fails ends the process.
int main(int argc, char** argv) {
  const std::vector<std::string> steps(argv + 1, argv + argc);
  const bool waits = std::find(steps.begin(), steps.end(), "wait") != steps.end();
  if (waits) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
  } else {
    signal(SIGUSR1, [](int) { is_told_to_end = true; });
  }
  for (const std::string& step : steps) {
    const std::size_t equals = step.find('=');
    const auto found = kSteps.find(std::string_view(step).substr(0, equals));
    if (found == kSteps.end()) {
      say("unknown step " + step);
      return 99;
    }
    const int argument = equals == std::string::npos ? 0 : std::stoi(step.substr(equals + 1));
    const std::string error = error_of([&] { found->second(argument); });
    if (error == "nothing") continue;
    say(fmt::format("{}: {}", step, error));
    return 1;
  }
  group = Communicator();
  say("end");
  return 0;
}
