// What a build without CUDA has in place of this folder's elementwise, copy and random kernels.
#include <gantry/core/error.hpp>

#include "kernels/cuda/copy.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/random.hpp"

namespace gantry::kernels::cuda {
namespace {

[[noreturn]] void refuse(const char* kernel) {
  throw NotSupported(std::string(kernel) +
                     ": a GPU kernel was called, but this gantry was built without CUDA "
                     "(GANTRY_CUDA=OFF)");
}

}  // namespace

void unary(void*, UnaryOp, const TensorRef&, const TensorRef&) { refuse("unary"); }
void predicate(void*, PredicateOp, const TensorRef&, const TensorRef&) { refuse("predicate"); }
void binary(void*, BinaryOp, const TensorRef&, const Operand&, const Operand&, const Scalar&) {
  refuse("binary");
}
void compare(void*, CompareOp, const TensorRef&, const Operand&, const Operand&, DType) {
  refuse("compare");
}
void ternary(void*, TernaryOp, const TensorRef&, const Operand&, const Operand&, const Operand&,
             const Scalar&) {
  refuse("ternary");
}
void where(void*, const TensorRef&, const TensorRef&, const Operand&, const Operand&) {
  refuse("where");
}

void copy(void*, const TensorRef&, const TensorRef&) { refuse("copy"); }
void fill(void*, const TensorRef&, const Scalar&) { refuse("fill"); }
void arange(void*, const TensorRef&, const Scalar&, const Scalar&, std::int64_t) {
  refuse("arange");
}
void triangle(void*, const TensorRef&, const TensorRef&, bool, std::int64_t) { refuse("triangle"); }

void uniform(void*, const TensorRef&, RandomPosition, double, double) { refuse("uniform"); }
void normal(void*, const TensorRef&, RandomPosition, double, double) { refuse("normal"); }
void randint(void*, const TensorRef&, RandomPosition, std::int64_t, std::int64_t) {
  refuse("randint");
}
void bernoulli(void*, const TensorRef&, const TensorRef&, RandomPosition) { refuse("bernoulli"); }
std::size_t randperm_workspace(std::int64_t) { refuse("randperm"); }
void randperm(void*, const TensorRef&, RandomPosition, void*) { refuse("randperm"); }

}  // namespace gantry::kernels::cuda
