#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gantry {

// Note [Failure notes]
// A rank that fails because of another rank writes a note to GANTRY_ERROR_FILE before it throws.
// However the program ends, the launcher can read which rank failed first. A program that survives
// the exception withdraws the note when it makes its next group or records its next call.

// Reasons why a rank fails, with the names of the launcher's error files.
enum class FailureKind { error, peer_lost, timed_out, mismatch };

// The content of a rank's error file.
struct FailureNote {
  FailureKind kind = FailureKind::error;
  std::string message;       // any bytes
  std::vector<int> ranks{};  // the failed ranks, as ranks of the job
};

// Formats the note as the JSON object that the launcher reads. Bytes that are not UTF-8 become
// U+FFFD; a long message is truncated.
std::string to_json(const FailureNote& note);

// Writes the note to GANTRY_ERROR_FILE, if the launcher set it. Replaces an earlier note.
void report_to_launcher(const FailureNote& note) noexcept;
// Removes the note that this process wrote, if there is one (of `kind`). One load if there is none.
void withdraw_note() noexcept;
void withdraw_note(FailureKind kind) noexcept;
// True if the current note has this message.
bool has_reported(std::string_view message) noexcept;

// Report to the launcher and throw. `ranks` go into the exception, `job_ranks` into the note.
[[noreturn]] void raise_timeout(const std::string& message, const std::vector<int>& ranks,
                                const std::vector<int>& job_ranks);
[[noreturn]] void raise_lost(const std::string& message, int rank,
                             const std::vector<int>& job_ranks);

// Note [Uncaught exceptions]
// Several processes may print to one terminal. "terminate called after throwing …" names neither
// the rank nor the device. So Communicator::world() installs a terminate handler. For a
// gantry::Error it prints one line with rank and device, reports to the launcher, and aborts. That
// ends the job under glaunch, mpirun and torchrun. All other exceptions go to the previous handler.
// So does a gantry::Error if the program has its own handler. Programs without world() keep their
// handler.

// Installs the handler once. It prints `rank` from then on.
void report_uncaught_errors(int rank);
// Sets the device, such as "cuda:2", that the handler prints for errors without one.
void report_uncaught_errors_on(const std::string& device);

}  // namespace gantry
