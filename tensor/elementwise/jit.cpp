#include <gantry/tensor/jit.hpp>

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include <gantry/tensor/promote.hpp>

#include "kernels/jit/counts.hpp"
#include "kernels/jit/function.hpp"
#include "kernels/op_scope.hpp"
#include "tensor/layout/broadcast.hpp"
#include "tensor/named_ops.hpp"
#include "tensor/overlap.hpp"
#include "tensor/same_device.hpp"
#include "tensor/target_of.hpp"

namespace gantry::jit {

struct Elementwise::Impl {
  explicit Impl(std::string source) : function(std::move(source)) {}

  kernels::jit::Function function;
};

namespace {

using kernels::jit::OutputKind;
using kernels::jit::Signature;

constexpr std::string_view kOp = "jit::elementwise";
constexpr std::array<std::string_view, 8> kInputNames{"input 0", "input 1", "input 2", "input 3",
                                                      "input 4", "input 5", "input 6", "input 7"};
constexpr std::array<std::string_view, 8> kOutputNames{"out 0", "out 1", "out 2", "out 3",
                                                       "out 4", "out 5", "out 6", "out 7"};

// One call: what all operands decide, before anything is allocated.
struct Call {
  Device device = Device::cpu();
  Shape shape;
  DType promoted = DType::f32;
};

void check_count(const Signature& signature, std::size_t operands) {
  const auto count = static_cast<int>(operands);
  if (count >= signature.required && count <= signature.inputs) return;
  const std::string expected = signature.required == signature.inputs
                                   ? std::to_string(signature.inputs)
                                   : fmt::format("{} to {}", signature.required, signature.inputs);
  throw InvalidArgument(fmt::format("{}: expected {} operands of '{}', but got {}", kOp, expected,
                                    signature.name, operands));
}

Call plan(const Signature& signature, std::span<const Tensor> outs,
          std::span<const Operand> operands) {
  check_count(signature, operands.size());
  std::vector<detail::NamedTensor> tensors;
  for (std::size_t k = 0; k < outs.size(); ++k) {
    tensors.push_back({kOutputNames[k], outs[k], detail::Role::output});
  }
  const std::size_t without_inputs = tensors.size();
  for (std::size_t k = 0; k < operands.size(); ++k) {
    if (operands[k].is_tensor()) tensors.push_back({kInputNames[k], operands[k].tensor()});
  }
  if (tensors.size() == without_inputs) {
    throw InvalidArgument(
        fmt::format("{}: expected at least one tensor, but got only numbers", kOp));
  }
  Call call;
  call.device = detail::common_device(kOp, tensors, detail::CpuScalars::allowed);
  for (const Operand& operand : operands) {
    if (!operand.is_tensor()) continue;
    call.shape = detail::common_shape(kOp, {&call.shape, &operand.tensor().sizes()}, call.device);
  }
  call.promoted = result_type(operands);
  return call;
}

DType dtype_of(OutputKind kind, const Call& call) {
  return kind == OutputKind::boolean ? DType::bool_ : call.promoted;
}

void check_outs(const Signature& signature, const Call& call, std::span<const Tensor> outs,
                std::span<const Operand> operands) {
  for (std::size_t k = 0; k < outs.size(); ++k) {
    const DType result = dtype_of(signature.outputs[k], call);
    if (!can_cast(result, outs[k].dtype())) {
      throw DTypeError(fmt::format("{}: result type {} can't be cast to the desired output type {}",
                                   kOp, torch_name(result), torch_name(outs[k].dtype())),
                       call.device.str());
    }
    detail::check_out_shape(kOp, outs[k], call.shape);
    detail::check_writable(kOp, outs[k]);
    for (const Operand& operand : operands) {
      if (operand.is_tensor()) detail::check_no_partial_overlap(kOp, outs[k], operand.tensor());
    }
    for (std::size_t other = 0; other < k; ++other) {
      detail::check_no_overlap(kOp, outs[k], outs[other]);
    }
  }
}

void compute(kernels::jit::Function& function, const Call& call, std::span<const Tensor> outs,
             std::span<const Operand> operands) {
  std::vector<TensorRef> refs;
  for (const Tensor& out : outs) refs.push_back(out.ref());
  if (refs.front().numel() == 0) return;
  std::vector<kernels::Operand> inputs;
  for (const Operand& operand : operands) {
    if (!operand.is_tensor()) {
      inputs.emplace_back(operand.number());
    } else if (operand.tensor().is_cpu() && !call.device.is_cpu()) {
      inputs.emplace_back(operand.tensor().item());  // the 0-dim CPU tensor
    } else {
      inputs.emplace_back(detail::broadcast_ref(operand.tensor(), call.shape));
    }
  }
  function.run(detail::target_of(call.device), call.promoted, refs, inputs);
}

}  // namespace

std::vector<Tensor> Elementwise::run(std::span<const Operand> operands) const {
  const kernels::OpScope scope(impl_->function.signature().name);
  const Signature& signature = impl_->function.signature();
  const Call call = plan(signature, {}, operands);
  std::vector<Tensor> outs;
  for (const OutputKind kind : signature.outputs) {
    outs.push_back(
        detail::empty_as(kOp, call.shape, {.dtype = dtype_of(kind, call), .device = call.device}));
  }
  compute(impl_->function, call, outs, operands);
  return outs;
}

void Elementwise::run_into(std::span<const Tensor> outs, std::span<const Operand> operands) const {
  const kernels::OpScope scope(impl_->function.signature().name);
  const Signature& signature = impl_->function.signature();
  if (outs.size() != signature.outputs.size()) {
    throw InvalidArgument(fmt::format("{}: expected {} outputs of '{}', but got {}", kOp,
                                      signature.outputs.size(), signature.name, outs.size()));
  }
  const Call call = plan(signature, outs, operands);
  check_outs(signature, call, outs, operands);
  compute(impl_->function, call, outs, operands);
}

Tensor Elementwise::one(std::span<const Operand> operands) const {
  if (outputs() != 1) {
    throw InvalidArgument(
        fmt::format("{}: expected a function with one output, but got '{}' with "
                    "{}; call multi()",
                    kOp, name(), outputs()));
  }
  return run(operands).front();
}

const std::string& Elementwise::name() const noexcept { return impl_->function.signature().name; }
int Elementwise::inputs() const noexcept { return impl_->function.signature().inputs; }
int Elementwise::outputs() const noexcept {
  return static_cast<int>(impl_->function.signature().outputs.size());
}

Elementwise elementwise(std::string source) {
  return Elementwise(std::make_shared<Elementwise::Impl>(std::move(source)));
}

Stats stats() noexcept {
  const kernels::jit::Counts& counts = kernels::jit::count();
  return {counts.compiled.load(std::memory_order_relaxed),
          counts.loaded.load(std::memory_order_relaxed),
          counts.refused.load(std::memory_order_relaxed)};
}

}  // namespace gantry::jit
