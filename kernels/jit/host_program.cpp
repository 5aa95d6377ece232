#include "kernels/jit/host_program.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/extend/unique_fd.hpp>

#include "core/text/sha256.hpp"
#include "kernels/jit/file_cache.hpp"
#include "kernels/jit/host_compiler.hpp"
#include "kernels/jit/program_table.hpp"

namespace gantry::kernels::jit {

namespace {

// A path of `fd` that no other call returns. The loader takes a path that it has seen for the
// library that it has loaded from there, but descriptors get their numbers again.
std::string unique_path(int fd) {
  static std::atomic<std::uint32_t> calls{0};
  std::string path = "/proc/self/fd";
  for (std::uint32_t rest = calls.fetch_add(1); rest != 0; rest >>= 1) {
    path += (rest & 1) != 0 ? "/." : "//.";
  }
  return fmt::format("{}/{}", path, fd);
}

// Loads the library from memory: what was checked is what is loaded, whatever happens to a file.
HostFunction load(std::string_view library) {
  UniqueFd file(memfd_create("gantry-jit", MFD_CLOEXEC));
  const auto fail = [](const char* cause) {
    throw Error(fmt::format("jit::elementwise: failed to load the compiled program: {}", cause));
  };
  if (!file) fail(std::strerror(errno));
  while (!library.empty()) {
    const ssize_t count = write(file.get(), library.data(), library.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(std::strerror(errno));
    library.remove_prefix(static_cast<std::size_t>(count));
  }
  void* const handle = dlopen(unique_path(file.get()).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fail(dlerror());
  void* const function = dlsym(handle, kHostFunction);
  if (function == nullptr) fail(dlerror());
  // Call stacks are symbolized from the library's path, which must not name another file later.
  static_cast<void>(file.release());
  return reinterpret_cast<HostFunction>(function);
}

}  // namespace

HostFunction host_program(const Signature& signature, const std::string& source,
                          const Specialization& types) {
  static auto& table = *new ProgramTable<HostFunction>;
  const HostCompiler compiler = find_host_compiler();
  const std::string program = program_text(Language::host, signature, types);
  const std::string key = sha256_hex(
      fmt::format("host\n{}\n{}\n{}\n{}\n{}\n{}\n{}", GANTRY_VERSION, host_flags(),
                  compiler.identity, compiler.arguments, program.size(), program, source));
  return table.get(key, [&] {
    if (const std::optional<std::string> cached = read_cached(key)) return load(*cached);
    const std::string what = fmt::format("'{}' for {}", signature.name, type_text(types.compute));
    const std::string library = compile_for_host(compiler, program, source, what);
    const HostFunction function = load(library);
    write_cached(key, library);
    return function;
  });
}

}  // namespace gantry::kernels::jit
