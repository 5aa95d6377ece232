#include "kernels/host/capability.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace gantry::testing {
namespace {

using kernels::host::Capability;

// The most that GANTRY_CPU_CAPABILITY permits. The test runs once with each of its values.
Capability permitted() {
  const char* const text = std::getenv("GANTRY_CPU_CAPABILITY");
  const std::string word = text == nullptr ? "avx512_bf16" : text;
  if (word == "default") return Capability::baseline;
  if (word == "avx2") return Capability::avx2;
  return word == "avx512" ? Capability::avx512 : Capability::avx512_bf16;
}

TEST(CapabilityTest, IsTheProcessorsUnlessTheVariablePermitsLess) {
  EXPECT_EQ(kernels::host::capability(),
            std::min(kernels::host::processor_capability(), permitted()));
}

}  // namespace
}  // namespace gantry::testing
