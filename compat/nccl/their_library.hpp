// The functions of NCCL's library that GANTRY_NCCL_FALLBACK names.
#pragma once

#include <cstddef>
#include <string>

#include "compat/nccl/types/api.hpp"

namespace gantry::nccl_api {

// Loaded at its first use, and never unloaded. Thread safety: any thread.
class TheirLibrary {
 public:
  static const TheirLibrary& get();
  // True if the variable is set. Loads nothing.
  static bool is_named() noexcept;

  // Why the library cannot be used; empty if it can.
  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] std::string version_text() const;
  // Throws: NotSupported for a function that this version of NCCL does not have.
  template <class Function>
  void require(Function* function, const char* name) const {
    if (function == nullptr) refuse(name);
  }

  using Move = ncclResult_t (*)(const void*, void*, std::size_t, ncclDataType_t, ncclComm_t,
                                cudaStream_t);
  using Reduction = ncclResult_t (*)(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t,
                                     ncclComm_t, cudaStream_t);
  using RootedMove = ncclResult_t (*)(const void*, void*, std::size_t, ncclDataType_t, int,
                                      ncclComm_t, cudaStream_t);

  ncclResult_t (*get_version)(int*) = nullptr;
  ncclResult_t (*get_unique_id)(ncclUniqueId*) = nullptr;
  ncclResult_t (*comm_init_rank)(ncclComm_t*, int, ncclUniqueId, int) = nullptr;
  ncclResult_t (*comm_init_all)(ncclComm_t*, int, const int*) = nullptr;
  ncclResult_t (*comm_destroy)(ncclComm_t) = nullptr;
  ncclResult_t (*comm_abort)(ncclComm_t) = nullptr;
  ncclResult_t (*get_async_error)(ncclComm_t, ncclResult_t*) = nullptr;
  const char* (*get_last_error)(ncclComm_t) = nullptr;
  const char* (*get_error_string)(ncclResult_t) = nullptr;
  ncclResult_t (*group_start)() = nullptr;
  ncclResult_t (*group_end)() = nullptr;
  Reduction all_reduce = nullptr;
  ncclResult_t (*reduce)(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, int,
                         ncclComm_t, cudaStream_t) = nullptr;
  RootedMove broadcast = nullptr;
  Move all_gather = nullptr;
  Reduction reduce_scatter = nullptr;
  RootedMove gather = nullptr;   // since 2.28
  RootedMove scatter = nullptr;  // since 2.28
  Move all_to_all = nullptr;     // since 2.28
  ncclResult_t (*send)(const void*, std::size_t, ncclDataType_t, int, ncclComm_t,
                       cudaStream_t) = nullptr;
  ncclResult_t (*recv)(void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) = nullptr;
  ncclResult_t (*create_pre_mul_sum)(ncclRedOp_t*, void*, ncclDataType_t, ncclScalarResidence_t,
                                     ncclComm_t) = nullptr;
  ncclResult_t (*destroy_operator)(ncclRedOp_t, ncclComm_t) = nullptr;

 private:
  TheirLibrary();
  void load(const std::string& path);
  [[noreturn]] void refuse(const char* name) const;

  int version_ = 0;
  std::string problem_;
};

}  // namespace gantry::nccl_api
