#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gantry {

// Note [Failure notes]
// A rank that fails because of another one says so in GANTRY_ERROR_FILE, before the exception that
// tells its own program: the program may end in any way, and the launcher still knows whom the rank
// waited for. A program that goes on withdraws the note with the next group that it makes, or the
// next call that it records.

// Why a rank fails. The names are those of the launcher's error files.
enum class FailureKind { error, peer_lost, timed_out, mismatch };

struct FailureNote {
  FailureKind kind = FailureKind::error;
  std::string message;       // any bytes
  std::vector<int> ranks{};  // of the job: who is to blame
};

// The note as the launcher reads it: a JSON object. Bytes that are no UTF-8 become U+FFFD, and a
// long message is cut.
std::string to_json(const FailureNote& note);

// Writes the note to GANTRY_ERROR_FILE, in place of an earlier one, if the launcher gives that
// file.
void tell_launcher(const FailureNote& note) noexcept;
// Removes the note that this process has written, if there is one (of this kind). Costs one load if
// there is none.
void withdraw_note() noexcept;
void withdraw_note(FailureKind kind) noexcept;
// True if the note that stands is of this text.
bool has_told(std::string_view message) noexcept;

// Throw, and tell the launcher; `ranks` of the exception, `blamed` ranks of the job.
[[noreturn]] void raise_timeout(const std::string& message, const std::vector<int>& ranks,
                                const std::vector<int>& blamed);
[[noreturn]] void raise_lost(const std::string& message, int rank, const std::vector<int>& blamed);

}  // namespace gantry
