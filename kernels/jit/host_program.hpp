// Programs for CPU tensors and simulated devices.
#pragma once

#include <string>

#include "kernels/jit/program.hpp"

namespace gantry::kernels::jit {

using HostFunction = void (*)(const Parameters* parameters);

// The compiled program of a function, from this process, from a file or from the compiler. It stays
// loaded. Throws: NotSupported, CompileError, TimeoutError, Error; see compile_for_host().
[[nodiscard]] HostFunction host_program(const Signature& signature, const std::string& source,
                                        const Specialization& types);

}  // namespace gantry::kernels::jit
