#include "collectives/bootstrap/failure_note.hpp"

#include <cxxabi.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <typeinfo>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>

#include "core/env/settings.hpp"
#include "core/files/output_file.hpp"
#include "core/text/json.hpp"

namespace gantry {

namespace {

// The launcher reads 64 KiB, and JSON may need six bytes for one.
constexpr std::size_t kMaxMessageBytes = 8 << 10;

const char* name(FailureKind kind) {
  switch (kind) {
    case FailureKind::error:
      return "error";
    case FailureKind::peer_lost:
      return "peer_lost";
    case FailureKind::timed_out:
      return "timed_out";
    case FailureKind::mismatch:
      return "mismatch";
  }
  __builtin_unreachable();
}

struct WrittenNote {
  std::mutex mutex;
  std::string message;
  FailureKind kind = FailureKind::error;
  std::atomic<bool> any{false};
};

// Never destroyed: exceptions end programs late.
WrittenNote& written_note() {
  static auto& instance = *new WrittenNote;
  return instance;
}

void write_file(const std::string& path, std::string_view text) {
  const OutputFile note = open_output(path);
  std::string problem = note.problem;
  if (note.ok() && !write_all(note.file.get(), text)) problem = std::strerror(errno);
  if (!problem.empty()) {
    logging::info(fmt::format("failed to write the cause of a failure to '{}': {}", path, problem));
  }
}

// Removes a note of this kind, or of any kind if `kind` is null.
void withdraw(const FailureKind* kind) noexcept {
  WrittenNote& state = written_note();
  if (!state.any.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(state.mutex);
  if (!state.any || (kind != nullptr && state.kind != *kind)) return;
  state.any = false;
  try {
    if (const std::string path = env::kErrorFile.text(); !path.empty()) remove_output(path);
  } catch (const std::exception&) {
    // Out of memory: the launcher reports a failure that was overcome.
  }
}

}  // namespace

std::string to_json(const FailureNote& note) {
  std::string message = note.message;
  if (message.size() > kMaxMessageBytes) {
    // Do not split a UTF-8 character.
    std::size_t end = kMaxMessageBytes;
    for (int i = 0; i < 3 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80; ++i) --end;
    message = message.substr(0, end) + "…";
  }
  Json json = Json::object({{"kind", name(note.kind)}, {"message", message}});
  if (!note.ranks.empty()) json.set("ranks", note.ranks);
  return json.dump() + "\n";
}

void report_to_launcher(const FailureNote& note) noexcept {
  try {
    const std::string path = env::kErrorFile.text();
    if (path.empty()) return;
    const std::string text = to_json(note);
    WrittenNote& state = written_note();
    const std::lock_guard lock(state.mutex);
    write_file(path, text);
    state.message = note.message;
    state.kind = note.kind;
    state.any = true;
  } catch (const std::exception& error) {
    logging::debug(error.what());
  }
}

void withdraw_note() noexcept { withdraw(nullptr); }
void withdraw_note(FailureKind kind) noexcept { withdraw(&kind); }

bool has_reported(std::string_view message) noexcept {
  WrittenNote& state = written_note();
  const std::lock_guard lock(state.mutex);
  return state.any && state.message == message;
}

void raise_timeout(const std::string& message, const std::vector<int>& ranks,
                   const std::vector<int>& job_ranks) {
  report_to_launcher({.kind = FailureKind::timed_out, .message = message, .ranks = job_ranks});
  throw TimeoutError(message, ranks);
}

void raise_lost(const std::string& message, int rank, const std::vector<int>& job_ranks) {
  report_to_launcher({.kind = FailureKind::peer_lost, .message = message, .ranks = job_ranks});
  throw PeerLostError(message, rank);
}

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
