#include "launcher/run/processes/job_signals.hpp"

#include <signal.h>
#include <sys/signalfd.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace gantry::launcher {
namespace {

constexpr std::array kHandledSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGCHLD};

}  // namespace

int open_signal_fd(const std::vector<int>& forwarded) {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int signal : kHandledSignals) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaddset(&handled, signal);
  }
  // These were asked for. The kernel drops no signal that is blocked.
  for (const int signal : forwarded) sigaddset(&handled, signal);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
  // With SIGCHLD ignored the kernel would throw the ranks' exit codes away.
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &usual, nullptr);
  sigaddset(&handled, SIGCHLD);
  sigprocmask(SIG_BLOCK, &handled, nullptr);
  const int fd = signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
  return fd;
}

void stop_here() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  raise(SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, nullptr);
  sigprocmask(SIG_BLOCK, &stop, nullptr);
}

}  // namespace gantry::launcher
