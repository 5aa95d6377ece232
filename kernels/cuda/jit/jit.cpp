#include "kernels/jit/cuda_jit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include <gantry/device/properties.hpp>

#include "core/text/sha256.hpp"
#include "device/cuda/cuda_api.hpp"
#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_context.hpp"
#include "kernels/cuda/jit/nvrtc.hpp"
#include "kernels/jit/file_cache.hpp"
#include "kernels/jit/program_table.hpp"
#include "kernels/strided.hpp"

namespace gantry::kernels::cuda {

namespace {

using ::gantry::cuda::api;

constexpr unsigned kThreads = 256;  // of runtime.cpp
// As the built-in kernels: the loop over the grid covers more.
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20;

JitProgram load(int device, const std::string& image) {
  const ::gantry::cuda::ContextScope scope(device);
  const ::gantry::cuda::RelaxedCaptureScope relaxed;
  CUmodule module = nullptr;
  CUfunction dense = nullptr;
  CUfunction strided = nullptr;
  GANTRY_CUDA_CHECK(api().cuModuleLoadData(&module, image.c_str()), "loading a compiled program",
                    device);
  GANTRY_CUDA_CHECK(api().cuModuleGetFunction(&dense, module, jit::kDenseKernel),
                    "loading a compiled program", device);
  GANTRY_CUDA_CHECK(api().cuModuleGetFunction(&strided, module, jit::kStridedKernel),
                    "loading a compiled program", device);
  return {dense, strided};
}

void launch(const Stream& stream, void* kernel, std::int64_t threads, jit::Parameters parameters) {
  const std::int64_t blocks =
      std::clamp<std::int64_t>((threads + kThreads - 1) / kThreads, 1, kMostBlocks);
  void* arguments[] = {&parameters};
  GANTRY_CUDA_CHECK(
      api().cuLaunchKernel(static_cast<CUfunction>(kernel), static_cast<unsigned>(blocks), 1, 1,
                           kThreads, 1, 1, 0, static_cast<CUstream>(stream.native_handle()),
                           arguments, nullptr),
      "launching a compiled program", stream.native());
}

std::size_t bytes_of(const jit::Specialization& types, std::size_t operand) {
  const std::size_t outputs = types.outputs.size();
  return element_size(operand < outputs ? types.outputs[operand]
                                        : types.inputs[operand - outputs].dtype);
}

bool is_number(const jit::Specialization& types, std::size_t operand) {
  const std::size_t outputs = types.outputs.size();
  return operand >= outputs && types.inputs[operand - outputs].is_number;
}

std::size_t operand_count(const jit::Specialization& types) {
  return types.outputs.size() + types.inputs.size();
}

// True if every operand is a number, or contiguous and aligned to packs.
bool is_dense(const jit::Specialization& types, const jit::Parameters& p) {
  if (p.ndim != 1) return false;
  const auto pack = static_cast<std::size_t>(jit::pack_size(types));
  for (std::size_t k = 0; k < operand_count(types); ++k) {
    if (is_number(types, k)) continue;
    const std::size_t alignment = std::min<std::size_t>(16, pack * bytes_of(types, k));
    const auto address = reinterpret_cast<std::uintptr_t>(p.data[k]);
    if (p.strides[0][k] != 1 || address % alignment != 0) return false;
  }
  return true;
}

// The strided kernel counts in 32 bits: larger work is halved along its widest dim.
void launch_strided(const Stream& stream, const JitProgram& program,
                    const jit::Specialization& types, const jit::Parameters& parameters) {
  jit::Parameters p = parameters;
  if (p.numel < std::int64_t{1} << 31) {
    for (std::int64_t dim = 0; dim < p.ndim; ++dim) {
      const FastDivisor divisor(static_cast<std::uint32_t>(p.sizes[dim]));
      p.divisors[dim][0] = divisor.divisor;
      p.divisors[dim][1] = divisor.multiplier;
      p.divisors[dim][2] = divisor.shift;
    }
    launch(stream, program.strided, p.numel, p);
    return;
  }
  const auto widest = std::max_element(p.sizes, p.sizes + p.ndim) - p.sizes;
  const std::int64_t size = p.sizes[widest];
  const std::int64_t rest = p.numel / size;
  p.sizes[widest] = size / 2;
  p.numel = p.sizes[widest] * rest;
  launch_strided(stream, program, types, p);
  for (std::size_t k = 0; k < operand_count(types); ++k) {
    if (is_number(types, k)) continue;
    p.data[k] = static_cast<char*>(p.data[k]) + p.sizes[widest] * p.strides[widest][k] *
                                                    static_cast<std::int64_t>(bytes_of(types, k));
  }
  p.sizes[widest] = size - size / 2;
  p.numel = p.sizes[widest] * rest;
  launch_strided(stream, program, types, p);
}

}  // namespace

JitProgram jit_program(int device, const jit::Signature& signature, const std::string& source,
                       const jit::Specialization& types) {
  static auto& table = *new jit::ProgramTable<JitProgram>;
  const DeviceProperties& properties = device_properties(Device::cuda(device));
  const int architecture = properties.major * 10 + properties.minor;
  const std::string text = jit::program_text(jit::Language::cuda, signature, types);
  const std::string key =
      sha256_hex(fmt::format("cuda\n{}\n{}\n{}\n{}\n{}\n{}\n{}", GANTRY_VERSION, nvrtc_options(),
                             nvrtc_identity(), architecture, text.size(), text, source));
  return table.get(fmt::format("{} {}", key, device), [&] {
    if (const std::optional<std::string> cached = jit::read_cached(key)) {
      return load(device, *cached);
    }
    const std::string what =
        fmt::format("'{}' for {}", signature.name, jit::type_text(types.compute));
    const std::string image = compile_for_gpu(architecture, text, source, what);
    const JitProgram program = load(device, image);
    jit::write_cached(key, image);
    return program;
  });
}

void launch_jit(const Stream& stream, const JitProgram& program, const jit::Specialization& types,
                const jit::Parameters& parameters) {
  const ::gantry::cuda::ContextScope scope(stream.device().index);
  if (!is_dense(types, parameters)) {
    launch_strided(stream, program, types, parameters);
    return;
  }
  const std::int64_t pack = jit::pack_size(types);
  launch(stream, program.dense, (parameters.numel + pack - 1) / pack, parameters);
}

}  // namespace gantry::kernels::cuda
