#include "streams/profiling/nvtx_calls.hpp"

#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>

#include <exception>
#include <string>

#include <gantry/core/env.hpp>

#include "core/env/env_check.hpp"
#include "core/files/code_file.hpp"
#include "core/files/regular_file.hpp"

namespace gantry::nvtx {

namespace {

// Why NVTX is not called, which loads the library that a variable names; empty if it is.
std::string find_refusal() {
  if (env::is_privileged()) return "the program has more rights than its caller";
  const std::string library = env::get("NVTX_INJECTION64_PATH").value_or("");
  const bool is_file = library.find('/') != std::string::npos && why_not_regular(library).empty();
  return is_file ? check_code_file(library, CodeOrigin::named).problem : std::string();
}

const std::string& refusal() {
  static const std::string& text = *new std::string(find_refusal());
  return text;
}

bool is_allowed() noexcept try { return refusal().empty(); } catch (const std::exception&) {
  return false;  // out of memory: the next call asks again
}

}  // namespace

void call_mark(const char* message) noexcept {
  if (is_allowed()) nvtxMarkA(message);
}
void call_push(const char* message) noexcept {
  if (is_allowed()) static_cast<void>(nvtxRangePushA(message));
}
void call_pop() noexcept {
  if (is_allowed()) static_cast<void>(nvtxRangePop());
}
std::uint64_t call_start(const char* message) noexcept {
  return is_allowed() ? nvtxRangeStartA(message) : 0;
}
void call_end(std::uint64_t range) noexcept {
  if (is_allowed()) nvtxRangeEnd(range);
}

// NVTX loads the library at its first call, and tells nobody when that fails.
std::string why_not_loaded(const std::string& library) {
  if (!refusal().empty()) return refusal();
  nvtxInitialize(nullptr);
  if (void* const kept = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD); kept != nullptr) {
    ::dlclose(kept);  // NVTX has it
    return {};
  }
  void* const loaded = ::dlopen(library.c_str(), RTLD_LAZY);
  if (loaded == nullptr) {
    const char* const problem = ::dlerror();
    return problem == nullptr ? "dlopen failed" : problem;
  }
  ::dlclose(loaded);
  return "expected a function InitializeInjectionNvtx2 that returns 1, but got none";
}

}  // namespace gantry::nvtx
