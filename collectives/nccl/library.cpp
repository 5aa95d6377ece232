#include "collectives/nccl/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/device.hpp>

#include "collectives/transport.hpp"
#include "core/env/settings.hpp"

namespace gantry {

namespace {

constexpr int kMinVersion = NCCL_VERSION(2, 18, 0);
constexpr const char* kName = "libnccl.so.2";
constexpr const char* kRemedy = "install NCCL 2.18 or later, or add its folder to LD_LIBRARY_PATH";

// A function of the program, or of a library that it preloads, replaces NCCL's own: tracers work
// so, and a program may contain an NCCL.
template <class Function>
void bind(SharedLibrary& library, Function*& function, const char* symbol) {
  void* const replacement = ::dlsym(RTLD_DEFAULT, symbol);
  if (replacement != nullptr) {
    function = reinterpret_cast<Function*>(replacement);
  } else {
    library.bind(function, symbol);
  }
}

std::vector<std::string> candidates() {
  if (const std::string path = env::kNcclLibrary.text(); !path.empty()) return {path};
  return {kName, std::string(GANTRY_NCCL_FOLDER "/") + kName};
}

std::string version_text(int version) {
  const int major = version < 10'000 ? 1000 : 10'000;  // before 2.9, and since
  return fmt::format("{}.{}.{}", version / major, version % major / 100, version % 100);
}

}  // namespace

NcclLibrary::NcclLibrary(const std::vector<std::string>& candidates)
    : library_(candidates, kRemedy) {
  if (!problem().empty()) return;
  if (is_own()) {
    library_.reject("this process has gantry's own library in its place: libgantry_nccl.so");
    return;
  }
  check_version();
#define GANTRY_NCCL_BIND(member, symbol) bind(library_, functions_.member, #symbol);
  GANTRY_NCCL_FUNCTIONS(GANTRY_NCCL_BIND)
#undef GANTRY_NCCL_BIND
}

// Its functions call this library's own.
bool NcclLibrary::is_own() const {
  constexpr const char* kMark = "gantry_nccl_marker";
  return ::dlsym(RTLD_DEFAULT, kMark) != nullptr || library_.find(kMark) != nullptr;
}

void NcclLibrary::require_simulated_devices() {
  if (library_.find("gantry_simulated_nccl_marker") != nullptr) return;
  library_.reject("expected a library for simulated devices, but got one for GPUs");
}

void NcclLibrary::check_version() {
  bind(library_, functions_.get_version, "ncclGetVersion");
  if (!problem().empty()) return;
  int version = 0;
  if (functions_.get_version(&version) != ncclSuccess || version < kMinVersion) {
    library_.reject(fmt::format("expected version {} or later, but got {} in {}",
                                version_text(kMinVersion), version_text(version), library_.path()));
    return;
  }
  logging::debug(fmt::format("loaded NCCL {}: {}", version_text(version), library_.path()));
}

const NcclFunctions& NcclLibrary::functions() const {
  library_.require("NCCL");
  return functions_;
}

const NcclLibrary& nccl_library() {
  // Never destroyed: groups may outlive static objects. The folder of the build is often not in the
  // loader's path.
  static const auto& library = *[] {
    auto* const made = new NcclLibrary(candidates());
    const bool is_named = !env::kNcclLibrary.text().empty();
    if (is_named && platform() != Platform::cuda) made->require_simulated_devices();
    return made;
  }();
  return library;
}

const std::string& nccl_problem() { return nccl_library().problem(); }

bool nccl_takes_this_platform() {
  return platform() == Platform::cuda || !env::kNcclLibrary.text().empty();
}

void check_nccl(ncclResult_t status, const char* call, const char* doing, ncclComm_t comm,
                std::source_location where) {
  if (status == ncclSuccess) return;
  const char* detail = nccl().get_last_error(comm);
  throw NcclError(fmt::format("Failed {}: {}{}{} [{}]", doing, nccl().get_error_string(status),
                              detail != nullptr && *detail != '\0' ? ": " : "",
                              detail != nullptr ? detail : "", call),
                  {}, where);
}

ncclDataType_t nccl_dtype(DType dtype) {
  constexpr ncclDataType_t kTypes[] = {
#define GANTRY_DTYPE(dtype, number, text, type, category, computes, torch, numpy, character, \
                     safetensors, dlpack, nccl)                                              \
  nccl,
#include <gantry/core/dtypes.def>
  };
  const ncclDataType_t type = kTypes[static_cast<std::size_t>(dtype)];
  if (type != ncclNumTypes) return type;
  throw NotSupported(fmt::format(
      "NCCL has no {} that sums as gantry's does: it needs the p2p transport", name(dtype)));
}

ncclRedOp_t nccl_op(ReduceOp op, DType dtype) {
  switch (op) {
    case ReduceOp::sum:
      return dtype == DType::bool_ ? ncclMax : ncclSum;
    case ReduceOp::prod:
      return dtype == DType::bool_ ? ncclMin : ncclProd;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::avg:
      return ncclAvg;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      break;
  }
  throw NotSupported(fmt::format("NCCL has no operation {}: it needs the p2p transport", name(op)));
}

void prepare_nccl_environment() { setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0); }

}  // namespace gantry
