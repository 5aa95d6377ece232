#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gantry::launcher {

/// Why a rank says that it fails.
enum class FailureCause {
  itself,     ///< or it does not say
  peer_lost,  ///< another rank is gone
  timed_out,  ///< other ranks did not come
  mismatch,   ///< ranks made different calls
};

/// The content of a rank's error file.
struct ErrorNote {
  std::string message;
  FailureCause cause = FailureCause::itself;
  std::vector<int> ranks;  ///< of the job: the ranks at fault
};

/// Takes an error file apart: a JSON object with "message", and perhaps "kind" and "ranks";
/// or, as torch.distributed writes it, an object in the place of "message" that has one; or plain
/// text. Any bytes are accepted: in JSON, those that are no UTF-8 become U+FFFD.
[[nodiscard]] ErrorNote parse_error_note(std::string text);

/// The note in the file `path`; an empty one if there is no regular file of root or of this user.
[[nodiscard]] ErrorNote read_error_note(const std::string& path);

}  // namespace gantry::launcher
