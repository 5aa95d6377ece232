#include "kernels/jit/function.hpp"

#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/convert.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/strided.hpp"

namespace gantry::kernels::jit {

namespace {

// The bits of `number` in the type that the function computes in.
std::uint64_t number_bits(const Scalar& number, DType compute) {
  std::uint64_t bits = 0;
  dispatch(compute, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = std::conditional_t<kIsNarrowFloat<T>, float, T>;
    const C value = number.category() == DTypeCategory::floating
                        ? convert<C>(number.to<double>())
                        : convert<C>(number.to<std::int64_t>());
    std::memcpy(&bits, &value, sizeof value);
  });
  return bits;
}

Specialization types_of(DType compute, std::span<const TensorRef> outputs,
                        std::span<const Operand> inputs) {
  Specialization types{.compute = compute};
  for (const TensorRef& output : outputs) types.outputs.push_back(output.dtype);
  for (const Operand& input : inputs) {
    types.inputs.push_back(input.is_number ? InputKind{compute, true}
                                           : InputKind{input.tensor.dtype, false});
  }
  return types;
}

Parameters parameters_of(DType compute, std::span<const TensorRef> outputs,
                         std::span<const Operand> inputs) {
  Parameters p;
  const std::size_t count = outputs.size() + inputs.size();
  const TensorRef& shape = outputs.front();
  // As coalesce() takes them: all operands of a dim side by side.
  std::vector<std::int64_t> strides(kMaxDims * count, 0);
  const auto add = [&](std::size_t operand, const TensorRef& tensor) {
    p.data[operand] = tensor.data;
    for (int dim = 0; dim < tensor.ndim; ++dim) {
      strides[static_cast<std::size_t>(dim) * count + operand] = tensor.strides[dim];
    }
  };
  for (std::size_t k = 0; k < outputs.size(); ++k) add(k, outputs[k]);
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const std::size_t operand = outputs.size() + k;
    if (inputs[k].is_number) {
      p.numbers[operand] = number_bits(inputs[k].number, compute);
    } else {
      add(operand, inputs[k].tensor);
    }
  }
  p.numel = shape.numel();
  for (int dim = 0; dim < shape.ndim; ++dim) p.sizes[dim] = shape.sizes[dim];
  p.ndim = detail::coalesce(static_cast<int>(count), shape.ndim, p.sizes, strides.data());
  for (std::size_t dim = 0; dim < static_cast<std::size_t>(p.ndim); ++dim) {
    for (std::size_t k = 0; k < count; ++k) p.strides[dim][k] = strides[dim * count + k];
  }
  return p;
}

}  // namespace

Function::Function(std::string source)
    : source_(std::move(source)), signature_(parse_signature(source_)) {}

void Function::run(const Target& target, DType compute, std::span<const TensorRef> outputs,
                   std::span<const Operand> inputs) {
  std::vector<const TensorRef*> operands;
  for (const TensorRef& output : outputs) operands.push_back(&output);
  for (const Operand& input : inputs) operands.push_back(input.is_number ? nullptr : &input.tensor);
  const KernelName kernel("jit::elementwise", static_cast<int>(outputs.size()));
  check_dtypes(kernel, operands);
  const Specialization types = types_of(compute, outputs, inputs);
  const Parameters parameters = parameters_of(compute, outputs, inputs);
  if (!target.is_cpu() && platform() == Platform::cuda) {
    const cuda::JitProgram program = gpu(target.device().index, types);
    submit(
        kernel, target, operands, [] {},
        [&](void*) { cuda::launch_jit(target.stream(), program, types, parameters); });
    return;
  }
  const HostFunction function = host(types);
  submit(
      kernel, target, operands, [function, parameters] { function(&parameters); }, [](void*) {});
}

HostFunction Function::host(const Specialization& types) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [known, function] : host_) {
      if (known == types) return function;
    }
  }
  const HostFunction function = host_program(signature_, source_, types);
  const std::lock_guard lock(mutex_);
  host_.emplace_back(types, function);
  return function;
}

cuda::JitProgram Function::gpu(int device, const Specialization& types) {
  {
    const std::lock_guard lock(mutex_);
    for (const OnDevice& known : gpu_) {
      if (known.device == device && known.types == types) return known.program;
    }
  }
  const cuda::JitProgram program = cuda::jit_program(device, signature_, source_, types);
  const std::lock_guard lock(mutex_);
  gpu_.push_back({device, types, program});
  return program;
}

}  // namespace gantry::kernels::jit
