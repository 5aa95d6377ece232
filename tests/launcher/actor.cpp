// A program that glaunch starts in tests; its first argument says what it does.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/store.hpp>
#include <gantry/job/process_identity.hpp>
#include <gantry/machine/cpu_set.hpp>

#include "tests/support/process_state.hpp"

namespace {

using gantry::ProcessIdentity;
using gantry::StoreClient;
using Arguments = std::vector<std::string>;

constexpr std::chrono::seconds kLong{20};

const ProcessIdentity& identity() {
  static const ProcessIdentity kIdentity = gantry::detect_process_identity();
  return kIdentity;
}

std::unique_ptr<StoreClient> connect(int rank) {
  return std::make_unique<StoreClient>(gantry::StoreClientOptions{
      .address = identity().rendezvous, .rank = rank, .token = identity().rendezvous_token});
}
std::unique_ptr<StoreClient> connect() { return connect(identity().rank); }

// Returns when every rank has called it; deregisters from the store.
void meet(const std::string& name) { connect()->barrier(name, identity().world_size, kLong); }

[[noreturn]] void wait_forever() {
  for (;;) pause();
}

void say(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// Prints "pid <who> <pid>" for the test to look at.
void say_pid(const std::string& who) { say("pid " + who + " " + std::to_string(getpid()) + "\n"); }

// Prints "bound cpus 0-1 policy 1 nodes 0": what the kernel says of this thread.
int tell_binding(const Arguments& /*arguments*/) {
  int policy = -1;
  std::array<unsigned long, 16> nodes{};
  syscall(SYS_get_mempolicy, &policy, nodes.data(), nodes.size() * 64, nullptr, 0);
  std::string text = "bound cpus " + gantry::machine::current_cpus().str() + " policy " +
                     std::to_string(policy) + " nodes ";
  std::vector<int> numbers;
  for (int node = 0; node < 1024; ++node) {
    const auto at = static_cast<std::size_t>(node);
    if ((nodes[at / 64] >> (at % 64) & 1U) != 0) numbers.push_back(node);
  }
  say(text + gantry::machine::CpuSet(numbers).str() + "\n");
  return 0;
}

int write_environment(const Arguments& arguments) {
  std::ofstream file(arguments[0] + "/" + std::to_string(identity().rank));
  for (char** entry = environ; *entry != nullptr; ++entry) file << *entry << '\n';
  return 0;
}

// fail <rank> <how>: that rank exits with a code or raises a signal, the others wait.
int fail(const Arguments& arguments) {
  say("line before the end\n");
  std::fputs("complaint\n", stderr);
  meet("all said");
  if (identity().rank != std::stoi(arguments[0])) wait_forever();
  if (arguments[1].starts_with("SIG")) {
    const int number = arguments[1] == "SIGSEGV" ? SIGSEGV : SIGABRT;
    signal(number, SIG_DFL);  // a sanitizer has a handler of its own
    raise(number);
  }
  if (arguments.size() > 2) std::ofstream(std::getenv("GANTRY_ERROR_FILE")) << arguments[2];
  return std::stoi(arguments[1]);
}

// Every rank exits with its own number.
int exit_with_rank(const Arguments&) { return identity().rank; }

int ignore_term(const Arguments&) {
  signal(SIGTERM, SIG_IGN);
  meet("ignoring");
  if (identity().rank == 0) return 3;
  wait_forever();
}

// Handles SIGTERM by ending well.
int end_on_term(const Arguments&) {
  signal(SIGTERM, [](int) { _exit(0); });
  meet("handling");
  if (identity().rank == 0) return 4;
  wait_forever();
}

// Starts a child, one that leaves its process group and its parent, and one that does so too and
// lives on in a second thread.
int breed(const Arguments& arguments) {
  std::array<int, 2> spoken{};
  if (pipe(spoken.data()) != 0) return 1;
  const auto live_as = [spoken](const char* who) {
    say_pid(who);
    close(spoken[1]);
    wait_forever();
  };
  if (fork() == 0) live_as("child");
  if (fork() == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    live_as("daemon");
  }
  if (fork() == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    gantry::testing::continue_in_another_thread([live_as] {
      while (gantry::testing::state_of(getpid()) != 'Z') std::this_thread::yield();
      live_as("thread");
    });
  }
  say_pid("rank");
  if (arguments[0] == "stay") wait_forever();
  // The children must have spoken before the end: the test knows them by what they say.
  close(spoken[1]);
  char byte = 0;
  return static_cast<int>(read(spoken[0], &byte, 1));
}

int flood(const Arguments& arguments) {
  const std::string line = "rank " + std::to_string(identity().rank) + std::string(90, 'x') + "\n";
  const int lines = std::stoi(arguments[0]);
  for (int i = 0; i < lines; ++i) std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
  std::fputs("done\n", stderr);
  return 0;
}

int print(const Arguments& arguments) {
  say(arguments[0]);
  return 0;
}

// Prints half a line, waits for a line of input, prints the rest.
int print_half(const Arguments&) {
  say("first half");
  std::string line;
  std::getline(std::cin, line);
  say(", second half\n");
  return 0;
}

int close_outputs(const Arguments&) {
  close(STDOUT_FILENO);
  close(STDERR_FILENO);
  meet("closed");
  return identity().rank == 0 ? 5 : 0;
}

int echo_input(const Arguments&) {
  std::string line;
  while (std::getline(std::cin, line)) std::cout << "got " << line << '\n';
  std::cout << "end of input" << std::endl;
  return 0;
}

// Ends when the launcher is gone.
int hold_liveness_pipe(const Arguments& arguments) {
  say_pid("rank");
  char byte;
  const int fd = std::atoi(std::getenv("GANTRY_LIFELINE_FD"));
  if (read(fd, &byte, 1) == 0) std::ofstream(arguments[0]) << "cut";
  return 0;
}

// Rank 1 dies without deregistering; rank 0 prints the error that it gets.
int lose_peer(const Arguments&) {
  const auto store = connect();
  store->barrier("both here", identity().world_size, kLong);
  if (identity().rank == 1) _exit(9);
  try {
    (void)store->get("never", kLong);
  } catch (const gantry::PeerLostError& error) {
    std::ofstream(std::getenv("GANTRY_ERROR_FILE"))
        << R"({"kind": "peer_lost", "message": ")" << error.what() << R"("})";
    return 6;
  }
  return 0;
}

// Rank 1 ends well without a word to the store, in which rank 0 waits for it.
int wait_for_the_silent(const Arguments&) {
  if (identity().rank == 1) return 0;
  try {
    (void)connect()->get("never", kLong);
  } catch (const gantry::PeerLostError& error) {
    say(std::string(error.what()) + "\n");
    return 0;
  }
  return 1;
}

int count_signal(const Arguments&) {
  static volatile sig_atomic_t seen = 0;
  signal(SIGUSR1, [](int) { seen = 1; });
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  say("ready\n");
  while (seen == 0) sigsuspend(&before);
  say("got it\n");
  return 0;
}

// Connects to the job's store that many times, once as a rank.
int connect_often(const Arguments& arguments) {
  std::vector<std::unique_ptr<StoreClient>> clients;
  for (int i = 0; i < std::stoi(arguments[0]); ++i) {
    clients.push_back(connect(i == 0 ? identity().rank : -1));
  }
  clients.front()->barrier("all connected", identity().world_size, kLong);
  return 0;
}

// Moves into the process group of a child.
int leave_group(const Arguments&) {
  std::array<int, 2> ready{};
  if (pipe(ready.data()) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    close(ready[1]);
    wait_forever();
  }
  close(ready[1]);
  char byte = 0;
  if (read(ready[0], &byte, 1) != 0 || setpgid(0, child) != 0) return 2;
  say_pid("rank");
  wait_forever();
}

int wait_for_end(const Arguments&) {
  meet("waiting");
  say_pid("rank");
  wait_forever();
}

// Leaves a process that replaces itself again and again by a child whose number is one lower: it
// runs against whoever looks through the numbers. All of them hold the lock of a file.
int flee(const Arguments& arguments) {
  const int fd = open(arguments[0].c_str(), O_RDWR | O_CREAT, 0600);
  if (fd < 0 || flock(fd, LOCK_EX) != 0) return 1;
  if (fork() != 0) return 0;
  setsid();
  signal(SIGTERM, SIG_IGN);
  for (int step = 0; step < 5000; ++step) {
    std::ofstream("/proc/sys/kernel/ns_last_pid") << getpid() - 2 << std::flush;
    if (fork() != 0) _exit(0);
  }
  return 0;
}

// Outlives SIGINT and says so.
int survive_interrupt(const Arguments&) {
  signal(SIGINT, [](int) {
    [[maybe_unused]] const auto written = write(STDOUT_FILENO, "interrupted\n", 12);
  });
  say_pid("rank");
  wait_forever();
}

// Stops this process's parent; true once it has stopped.
bool stop_parent() {
  const std::string status = "/proc/" + std::to_string(getppid()) + "/stat";
  if (kill(getppid(), SIGSTOP) != 0) return false;
  for (;;) {
    std::ifstream file(status);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    if (text[text.rfind(')') + 2] == 'T') return true;
  }
}

// Prints half a line. While glaunch is stopped for longer than it waits for the rest, prints a line
// of the other stream, and then that rest.
int stop_launcher_in_a_line(const Arguments&) {
  using Clock = std::chrono::steady_clock;
  for (;;) {
    const Clock::time_point begin = Clock::now();
    say("first half");
    int unread = 1;
    while (ioctl(STDOUT_FILENO, FIONREAD, &unread) == 0 && unread > 0) usleep(100);
    if (!stop_parent()) return 1;
    // Else glaunch may have shown the half already.
    if (Clock::now() - begin < std::chrono::milliseconds(90)) break;
    kill(getppid(), SIGCONT);
    say(" came late\n");
  }
  usleep(300'000);
  std::fputs("other\n", stderr);
  say(", second half\n");
  kill(getppid(), SIGCONT);
  return 0;
}

// restart <n> <how>: meets the others at a store that no earlier run has used. Rank 1 of every run
// before restart n fails.
int restart(const Arguments& arguments) {
  const auto store = connect();
  const std::int64_t seen = store->add("seen", 1);
  store->barrier("all seen", identity().world_size, kLong);
  const std::string run = std::getenv("GANTRY_RESTART");
  say("run " + run + (seen > identity().world_size ? " in a used store\n" : "\n"));
  store->barrier("all said", identity().world_size, kLong);
  if (std::stoi(run) >= std::stoi(arguments[0])) return 0;
  if (identity().rank != 1) wait_forever();
  if (arguments[1] == "SIGKILL") raise(SIGKILL);
  return std::stoi(arguments[1]);
}

const std::map<std::string, std::function<int(const Arguments&)>> kActs{
    {"write-environment", write_environment},
    {"tell-binding", tell_binding},
    {"fail", fail},
    {"exit-with-rank", exit_with_rank},
    {"ignore-term", ignore_term},
    {"end-on-term", end_on_term},
    {"breed", breed},
    {"flood", flood},
    {"print", print},
    {"print-half", print_half},
    {"close-outputs", close_outputs},
    {"echo-input", echo_input},
    {"hold-liveness-pipe", hold_liveness_pipe},
    {"lose-peer", lose_peer},
    {"wait-for-the-silent", wait_for_the_silent},
    {"count-signal", count_signal},
    {"survive-interrupt", survive_interrupt},
    {"connect-often", connect_often},
    {"leave-group", leave_group},
    {"flee", flee},
    {"restart", restart},
    {"stop-launcher", stop_launcher_in_a_line},
    {"wait", wait_for_end},
};

}  // namespace

int main(int argc, char** argv) {
  const auto act = argc > 1 ? kActs.find(argv[1]) : kActs.end();
  if (act == kActs.end()) {
    std::fputs("launch_actor: unknown act\n", stderr);
    return 99;
  }
  return act->second({argv + 2, argv + argc});
}
