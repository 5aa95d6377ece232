#include "core/files/named_library.hpp"

#include <dlfcn.h>

#include <utility>

#include "core/files/code_file.hpp"

namespace gantry {
namespace {

std::string loader_error() {
  const char* text = ::dlerror();
  return text != nullptr ? text : "the loader gives no reason";
}

}  // namespace

NamedLibrary::NamedLibrary(const std::filesystem::path& path) {
  std::filesystem::path file = path;
  if (path.has_parent_path()) {
    CodeFile checked = check_code_file(std::filesystem::absolute(path), CodeOrigin::named);
    problem_ = std::move(checked.problem);
    if (!problem_.empty()) return;
    file = std::move(checked.path);
  }
  handle_.reset(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (handle_ == nullptr) problem_ = loader_error();
}

void* NamedLibrary::find_symbol(const std::string& symbol, std::string& problem) const {
  static_cast<void>(::dlerror());
  void* const found = handle_ == nullptr ? nullptr : ::dlsym(handle_.get(), symbol.c_str());
  if (found == nullptr) problem = handle_ == nullptr ? problem_ : loader_error();
  return found;
}

void NamedLibrary::Close::operator()(void* handle) const noexcept { ::dlclose(handle); }

}  // namespace gantry
