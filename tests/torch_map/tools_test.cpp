// Debugging modes and kernels of programs.
#include "tests/torch_map/torch_map_fixture.hpp"

namespace gantry::testing {
namespace {

TEST_F(TorchCudaMapTest, SyncDebugMode) {
  set_sync_debug_mode(SyncDebug::error);
  EXPECT_EQ(sync_debug_mode(), SyncDebug::error);
  EXPECT_THROW(synchronize("cuda:0"), Error);
  set_sync_debug_mode(SyncDebug::off);
  synchronize("cuda:0");
}

TEST_F(TorchCudaMapTest, Sanitizer) {
  sanitizer::enable(sanitizer::Mode::throw_);
  const Tensor x = ones({8}, "cuda:0");
  const Stream side = Stream::from_pool("cuda:0");
  {
    const StreamGuard guard(side);
    EXPECT_THROW((void)x.sum(), RaceError);
  }
  EXPECT_EQ(sanitizer::report().races.size(), 1U);
  sanitizer::clear();
  sanitizer::enable(sanitizer::Mode::off);
}

TEST_F(TorchCudaMapTest, NoteTf32) {
  EXPECT_FALSE(allow_tf32());
  set_allow_tf32(true);
  const Tensor x = full({16, 16}, 0.5, "cuda:0");
  EXPECT_TRUE(matmul(x, x).equal(full_like(x, 4)));  // exact in TF32, too
  set_allow_tf32(false);
}

TEST_F(TorchCudaMapTest, JiteratorFunction) {
  const auto axpy =
      jit::elementwise("template <typename T> T axpy(T x, T y, T a) { return a * x + y; }");
  const Tensor x = ones({4}, "cuda:0");
  EXPECT_TRUE(axpy(x, x, 3).equal(full_like(x, 4)));
}

TEST_F(TorchCudaMapTest, JiteratorOutputs) {
  const auto both = jit::elementwise(
      "template <typename T> void both(T x, T& twice, T& square) { twice = x + x; square = x * x; "
      "}");
  const Tensor x = full({4}, 3.0, "cuda:0");
  const std::vector<Tensor> results = both.multi(x);
  EXPECT_TRUE(results.at(0).equal(full_like(x, 6)));
  EXPECT_TRUE(results.at(1).equal(full_like(x, 9)));
}

}  // namespace
}  // namespace gantry::testing
