#include "collectives/nccl/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <gantry/core/log.hpp>

#include "collectives/transport.hpp"

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
  bind(library_, functions_.get_unique_id, "ncclGetUniqueId");
  bind(library_, functions_.get_error_string, "ncclGetErrorString");
  bind(library_, functions_.get_last_error, "ncclGetLastError");
  bind(library_, functions_.comm_init_all, "ncclCommInitAll");
  bind(library_, functions_.comm_init_rank, "ncclCommInitRank");
  bind(library_, functions_.comm_count, "ncclCommCount");
  bind(library_, functions_.comm_user_rank, "ncclCommUserRank");
  bind(library_, functions_.comm_cu_device, "ncclCommCuDevice");
  bind(library_, functions_.comm_abort, "ncclCommAbort");
  bind(library_, functions_.comm_get_async_error, "ncclCommGetAsyncError");
  bind(library_, functions_.group_start, "ncclGroupStart");
  bind(library_, functions_.group_end, "ncclGroupEnd");
  bind(library_, functions_.all_gather, "ncclAllGather");
  bind(library_, functions_.all_reduce, "ncclAllReduce");
  bind(library_, functions_.broadcast, "ncclBroadcast");
  bind(library_, functions_.reduce, "ncclReduce");
  bind(library_, functions_.reduce_scatter, "ncclReduceScatter");
  bind(library_, functions_.send, "ncclSend");
  bind(library_, functions_.recv, "ncclRecv");
}

// Its functions call this library's own.
bool NcclLibrary::is_own() const {
  constexpr const char* kMark = "gantry_nccl_marker";
  return ::dlsym(RTLD_DEFAULT, kMark) != nullptr || library_.find(kMark) != nullptr;
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
  static const auto& library =
      *new NcclLibrary({kName, std::string(GANTRY_NCCL_FOLDER "/") + kName});
  return library;
}

const std::string& nccl_problem() { return nccl_library().problem(); }

}  // namespace gantry
