#include "core/files/gantry_file.hpp"

#include <dlfcn.h>
#include <link.h>

#include <system_error>

namespace gantry {

std::filesystem::path gantry_file() {
  static const char kInThisFile = 0;
  Dl_info info{};
  link_map* module = nullptr;
  if (dladdr1(&kInThisFile, &info, reinterpret_cast<void**>(&module), RTLD_DL_LINKMAP) == 0) {
    return {};
  }
  // The program itself has no name there. Its dli_fname is argv[0], which the current directory
  // would complete.
  const bool is_main_program = module == nullptr || *module->l_name == 0;
  std::error_code failure;
  std::filesystem::path file =
      std::filesystem::canonical(is_main_program ? "/proc/self/exe" : module->l_name, failure);
  return failure ? std::filesystem::path() : file;
}

}  // namespace gantry
