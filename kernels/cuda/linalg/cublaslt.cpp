#include "kernels/cuda/linalg/cublaslt.hpp"

#include <fmt/format.h>

#include <string>

namespace gantry::kernels::cuda {

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
