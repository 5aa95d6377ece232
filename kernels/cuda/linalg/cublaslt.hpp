#pragma once

#include <cublasLt.h>

#include <string_view>

#include "core/files/loaded_library.hpp"

namespace gantry::kernels::cuda {

// Loads "cublas" or "cublasLt", of the version that gantry is built with. Another major version has
// other types.
SharedLibrary load_cublas(std::string_view name);

// The functions of cuBLASLt that gantry uses. The library is loaded at the first product: it takes
// half a gigabyte of address space, and many programs multiply no matrices.
struct CublasLt : LibraryFunctions {
  using LibraryFunctions::LibraryFunctions;
  decltype(&cublasLtCreate) create = bind("cublasLtCreate");
  decltype(&cublasLtGetStatusName) status_name = bind("cublasLtGetStatusName");
  decltype(&cublasLtGetStatusString) status_string = bind("cublasLtGetStatusString");
  decltype(&cublasLtMatmul) matmul = bind("cublasLtMatmul");
  decltype(&cublasLtMatmulAlgoGetHeuristic) matmul_algo_get_heuristic =
      bind("cublasLtMatmulAlgoGetHeuristic");
  decltype(&cublasLtMatmulDescCreate) matmul_desc_create = bind("cublasLtMatmulDescCreate");
  decltype(&cublasLtMatmulDescDestroy) matmul_desc_destroy = bind("cublasLtMatmulDescDestroy");
  decltype(&cublasLtMatmulDescSetAttribute) matmul_desc_set_attribute =
      bind("cublasLtMatmulDescSetAttribute");
  decltype(&cublasLtMatmulPreferenceCreate) matmul_preference_create =
      bind("cublasLtMatmulPreferenceCreate");
  decltype(&cublasLtMatmulPreferenceDestroy) matmul_preference_destroy =
      bind("cublasLtMatmulPreferenceDestroy");
  decltype(&cublasLtMatmulPreferenceSetAttribute) matmul_preference_set_attribute =
      bind("cublasLtMatmulPreferenceSetAttribute");
  decltype(&cublasLtMatrixLayoutCreate) matrix_layout_create = bind("cublasLtMatrixLayoutCreate");
  decltype(&cublasLtMatrixLayoutDestroy) matrix_layout_destroy =
      bind("cublasLtMatrixLayoutDestroy");
  decltype(&cublasLtMatrixLayoutSetAttribute) matrix_layout_set_attribute =
      bind("cublasLtMatrixLayoutSetAttribute");
};

// Loads the library at the first call. Throws: NotSupported if that fails.
const CublasLt& cublaslt();

}  // namespace gantry::kernels::cuda
