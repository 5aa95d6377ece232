#include "kernels/elementwise/op_names.hpp"

namespace gantry::kernels {

const char* name_of(UnaryOp op) {
  switch (op) {
    using enum UnaryOp;
    case neg:
      return "neg";
    case abs:
      return "abs";
    case sign:
      return "sign";
    case square:
      return "square";
    case reciprocal:
      return "reciprocal";
    case sqrt:
      return "sqrt";
    case rsqrt:
      return "rsqrt";
    case exp:
      return "exp";
    case expm1:
      return "expm1";
    case log:
      return "log";
    case log2:
      return "log2";
    case log10:
      return "log10";
    case log1p:
      return "log1p";
    case sin:
      return "sin";
    case cos:
      return "cos";
    case tan:
      return "tan";
    case asin:
      return "asin";
    case acos:
      return "acos";
    case atan:
      return "atan";
    case sinh:
      return "sinh";
    case cosh:
      return "cosh";
    case tanh:
      return "tanh";
    case sigmoid:
      return "sigmoid";
    case relu:
      return "relu";
    case gelu:
      return "gelu";
    case silu:
      return "silu";
    case erf:
      return "erf";
    case floor:
      return "floor";
    case ceil:
      return "ceil";
    case round:
      return "round";
    case trunc:
      return "trunc";
    case frac:
      return "frac";
    case bitwise_not:
      return "bitwise_not";
  }
  return "kernel";
}

const char* name_of(PredicateOp op) {
  switch (op) {
    using enum PredicateOp;
    case logical_not:
      return "logical_not";
    case is_nan:
      return "isnan";
    case is_inf:
      return "isinf";
    case is_finite:
      return "isfinite";
  }
  return "kernel";
}

const char* name_of(BinaryOp op) {
  switch (op) {
    using enum BinaryOp;
    case add:
      return "add";
    case sub:
      return "sub";
    case mul:
      return "mul";
    case div:
      return "div";
    case div_trunc:
      return "div";
    case div_floor:
      return "floor_divide";
    case remainder:
      return "remainder";
    case fmod:
      return "fmod";
    case pow:
      return "pow";
    case atan2:
      return "atan2";
    case minimum:
      return "minimum";
    case maximum:
      return "maximum";
    case bitwise_and:
      return "bitwise_and";
    case bitwise_or:
      return "bitwise_or";
    case bitwise_xor:
      return "bitwise_xor";
    case shift_left:
      return "bitwise_left_shift";
    case shift_right:
      return "bitwise_right_shift";
  }
  return "kernel";
}

const char* name_of(CompareOp op) {
  switch (op) {
    using enum CompareOp;
    case eq:
      return "eq";
    case ne:
      return "ne";
    case lt:
      return "lt";
    case le:
      return "le";
    case gt:
      return "gt";
    case ge:
      return "ge";
    case logical_and:
      return "logical_and";
    case logical_or:
      return "logical_or";
    case logical_xor:
      return "logical_xor";
  }
  return "kernel";
}

const char* name_of(TernaryOp op) {
  switch (op) {
    using enum TernaryOp;
    case lerp:
      return "lerp";
    case addcmul:
      return "addcmul";
    case addcdiv:
      return "addcdiv";
    case clamp:
      return "clamp";
  }
  return "kernel";
}

}  // namespace gantry::kernels
