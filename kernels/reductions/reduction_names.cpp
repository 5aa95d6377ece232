#include "kernels/reductions/reduction_names.hpp"

namespace gantry::kernels {

const char* name_of(Reduction op) {
  switch (op) {
    using enum Reduction;
    case sum:
      return "sum";
    case prod:
      return "prod";
    case min:
      return "min";
    case max:
      return "max";
    case any:
      return "any";
    case all:
      return "all";
    case norm2:
      return "norm2";
    case sum_abs:
      return "sum_abs";
    case count_nonzero:
      return "count_nonzero";
    case variance:
      return "var";
    case deviation:
      return "std";
    case log_sum_exp:
      return "logsumexp";
    case argmax:
      return "argmax";
    case argmin:
      return "argmin";
  }
  return "kernel";
}

const char* name_of(ScanOp op) {
  switch (op) {
    using enum ScanOp;
    case sum:
      return "cumsum";
    case product:
      return "cumprod";
    case log_sum_exp:
      return "logcumsumexp";
  }
  return "kernel";
}

}  // namespace gantry::kernels
