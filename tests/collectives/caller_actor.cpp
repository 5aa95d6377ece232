// One rank of tests of late ranks and of mismatched calls. The arguments are its actions, in order;
// only ranks 0 and 2 run an action such as 02:split. SIGUSR1 ends an "await". With
// "uncaught" first it catches nothing, with "handled" it has a terminate handler of its own.

#include <fmt/format.h>

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/store.hpp>
#include <gantry/job/process_identity.hpp>
#include <gantry/tensor/factories.hpp>

using namespace gantry;

namespace {

sigset_t go;

// Uses the job's store, and deregisters.
void visit_store() {
  const ProcessIdentity identity = detect_process_identity();
  StoreClient(
      {.address = identity.rendezvous, .rank = identity.rank, .token = identity.rendezvous_token})
      .set("visited", "");
}

void say(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void act(std::string_view what);

// Runs the action, which must throw PeerLostError.
void lose(std::string_view what) {
  try {
    act(what);
  } catch (const PeerLostError&) {
    return;
  }
  throw std::runtime_error(fmt::format("{} lost nobody", what));
}

void check_sum(Communicator& group, std::int64_t count = 8) {
  Tensor tensor = ones({count}, {.device = group.device()});
  group.all_reduce(tensor).synchronize();
  if (tensor.amin().item<int>() != group.size()) throw std::runtime_error("wrong sum");
}

void act(std::string_view what) {
  Communicator world = Communicator::world();
  if (const auto colon = what.find(':'); colon != std::string_view::npos) {
    const std::string me = std::to_string(world.rank());
    if (what.substr(0, colon).find(me) == std::string_view::npos) return;
    what.remove_prefix(colon + 1);
  }
  if (what == "world") {
    world.host_barrier();
  } else if (what == "split") {
    Communicator part = world.split(0);
    check_sum(part);
  } else if (what == "barrier") {
    world.host_barrier();
  } else if (what == "bytes") {
    (void)world.all_gather_bytes("");
  } else if (what == "register") {
    static const Tensor memory = zeros({1000}, {.device = world.device()});
    world.register_memory(memory);
  } else if (what.starts_with("sum")) {
    const std::string count(what.substr(3));
    check_sum(world, count.empty() ? 8 : std::stoll(count));
  } else if (what == "exhaust") {
    (void)empty({std::int64_t{1} << 40}, {.device = world.device()});
  } else if (what == "close-files") {
    for (int fd = 3; fd < 1024; ++fd) close(fd);
  } else if (what.starts_with("send") || what.starts_with("recv")) {
    // Between ranks 0 and 1: how many elements.
    Tensor tensor = zeros({std::stoll(std::string(what.substr(4)))}, {.device = world.device()});
    what.starts_with("send") ? world.send(tensor, 1).synchronize()
                             : world.recv(tensor, 0).synchronize();
  } else if (what == "await") {
    int signal = 0;
    sigwait(&go, &signal);
    return;
  } else if (what == "pause") {
    pause();
  } else if (what == "die") {
    raise(SIGKILL);
  } else if (what == "lose-split" || what == "lose-sum") {
    lose(what.substr(std::string_view("lose-").size()));
  } else if (what.starts_with("shrink")) {
    Communicator rest = world.shrink({std::stoi(std::string(what.substr(6)))});
    check_sum(rest);
  } else {
    throw std::runtime_error(fmt::format("unknown command '{}'", what));
  }
  say(fmt::format("did {}", what));
}

// As act(), but prints a mismatch and continues.
void act_or_say(std::string_view what) {
  try {
    what == "store" ? visit_store() : act(what);
  } catch (const InvalidArgument& error) {
    say(fmt::format("mismatch: {}", error.what()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  sigemptyset(&go);
  sigaddset(&go, SIGUSR1);
  sigprocmask(SIG_BLOCK, &go, nullptr);
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "handled") {
    std::set_terminate([] {
      say("the program's own handler");
      std::_Exit(55);
    });
  }
  if (mode == "handled" || mode == "uncaught") {
    for (int i = 2; i < argc; ++i) act(argv[i]);
    return 0;
  }
  try {
    for (int i = 1; i < argc; ++i) act_or_say(argv[i]);
    return 0;
  } catch (const PeerLostError& error) {
    say(fmt::format("lost rank {}: {}", error.rank(), error.what()));
    return 3;
  } catch (const TimeoutError& error) {
    say(fmt::format("timeout: {}", error.what()));
    return 4;
  } catch (const std::exception& error) {
    say(fmt::format("failed: {}", error.what()));
    return 1;
  }
}
