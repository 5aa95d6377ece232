#pragma once

#include <cublasLt.h>

#include <string_view>

#include "core/files/shared_library.hpp"

namespace gantry::kernels::cuda {

// Loads "cublas" or "cublasLt", of the version that gantry is built with. Another major version has
// other types.
SharedLibrary load_cublas(std::string_view name);

// The functions of cuBLASLt that gantry uses. The library is loaded at the first product: it takes
// half a gigabyte of address space, and many programs multiply no matrices.
struct CublasLt {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtGetStatusName) status_name = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) matmul_algo_get_heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) matmul_desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) matmul_desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) matmul_desc_set_attribute = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) matmul_preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) matmul_preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) matmul_preference_set_attribute = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) matrix_layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) matrix_layout_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) matrix_layout_set_attribute = nullptr;

  void bind(SharedLibrary& library);
};

// Loads the library at the first call. Throws: NotSupported if that fails.
const CublasLt& cublaslt();

}  // namespace gantry::kernels::cuda
