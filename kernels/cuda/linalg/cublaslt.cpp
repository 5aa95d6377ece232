#include "kernels/cuda/linalg/cublaslt.hpp"

#include <fmt/format.h>

#include <string>

namespace gantry::kernels::cuda {

namespace {

struct Loaded {
  SharedLibrary library;
  CublasLt functions;
};

Loaded load() {
  Loaded loaded{load_cublas("cublasLt"), {}};
  SharedLibrary& library = loaded.library;
  CublasLt& functions = loaded.functions;
  library.bind(functions.create, "cublasLtCreate");
  library.bind(functions.status_name, "cublasLtGetStatusName");
  library.bind(functions.status_string, "cublasLtGetStatusString");
  library.bind(functions.matmul, "cublasLtMatmul");
  library.bind(functions.matmul_algo_get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library.bind(functions.matmul_desc_create, "cublasLtMatmulDescCreate");
  library.bind(functions.matmul_desc_destroy, "cublasLtMatmulDescDestroy");
  library.bind(functions.matmul_desc_set_attribute, "cublasLtMatmulDescSetAttribute");
  library.bind(functions.matmul_preference_create, "cublasLtMatmulPreferenceCreate");
  library.bind(functions.matmul_preference_destroy, "cublasLtMatmulPreferenceDestroy");
  library.bind(functions.matmul_preference_set_attribute, "cublasLtMatmulPreferenceSetAttribute");
  library.bind(functions.matrix_layout_create, "cublasLtMatrixLayoutCreate");
  library.bind(functions.matrix_layout_destroy, "cublasLtMatrixLayoutDestroy");
  library.bind(functions.matrix_layout_set_attribute, "cublasLtMatrixLayoutSetAttribute");
  return loaded;
}

}  // namespace

SharedLibrary load_cublas(std::string_view name) {
  // The toolkit's folder is often not in the loader's path.
  const std::string file = fmt::format("lib{}.so.{}", name, CUBLAS_VER_MAJOR);
  return SharedLibrary(
      {file, GANTRY_CUBLASLT_FOLDER "/" + file},
      fmt::format("install cuBLAS {}, or add its folder to LD_LIBRARY_PATH", CUBLAS_VER_MAJOR));
}

const CublasLt& cublaslt() {
  static const auto& loaded = *new Loaded(load());
  loaded.library.require("gemm");
  return loaded.functions;
}

}  // namespace gantry::kernels::cuda
