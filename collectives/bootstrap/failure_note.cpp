#include "collectives/bootstrap/failure_note.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>

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

}  // namespace gantry
