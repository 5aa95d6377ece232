// A function of jit::elementwise, with its compiled programs.
#pragma once

#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/dtype.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/jit/cuda_jit.hpp"
#include "kernels/jit/host_program.hpp"
#include "kernels/jit/program.hpp"
#include "kernels/target.hpp"

namespace gantry::kernels::jit {

// Thread safety: any thread.
class Function {
 public:
  // Throws: InvalidArgument for a source without a function that can be called.
  explicit Function(std::string source);

  [[nodiscard]] const Signature& signature() const { return signature_; }

  // outputs = function(inputs), element by element, computed in the type of `compute`.
  //
  // Preconditions: all tensors have the shape of the outputs, which is not empty (strides of 0
  // broadcast), and the rest as Target says. The numbers of inputs and outputs fit the signature.
  // At the first call with these dtypes the host blocks for the compiler.
  void run(const Target& target, DType compute, std::span<const TensorRef> outputs,
           std::span<const Operand> inputs);

 private:
  [[nodiscard]] HostFunction host(const Specialization& types);
  [[nodiscard]] cuda::JitProgram gpu(int device, const Specialization& types);

  std::string source_;
  Signature signature_;
  std::mutex mutex_;
  std::vector<std::pair<Specialization, HostFunction>> host_;
  struct OnDevice {
    int device;
    Specialization types;
    cuda::JitProgram program;
  };
  std::vector<OnDevice> gpu_;
};

}  // namespace gantry::kernels::jit
