// Compiled programs in files, shared by the processes of a user.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gantry::kernels::jit {

// The folder of compiled programs: $GANTRY_JIT_CACHE, $XDG_CACHE_HOME/gantry/jit, or
// ~/.cache/gantry/jit. Empty if there is to be none.
[[nodiscard]] std::string cache_folder();

// Note [Files of the JIT cache]
// A compiled program is code that the process will run. So a file is used only if no other user can
// have written it. Folder and file belong to the user, only the user can write them, and the file
// is a regular file, not a link. These checks use the descriptor that is read. The file contains
// its key, and a digest that detects truncated or damaged content. A file that fails a check is
// reported once, compiled again and replaced. A file appears under its name only when it is
// complete, so processes may share the folder.

// The content of the file for `key`, 64 hexadecimal digits, if there is one that counts.
[[nodiscard]] std::optional<std::string> read_cached(const std::string& key);
// Writes the file for `key`. Warns, once for each cause, where that fails.
void write_cached(const std::string& key, std::string_view content) noexcept;

}  // namespace gantry::kernels::jit
