// Rows about the driver's own caching, which a variable chooses for the whole process.
#include "tests/torch_map/torch_map_fixture.hpp"

namespace {

using namespace gantry;
using gantry::testing::TorchCudaMapTest;

TEST_F(TorchCudaMapTest, CachingIsOff) {
  const std::string setting = "GANTRY_ALLOC_CONF=" + *env::get("GANTRY_ALLOC_CONF");
  EXPECT_EQ(setting, "GANTRY_ALLOC_CONF=backend:async");
  EXPECT_EQ(memory::allocator_backend(), "async");
  EXPECT_EQ(ones({2}, "cuda:0").sum().item<float>(), 2);
}

}  // namespace
