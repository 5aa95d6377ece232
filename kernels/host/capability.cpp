#include "kernels/host/capability.hpp"

#include <algorithm>
#include <string>

#include "core/env/settings.hpp"

namespace gantry::kernels::host {
namespace {

Capability permitted() {
  const std::string word = env::kCpuCapability.get();
  if (word == "default") return Capability::baseline;
  if (word == "avx2") return Capability::avx2;
  return word == "avx512" ? Capability::avx512 : Capability::avx512_bf16;
}

}  // namespace

Capability capability() {
  static const Capability chosen = std::min(processor_capability(), permitted());
  return chosen;
}

}  // namespace gantry::kernels::host
