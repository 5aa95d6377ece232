#include "collectives/communicator/uncaught.hpp"

#include <cxxabi.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string_view>
#include <typeinfo>

#include <gantry/core/error.hpp>

#include "collectives/bootstrap/failure_note.hpp"

namespace gantry {

namespace {

struct Installed {
  pid_t owner = getpid();
  int rank = 0;
  std::atomic<const std::string*> device{nullptr};  // what it points to is never freed
  std::terminate_handler before = nullptr;
  std::atomic<bool> is_running{false};
};

// Never destroyed: programs end late.
Installed* installed = nullptr;

std::string type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return name ? name.get() : type.name();
}

FailureKind kind_of(const Error& error) {
  if (dynamic_cast<const PeerLostError*>(&error) != nullptr) return FailureKind::peer_lost;
  if (dynamic_cast<const TimeoutError*>(&error) != nullptr) return FailureKind::timed_out;
  return FailureKind::error;
}

void print_line(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(STDERR_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

// Prints with one write, so that lines of ranks that fail at once do not mix.
void report(const Error& error) {
  const std::string* own = installed->device.load();
  const std::string device = !error.device().empty() ? error.device() : own != nullptr ? *own : "";
  const std::string text = fmt::format("{}: {}", type_name(typeid(error)), error.what());
  print_line(fmt::format("rank {}{}: {}\n", installed->rank,
                         device.empty() ? "" : fmt::format(" ({})", device), text));
  // A note that was written when the error was thrown names the failed ranks.
  if (!has_reported(error.what())) report_to_launcher({.kind = kind_of(error), .message = text});
}

[[noreturn]] void end_program() {
  const std::terminate_handler before = installed->before;
  const bool is_mine = getpid() == installed->owner;
  bool is_reported = false;
  // A second thread, or an error in here, falls through to the previous handler.
  if (is_mine && std::current_exception() && !installed->is_running.exchange(true)) {
    try {
      std::rethrow_exception(std::current_exception());
    } catch (const Error& error) {
      try {
        report(error);
        is_reported = true;
      } catch (...) {
        is_reported = false;
      }
    } catch (...) {
      is_reported = false;
    }
  }
  // The handler of the C++ library would print the same again.
  const bool prints_again = before == &__gnu_cxx::__verbose_terminate_handler;
  if (before != nullptr && !(is_reported && prints_again)) before();
  std::abort();
}

}  // namespace

void report_uncaught_errors(int rank) {
  if (installed == nullptr) {
    installed = new Installed;
    installed->rank = rank;
    installed->before = std::set_terminate(end_program);
  }
  installed->rank = rank;
}

void report_uncaught_errors_on(const std::string& device) {
  if (installed != nullptr) installed->device = new std::string(device);
}

}  // namespace gantry
