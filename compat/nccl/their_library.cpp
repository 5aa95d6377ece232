#include "compat/nccl/their_library.hpp"

#include <dlfcn.h>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

namespace gantry::nccl_api {

namespace {

constexpr int kMinVersion = 21800;  // 2.18

std::string named_path() { return env::get("GANTRY_NCCL_FALLBACK").value_or(""); }

// NCCL's functions call each other by names that this library exports, too. Its own must come
// first for it. The sanitizers' libraries do not allow that.
constexpr int kFlags =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    RTLD_NOW | RTLD_LOCAL;
#else
    RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

// Finds functions by their names, and notes the first that is missing.
class Binder {
 public:
  explicit Binder(void* handle) : handle_(handle) {}
  template <class Function>
  void optional(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(::dlsym(handle_, name));
  }
  template <class Function>
  void required(Function& function, const char* name) {
    optional(function, name);
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  void* handle_;
  std::string missing_;
};

}  // namespace

bool TheirLibrary::is_named() noexcept {
  static const bool is_set = [] {
    try {
      return !named_path().empty();
    } catch (...) {
      return false;
    }
  }();
  return is_set;
}

const TheirLibrary& TheirLibrary::get() {
  static const TheirLibrary& library = *new TheirLibrary;  // groups may outlive static objects
  return library;
}

TheirLibrary::TheirLibrary() {
  const std::string path = named_path();
  load(path);
  if (!problem_.empty()) problem_ = "failed to load " + path + ": " + problem_;
}

void TheirLibrary::load(const std::string& path) {
  void* const handle = ::dlopen(path.c_str(), kFlags);
  if (handle == nullptr) {
    const char* const text = ::dlerror();
    problem_ = text != nullptr ? text : "the loader gives no reason";
    if (problem_.starts_with(path + ": ")) problem_.erase(0, path.size() + 2);
    return;
  }
  if (::dlsym(handle, "gantry_nccl_marker") != nullptr) {
    problem_ = "this is gantry's own library";
    return;
  }
  Binder binder(handle);
  binder.required(get_version, "ncclGetVersion");
  binder.required(get_unique_id, "ncclGetUniqueId");
  binder.required(comm_init_rank, "ncclCommInitRank");
  binder.required(comm_init_all, "ncclCommInitAll");
  binder.required(comm_destroy, "ncclCommDestroy");
  binder.required(comm_abort, "ncclCommAbort");
  binder.required(get_async_error, "ncclCommGetAsyncError");
  binder.required(get_last_error, "ncclGetLastError");
  binder.required(get_error_string, "ncclGetErrorString");
  binder.required(group_start, "ncclGroupStart");
  binder.required(group_end, "ncclGroupEnd");
  binder.required(all_reduce, "ncclAllReduce");
  binder.required(reduce, "ncclReduce");
  binder.required(broadcast, "ncclBroadcast");
  binder.required(all_gather, "ncclAllGather");
  binder.required(reduce_scatter, "ncclReduceScatter");
  binder.optional(gather, "ncclGather");
  binder.optional(scatter, "ncclScatter");
  binder.optional(all_to_all, "ncclAlltoAll");
  binder.required(send, "ncclSend");
  binder.required(recv, "ncclRecv");
  binder.required(create_pre_mul_sum, "ncclRedOpCreatePreMulSum");
  binder.required(destroy_operator, "ncclRedOpDestroy");
  if (!binder.missing().empty()) {
    problem_ = "it lacks " + binder.missing();
  } else if (get_version(&version_) != ncclSuccess || version_ < kMinVersion) {
    problem_ = "expected NCCL 2.18 or later, but got " + version_text();
  }
}

std::string TheirLibrary::version_text() const {
  const int major = version_ < 10'000 ? 1000 : 10'000;  // before 2.9, and since
  return std::to_string(version_ / major) + "." + std::to_string(version_ % major / 100) + "." +
         std::to_string(version_ % 100);
}

void TheirLibrary::refuse(const char* name) const {
  throw NotSupported(std::string("expected an NCCL with ") + name + ", but got version " +
                     version_text());
}

}  // namespace gantry::nccl_api
