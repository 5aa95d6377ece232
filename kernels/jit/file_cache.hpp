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
// A compiled program is code that the process will run, so a file counts only if nobody else can
// have written it. The folder belongs to the user and only the user may write it; so do the file,
// which is a regular one and no link. Both are checked on the descriptor that is read. The file
// names its key, and the digest of its content finds what was cut off or damaged. What fails is
// told once, compiled again and replaced. A file appears under its name when it is complete, so
// that processes may share the folder.

// The content of the file for `key`, 64 hexadecimal digits, if there is one that counts.
[[nodiscard]] std::optional<std::string> read_cached(const std::string& key);
// Writes the file for `key`. Warns, once for each cause, where that fails.
void write_cached(const std::string& key, std::string_view content) noexcept;

}  // namespace gantry::kernels::jit
