// Programs for GPUs, compiled by NVRTC: that needs no GPU.
#include "kernels/cuda/jit/nvrtc.hpp"

#include <gtest/gtest.h>

#include <string>

#include <gantry/core/error.hpp>
#include <gantry/kernels/compile_error.hpp>

#include "kernels/jit/program.hpp"
#include "tests/support/expect_error.hpp"

namespace gantry::kernels {
namespace {

constexpr const char* kSource =
    "template <typename T> void f(T x, T y, T z, T& sum, bool& less) { sum = x + y * z; less = x < "
    "y; }";

std::string compile(const std::string& source, const jit::Specialization& types,
                    int architecture = 90) {
  const jit::Signature signature = jit::parse_signature(source);
  return cuda::compile_for_gpu(
      architecture, jit::program_text(jit::Language::cuda, signature, types), source, "'f'");
}

class JitGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      (void)compile("template <typename T> T f(T x) { return x; }",
                    {.compute = f32, .inputs = {{f32}}, .outputs = {f32}});
    } catch (const NotSupported& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

TEST_F(JitGpuTest, EveryDTypeCompilesToKernels) {
  for (const DType dtype : {bool_, u8, i8, i16, i32, i64, f16, bf16, f32, f64}) {
    SCOPED_TRACE(std::string(name(dtype)));
    const std::string image = compile(
        kSource,
        {.compute = dtype, .inputs = {{dtype}, {u8}, {dtype, true}}, .outputs = {dtype, bool_}});
    EXPECT_TRUE(image.starts_with("\177ELF"));
    EXPECT_NE(image.find(jit::kDenseKernel), std::string::npos);
    EXPECT_NE(image.find(jit::kStridedKernel), std::string::npos);
  }
}

TEST_F(JitGpuTest, ArchitecturesThatNvrtcDoesNotKnowGetPtx) {
  const jit::Specialization types{.compute = f32, .inputs = {{f32}}, .outputs = {f32}};
  const char* source = "template <typename T> T f(T x) { return exp(x); }";
  const std::string image = compile(source, types, 999);
  EXPECT_NE(image.find(".target"), std::string::npos);
  EXPECT_NE(image.find(jit::kDenseKernel), std::string::npos);
  EXPECT_ERROR(compile(source, types, 10), NotSupported, "this NVRTC knows newer ones only");
}

TEST_F(JitGpuTest, ErrorsCountTheLinesOfTheSource) {
  try {
    (void)compile("template <typename T>\nT f(T x) {\n  return nonsense;\n}\n",
                  {.compute = f32, .inputs = {{f32}}, .outputs = {f32}});
    FAIL() << "no error";
  } catch (const ::gantry::jit::CompileError& error) {
    EXPECT_NE(error.log().find("source(3): error"), std::string::npos) << error.what();
    EXPECT_NE(error.log().find("return nonsense;"), std::string::npos) << error.what();
  }
}

// The text of one kernel in PTX.
std::string kernel_of(const std::string& ptx, const char* name) {
  const std::size_t begin = ptx.find(std::string(".entry ") + name);
  return begin == std::string::npos ? "" : ptx.substr(begin, ptx.find("\n}", begin) - begin);
}

TEST_F(JitGpuTest, DenseKernelsMoveSixteenBytesAnAccess) {
  for (const DType dtype : {u8, bf16, f32, i64}) {
    SCOPED_TRACE(std::string(name(dtype)));
    const std::string ptx =
        compile("template <typename T> T f(T x, T y) { return x + y; }",
                {.compute = dtype, .inputs = {{dtype}, {dtype}}, .outputs = {dtype}}, 999);
    const std::string dense = kernel_of(ptx, jit::kDenseKernel);
    EXPECT_NE(dense.find("ld.global.v"), std::string::npos) << dense;
    EXPECT_NE(dense.find("st.global.v"), std::string::npos) << dense;
    // Nothing lies in local memory, which is slow.
    EXPECT_EQ(dense.find(".local"), std::string::npos) << dense;
    EXPECT_EQ(kernel_of(ptx, jit::kStridedKernel).find(".local"), std::string::npos);
  }
}

TEST_F(JitGpuTest, PacksAreThoseOfBuiltInKernels) {
  // The pack of the built-in kernels: 16 bytes of the narrowest operand, at most 64 of the widest.
  EXPECT_EQ(jit::pack_size({.compute = f32, .inputs = {{f32}, {f32}}, .outputs = {f32}}), 4);
  EXPECT_EQ(jit::pack_size({.compute = bf16, .inputs = {{bf16}, {bf16, true}}, .outputs = {bf16}}),
            8);
  EXPECT_EQ(jit::pack_size({.compute = f64, .inputs = {{f64}}, .outputs = {f64}}), 4);
  EXPECT_EQ(jit::pack_size({.compute = u8, .inputs = {{u8}}, .outputs = {u8}}), 16);
  EXPECT_EQ(jit::pack_size({.compute = f64, .inputs = {{u8}}, .outputs = {f64}}), 8);
}

}  // namespace
}  // namespace gantry::kernels
