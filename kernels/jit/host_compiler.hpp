// The system's C++ compiler.
#pragma once

#include <string>

namespace gantry::kernels::jit {

// A compiler to be run: the words of its command, and what tells it from others.
struct HostCompiler {
  std::string program;    // the file
  std::string arguments;  // the further words of $CXX, one a line
  std::string identity;   // path, size and time of the file
};

// $CXX if it is set, else the first of c++, g++ and clang++ in PATH.
// Throws: NotSupported that names what was looked for.
[[nodiscard]] HostCompiler find_host_compiler();

// The flags of every program: part of what identifies it.
[[nodiscard]] std::string host_flags();

// Compiles `program` with `source` as the file that it includes, to a shared library; returns the
// library's content. Throws: jit::CompileError, which shows the compiler's message about `what`;
// TimeoutError if the compiler does not end; Error if it cannot be run.
[[nodiscard]] std::string compile_for_host(const HostCompiler& compiler, const std::string& program,
                                           const std::string& source, const std::string& what);

}  // namespace gantry::kernels::jit
