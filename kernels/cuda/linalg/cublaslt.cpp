#include "kernels/cuda/linalg/cublaslt.hpp"

#include <fmt/format.h>

#include <string>

#include "core/files/loaded_library.hpp"

namespace gantry::kernels::cuda {

void CublasLt::bind(SharedLibrary& library) {
  library.bind(create, "cublasLtCreate");
  library.bind(status_name, "cublasLtGetStatusName");
  library.bind(status_string, "cublasLtGetStatusString");
  library.bind(matmul, "cublasLtMatmul");
  library.bind(matmul_algo_get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library.bind(matmul_desc_create, "cublasLtMatmulDescCreate");
  library.bind(matmul_desc_destroy, "cublasLtMatmulDescDestroy");
  library.bind(matmul_desc_set_attribute, "cublasLtMatmulDescSetAttribute");
  library.bind(matmul_preference_create, "cublasLtMatmulPreferenceCreate");
  library.bind(matmul_preference_destroy, "cublasLtMatmulPreferenceDestroy");
  library.bind(matmul_preference_set_attribute, "cublasLtMatmulPreferenceSetAttribute");
  library.bind(matrix_layout_create, "cublasLtMatrixLayoutCreate");
  library.bind(matrix_layout_destroy, "cublasLtMatrixLayoutDestroy");
  library.bind(matrix_layout_set_attribute, "cublasLtMatrixLayoutSetAttribute");
}

SharedLibrary load_cublas(std::string_view name) {
  // The toolkit's folder is often not in the loader's path.
  const std::string file = fmt::format("lib{}.so.{}", name, CUBLAS_VER_MAJOR);
  return SharedLibrary(
      {file, GANTRY_CUBLASLT_FOLDER "/" + file},
      fmt::format("install cuBLAS {}, or add its folder to LD_LIBRARY_PATH", CUBLAS_VER_MAJOR));
}

const CublasLt& cublaslt() {
  static const auto& loaded = *new LoadedLibrary<CublasLt>(load_cublas("cublasLt"));
  return loaded.require("gemm");
}

}  // namespace gantry::kernels::cuda
