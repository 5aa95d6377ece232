#include "tools/top/live.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/unique_fd.hpp>

#include "tools/top/sample.hpp"
#include "tools/top/table.hpp"
#include "tools/top/terminal.hpp"

namespace gantry::top {
namespace {

using Clock = std::chrono::steady_clock;

/// Signals as bytes of a descriptor, as long as it lives.
class SignalQueue {
 public:
  SignalQueue() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP, SIGCONT}) {
      sigaddset(&signals, signal);
    }
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
    queue_ = UniqueFd(signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!queue_) {
      throw Error(fmt::format("failed to wait for signals: {}", std::strerror(errno)));
    }
  }
  ~SignalQueue() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  [[nodiscard]] int descriptor() const { return queue_.get(); }
  /// The signals that have come; those that end the program first.
  [[nodiscard]] std::vector<int> take() const {
    std::array<signalfd_siginfo, 16> infos{};
    const ssize_t bytes = read(queue_.get(), infos.data(), sizeof infos);
    std::vector<int> signals;
    for (std::size_t i = 0; bytes > 0 && i < static_cast<std::size_t>(bytes) / sizeof infos[0];
         ++i) {
      signals.push_back(static_cast<int>(infos[i].ssi_signo));
    }
    std::stable_partition(signals.begin(), signals.end(), ends_program);
    return signals;
  }
  static bool ends_program(int signal) {
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
  }

 private:
  sigset_t before_{};
  UniqueFd queue_;
};

// The table and the terminal that shows it.
class Table {
 public:
  Table(const machine::Nvml& nvml, std::chrono::milliseconds interval)
      : nvml_(nvml), interval_(interval) {}

  /// Returns the signal that ended the table, or 0 for a key.
  int run() {
    terminal_.enter();
    std::optional<int> end;
    while (!end) {
      if (const Clock::time_point now = Clock::now(); now >= next_) {
        lines_ = table_lines(take_sample(nvml_));
        next_ = now + interval_;
      }
      terminal_.show(lines_);
      end = wait();
    }
    return *end;
  }

 private:
  // Waits until the table is to be shown again (none), or until its end.
  std::optional<int> wait() {
    for (;;) {
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(next_ - Clock::now());
      if (rest.count() <= 0) return std::nullopt;
      const int events = terminal_.has_output() ? POLLIN | POLLOUT : POLLIN;
      std::array<pollfd, 2> entries{{
          {signals_.descriptor(), POLLIN, 0},
          {terminal_.descriptor(), static_cast<short>(events), 0},
      }};
      if (poll(entries.data(), entries.size(), static_cast<int>(rest.count())) <= 0) continue;
      bool is_changed = false;
      for (const int signal : signals_.take()) {
        if (SignalQueue::ends_program(signal)) return signal == SIGINT ? 0 : signal;
        handle(signal);
        is_changed = true;
      }
      if (is_changed) return std::nullopt;
      const short state = entries[1].revents;
      if ((state & (POLLHUP | POLLERR | POLLNVAL)) != 0) return SIGHUP;
      if ((state & POLLIN) != 0 && asks_to_leave(terminal_.read_keys())) return 0;
      if ((state & POLLOUT) != 0) terminal_.flush();
    }
  }

  static bool asks_to_leave(const std::string& keys) {
    return keys.find_first_of("qQ") != std::string::npos;
  }

  void handle(int signal) {
    if (signal == SIGTSTP) {
      terminal_.leave();
      kill(getpid(), SIGSTOP);
    }
    if (signal == SIGCONT) {
      // The shell may have changed the terminal.
      terminal_.leave();
      terminal_.enter();
    }
  }

  const machine::Nvml& nvml_;
  std::chrono::milliseconds interval_;
  SignalQueue signals_;
  Terminal terminal_;
  Clock::time_point next_{};
  std::vector<std::string> lines_;
};

}  // namespace

void run_live(const machine::Nvml& nvml, std::chrono::milliseconds interval) {
  const int signal_number = Table(nvml, interval).run();
  if (signal_number == 0) return;
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

}  // namespace gantry::top
