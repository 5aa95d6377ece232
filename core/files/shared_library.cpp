#include "core/files/shared_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <utility>

#include <gantry/core/error.hpp>

#include "core/files/code_file.hpp"

namespace gantry {
namespace {

// The loader's text without the name of the file, with which it usually begins.
std::string loader_error(const std::string& candidate) {
  const char* text = ::dlerror();
  if (text == nullptr) return "the loader gives no reason";
  std::string cause = text;
  if (cause.starts_with(candidate + ": ")) cause.erase(0, candidate.size() + 2);
  return cause;
}

// Loads one candidate, or returns null and sets `cause`.
void* load(const std::string& candidate, std::string& cause) {
  std::string file = candidate;
  if (candidate.find('/') != std::string::npos) {
    CodeFile checked = check_code_file(candidate, CodeOrigin::found);
    cause = std::move(checked.problem);
    if (!cause.empty()) return nullptr;
    file = checked.path.string();
  }
  void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) cause = loader_error(file);
  return handle;
}

}  // namespace

SharedLibrary::SharedLibrary(const std::vector<std::string>& candidates, std::string remedy)
    : name_(candidates.at(0)), remedy_(std::move(remedy)) {
  std::string causes;
  for (const std::string& candidate : candidates) {
    std::string cause;
    handle_ = load(candidate, cause);
    if (handle_ != nullptr) return;
    causes += causes.empty() ? cause : fmt::format(", {}: {}", candidate, cause);
  }
  reject(causes);
}

void SharedLibrary::require(std::string_view operation, std::source_location where) const {
  if (problem_.empty()) return;
  throw NotSupported(fmt::format("{}: {}", operation, problem_), {}, where);
}

std::string SharedLibrary::path() const {
  link_map* map = nullptr;
  if (handle_ == nullptr || ::dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0) return {};
  return map->l_name;
}

void* SharedLibrary::find(const char* symbol) const noexcept {
  return handle_ == nullptr ? nullptr : ::dlsym(handle_, symbol);
}

void SharedLibrary::reject(std::string_view cause) {
  if (!problem_.empty()) return;
  problem_ =
      fmt::format("failed to load {}: {}{}{}", name_, cause, remedy_.empty() ? "" : "; ", remedy_);
}

void SharedLibrary::reject_without(const char* symbol) {
  reject(fmt::format("{} lacks {}", path(), symbol));
}

}  // namespace gantry
