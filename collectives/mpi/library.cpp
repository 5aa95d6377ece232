#include "collectives/mpi/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <filesystem>
#include <string_view>

#include <gantry/core/log.hpp>

#include "core/files/gantry_file.hpp"

namespace gantry {

namespace {

constexpr const char* kModule = GANTRY_MPI_MODULE;
constexpr const char* kRemedy =
    "build gantry with GANTRY_MPI=ON, and install the MPI of that build";

// The module lies in the run path, or beside the file that this code is in.
std::vector<std::string> module_candidates() {
  std::vector<std::string> candidates{kModule};
  const std::filesystem::path own = gantry_file();
  if (!own.empty()) candidates.push_back(own.parent_path() / kModule);
  return candidates;
}

}  // namespace

MpiModule::MpiModule(const std::vector<std::string>& candidates) : library_(candidates, kRemedy) {
  const MpiFunctions* (*functions)() = nullptr;
  library_.bind(functions, "gantry_mpi_functions");
  if (!problem().empty()) return;
  functions_ = functions();
  check();
}

void MpiModule::check() {
  if (functions_->version != kMpiFunctionsVersion) {
    library_.reject(fmt::format("expected version {} of the module, but got {} in {}",
                                kMpiFunctionsVersion, functions_->version, library_.path()));
    return;
  }
  // A program that is linked with another MPI has bound the module to that one.
  if (library_.find("PMPI_Initialized") != reinterpret_cast<void*>(functions_->bound_function)) {
    library_.reject("the program uses another MPI library than the one gantry was built with");
    return;
  }
  logging::debug(fmt::format("loaded {}", library_.path()));
}

const MpiFunctions& MpiModule::functions() const {
  require("MPI");
  return *functions_;
}

const MpiModule& mpi_module() {
  // Never destroyed: groups may outlive static objects.
  static const auto& module = *new MpiModule(module_candidates());
  return module;
}

std::string mpi_error_text(int status) {
  char text[512] = {};
  mpi().error_text(status, text, sizeof text);
  return text;
}

bool has_loaded_mpi() {
  if (::dlsym(RTLD_DEFAULT, "MPI_Initialized") != nullptr) return true;
  // One that Python, say, has loaded for itself alone has no global symbols.
  const auto is_mpi = [](dl_phdr_info* info, std::size_t, void*) -> int {
    const std::string_view path = info->dlpi_name != nullptr ? info->dlpi_name : "";
    const std::string_view file = path.substr(path.rfind('/') + 1);
    return file.starts_with("libmpi") && file.find(".so") != std::string_view::npos ? 1 : 0;
  };
  return ::dl_iterate_phdr(is_mpi, nullptr) != 0;
}

}  // namespace gantry
