#include <gantry/tensor/jit.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/print.hpp>
#include <gantry/tensor/promote.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

constexpr const char* kAxpy =
    "template <typename T> T axpy(T x, T y, T alpha = 1) { return x + alpha * y; }";
constexpr DType kAll[] = {bool_, u8, i8, i16, i32, i64, f16, bf16, f32, f64};

// Runs every test on the CPU and on a device, with one folder of compiled programs.
class JitTest : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    folder_ = new testing::TemporaryFolder;
    setenv("GANTRY_JIT_CACHE", folder_->path().c_str(), 1);
  }
  static void TearDownTestSuite() { delete folder_; }
  void SetUp() override {
    if (device_.is_cuda()) GANTRY_REQUIRE_DEVICES(1);
    default_generator(device_).manual_seed(7);
  }

  // Values that are exact in every dtype.
  [[nodiscard]] Tensor some(const Shape& shape, DType dtype) const {
    return randint(0, 11, shape, {.dtype = i64, .device = device_}).to(dtype);
  }

  const Device device_ = Device(GetParam());
  static inline testing::TemporaryFolder* folder_ = nullptr;
};

void expect_equal(const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(actual.dtype(), expected.dtype());
  ASSERT_EQ(actual.sizes(), expected.sizes());
  EXPECT_TRUE(actual.equal(expected)) << sub(actual.to(f64), expected.to(f64)).abs().max();
}

TEST_P(JitTest, EqualsAddForAllDTypes) {
  const auto axpy = jit::elementwise(kAxpy);
  for (const DType dtype : kAll) {
    SCOPED_TRACE(std::string(name(dtype)));
    for (const std::int64_t n : {1, 3, 1000, 1027}) {
      const Tensor x = some({n}, dtype);
      const Tensor y = some({n}, dtype);
      expect_equal(axpy(x, y), add(x, y));
      if (dtype != bool_) expect_equal(axpy(x, y, 3), add(x, y, 3));
    }
  }
}

TEST_P(JitTest, PromotesAsBuiltInOperations) {
  const auto plus = jit::elementwise("template <typename T> T plus(T x, T y) { return x + y; }");
  for (const DType a : {bool_, i32, f16, f64}) {
    for (const DType b : {i8, i64, bf16}) {
      SCOPED_TRACE(std::string(name(a)) + " " + std::string(name(b)));
      const Tensor x = some({37}, a);
      const Tensor y = some({37}, b);
      expect_equal(plus(x, y), add(x, y));
    }
  }
  const Tensor x = some({5}, i32);
  expect_equal(plus(x, 2), add(x, 2));
  expect_equal(plus(x, 2.5), add(x, 2.5));
  expect_equal(plus(x.to(f16), 2), add(x.to(f16), 2));
  const Tensor zero_dim = full({}, 3, {.dtype = f64, .device = device_});
  expect_equal(plus(x.to(f32), zero_dim), add(x.to(f32), zero_dim));
  const Tensor on_cpu = full({}, 3, {.dtype = i64});
  expect_equal(plus(x, on_cpu), add(x, on_cpu));
}

TEST_P(JitTest, BroadcastsAndReadsAnyLayout) {
  const auto axpy = jit::elementwise(kAxpy);
  const Tensor matrix = some({12, 20}, f32);
  const Tensor row = some({20}, f32);
  const Tensor column = some({12, 1}, f32);
  const Tensor odd = some({13, 21}, f32).slice(0, 1, 13).slice(1, 1, 21);
  expect_equal(axpy(matrix, row, 2), add(matrix, row, 2));
  expect_equal(axpy(column, row, 2), add(column, row, 2));
  expect_equal(axpy(matrix, odd), add(matrix, odd));
  expect_equal(axpy(matrix.t(), some({20, 12}, f32).zero_()), matrix.t());
  expect_equal(axpy(matrix.slice(1, 0, 20, 3), 1), add(matrix.slice(1, 0, 20, 3), 1));
  const Tensor cube = some({3, 4, 5}, i64).permute({2, 0, 1});
  expect_equal(axpy(cube, some({4}, i64).zero_()), cube);
  expect_equal(axpy(matrix.flatten().slice(0, 1), 2), add(matrix.flatten().slice(0, 1), 2));
}

TEST_P(JitTest, EmptyTensorsNeedNoCompiler) {
  const auto never = jit::elementwise("template <typename T> T never(T x) { return compiled; }");
  const Tensor result = never(empty({0, 4}, {.dtype = f16, .device = device_}));
  EXPECT_EQ(result.sizes(), Shape({0, 4}));
  EXPECT_EQ(result.dtype(), f16);
  EXPECT_EQ(result.device(), device_.is_cpu() ? device_ : Device::cuda(0));
}

TEST_P(JitTest, SeveralOutputsAndBool) {
  const auto split = jit::elementwise(R"(
    // Two helpers, of which the last function is not one.
    template <typename T> T twice(T x) { return x + x; }
    template <class U> inline U thrice(U x) { return twice(x) + x; }

    template <typename T>
    void split(T x, const T& y, T& doubled, bool& is_less, T& tripled) {
      doubled = twice(x);
      is_less = x < y;
      tripled = thrice(x);
    })");
  EXPECT_EQ(split.name(), "split");
  EXPECT_EQ(split.inputs(), 2);
  EXPECT_EQ(split.outputs(), 3);
  for (const DType dtype : {i16, bf16, f64}) {
    const Tensor x = some({7, 9}, dtype);
    const Tensor y = some({9}, dtype);
    const std::vector<Tensor> outs = split.multi(x, y);
    ASSERT_EQ(outs.size(), 3U);
    expect_equal(outs[0], mul(x, 2));
    expect_equal(outs[1], lt(x, y));
    expect_equal(outs[2], mul(x, 3));
  }
  EXPECT_ERROR(split(some({1}, f32), 1), InvalidArgument,
               "jit::elementwise: expected a function with one output, but got 'split' with 3; "
               "call multi()");
  const auto pick = jit::elementwise(
      "template <typename T> T pick(bool condition, T a, T b) { return condition ? a : b; }");
  const Tensor condition = some({40}, i64).gt(5);
  const Tensor a = some({40}, f32);
  expect_equal(pick(condition, a, 7), where(condition, a, 7));
  const auto is_even =
      jit::elementwise("template <typename T> bool is_even(T x) { return x % 2 == 0; }");
  expect_equal(is_even(some({64}, u8).zero_()), ones({64}, {.dtype = bool_, .device = device_}));
}

TEST_P(JitTest, WritesToGivenOutputs) {
  const auto axpy = jit::elementwise(kAxpy);
  const Tensor x = some({50}, f32);
  const Tensor y = some({50}, f32);
  const Tensor expected = add(x, y, 2);
  axpy.into({{x}}, x, y, 2);  // in place
  expect_equal(x, expected);
  const Tensor wide = zeros({50}, {.dtype = f64, .device = device_});
  axpy.into({{wide}}, x, y);
  expect_equal(wide, add(x, y).to(f64));
  const Tensor strided = zeros({50, 2}, {.device = device_}).select(1, 1);
  axpy.into({{strided}}, x, y);
  expect_equal(strided, add(x, y));
  const Tensor ints = zeros({50}, {.dtype = i32, .device = device_});
  EXPECT_ERROR(axpy.into({{ints}}, x, y), DTypeError,
               "result type Float can't be cast to the desired output type Int");
  EXPECT_ERROR(axpy.into({{zeros({49}, {.device = device_})}}, x, y), ShapeError, "output with");
  EXPECT_ERROR(axpy.into({{x.slice(0, 1)}}, x.slice(0, 0, 49), 1), InvalidArgument,
               "refer to a single memory location");
  EXPECT_ERROR(axpy.into({}, x, y), InvalidArgument, "expected 1 outputs of 'axpy', but got 0");
  const auto both =
      jit::elementwise("template <typename T> void both(T x, T& a, T& b) { a = x; b = -x; }");
  const Tensor one = zeros({50}, {.device = device_});
  EXPECT_ERROR(both.into({{one, one}}, x), InvalidArgument, "refer to a single memory location");
}

TEST_P(JitTest, NarrowFloatsComputeInFloat) {
  const auto cubic = jit::elementwise("template <typename T> T cubic(T x) { return x * x * x; }");
  for (const DType dtype : {f16, bf16}) {
    const Tensor x = randn({1000}, {.dtype = f32, .device = device_}).to(dtype);
    const Tensor wide = x.to(f32);
    expect_equal(cubic(x), mul(mul(wide, wide), wide).to(dtype));
  }
}

TEST_P(JitTest, CallsMathematicalFunctions) {
  const auto wave = jit::elementwise(
      "template <typename T> T wave(T x, T y) { return exp(-x * x) + sqrt(abs(y)) * floor(x); }");
  for (const DType dtype : {f32, f64}) {
    const Tensor x = randn({500}, {.dtype = dtype, .device = device_});
    const Tensor y = randn({500}, {.dtype = dtype, .device = device_});
    const Tensor expected = add(exp(neg(mul(x, x))), mul(sqrt(abs(y)), floor(x)));
    EXPECT_TRUE(wave(x, y).allclose(expected, 1e-6, 1e-6));
  }
}

TEST_P(JitTest, ErrorsNameTheOperands) {
  const auto axpy = jit::elementwise(kAxpy);
  const Tensor x = some({3}, f32);
  EXPECT_ERROR(axpy(x), InvalidArgument, "expected 2 to 3 operands of 'axpy', but got 1");
  EXPECT_ERROR(axpy(x, x, 1, 1), InvalidArgument, "expected 2 to 3 operands of 'axpy', but got 4");
  EXPECT_ERROR(axpy(1, 2), InvalidArgument, "expected at least one tensor, but got only numbers");
  EXPECT_ERROR(axpy(x, Tensor()), InvalidArgument, "for argument 'input 1'");
  EXPECT_ERROR(axpy(x, some({2}, f32)), ShapeError, "must match");
  if (device_.is_cuda()) {
    EXPECT_ERROR(axpy(x, ones({3})), DeviceMismatchError, "input 1");
  }
}

TEST_P(JitTest, CompileErrorsShowTheUsersLines) {
  const auto bad = jit::elementwise(
      "// line 1\n"
      "template <typename T>\n"
      "T bad(T x) {\n"
      "  T y = x;\n"
      "  return y + nonsense;\n"
      "}\n");
  const Tensor x = some({3}, f32);
  try {
    (void)bad(x);
    FAIL() << "no error";
  } catch (const jit::CompileError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find("jit::elementwise: failed to compile 'bad' for T = float"), 0U) << text;
    const bool has_line = error.log().find("source:5:") != std::string::npos ||
                          error.log().find("source(5)") != std::string::npos;
    EXPECT_TRUE(has_line) << text;
    EXPECT_NE(error.log().find("nonsense"), std::string::npos) << text;
    EXPECT_NE(error.log().find("return y + nonsense;"), std::string::npos) << text;
  }
  // The next call is as the first, and others work.
  EXPECT_THROW((void)bad(x), InvalidArgument);
  EXPECT_NO_THROW((void)jit::elementwise(kAxpy)(x, x));
}

TEST_P(JitTest, EachProgramIsCompiledOnce) {
  const std::string source =
      "template <typename T> T counted(T x) { return x + T(41); }  // " + std::string(GetParam());
  const auto first = jit::elementwise(source);
  const Tensor x = some({10}, f32);
  const std::int64_t before = jit::stats().compiled;
  for (int i = 0; i < 3; ++i) (void)first(x);
  (void)jit::elementwise(source)(x);  // another object
  EXPECT_EQ(jit::stats().compiled, before + 1);
  (void)first(x.to(f64));
  EXPECT_EQ(jit::stats().compiled, before + 2);
}

TEST_P(JitTest, ThreadsShareOneCompilation) {
  const std::string source =
      "template <typename T> T shared(T x) { return x - T(5); }  // " + std::string(GetParam());
  const auto function = jit::elementwise(source);
  const Tensor x = some({100}, f32);
  if (device_.is_cuda()) synchronize(device_);
  const std::int64_t before = jit::stats().compiled;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { expect_equal(function(x), sub(x, 5)); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(jit::stats().compiled, before + 1);
}

TEST_P(JitTest, IsCapturedInGraphs) {
  if (device_.is_cpu()) return;
  const auto axpy = jit::elementwise(kAxpy);
  const Tensor x = ones({100}, {.device = device_});
  Stream::current(device_).synchronize();
  Graph graph;
  {
    GraphCapture capture(graph);
    axpy.into({{x}}, x, 2);
  }
  for (int i = 0; i < 3; ++i) graph.replay();
  expect_equal(x, full({100}, 7, {.dtype = f32, .device = device_}));
}

INSTANTIATE_TEST_SUITE_P(Devices, JitTest, ::testing::Values("cpu", "cuda:0"),
                         [](const auto& info) {
                           return std::string(info.param) == "cpu" ? "Cpu" : "Device";
                         });

TEST(JitSourceTest, SourcesWithoutAFunctionAreRefused) {
  struct Case {
    const char* source;
    const char* text;
  };
  const Case cases[] = {
      {"", "expected a source with a function template of one type"},
      {"float f(float x) { return x; }", "expected a source with a function template"},
      {"template <typename T> T f(T x);", "expected a source with a function template"},
      {"template <typename T> struct S { T f(T x) { return x; } };", "expected a source with"},
      {"// template <typename T> T f(T x) { return x; }", "expected a source with"},
      {"template <typename T> int f(T x) { return 1; }",
       "expected 'f' to return T, bool or void, "
       "but got 'int'"},
      {"template <typename T> T f(float x) { return x; }",
       "expected parameters like 'T x', 'bool x', 'T& out' or 'bool& out', but got 'float x'"},
      {"template <typename T> T f(T* x) { return *x; }", "expected parameters like"},
      {"template <typename T> T f() { return 1; }",
       "expected 'f' to have 1 to 8 inputs, but got 0"},
      {"template <typename T> T f(T a, T b, T c, T d, T e, T g, T h, T i, T j) { return a; }",
       "expected 'f' to have 1 to 8 inputs, but got 9"},
      {"template <typename T> void f(T x) {}",
       "expected 'f' to return a value or to have outputs like 'T& out', but got neither"},
      {"template <typename T> T f(T x, T& y) { return x; }", "but got both"},
      {"template <typename T> void f(T& y, T x) {}",
       "expected the outputs of 'f' behind its inputs"},
      {"template <typename T> void f(T x = 1, T& y) {}", "to have no default values before its"},
      {"template <typename A, typename B> A f(A x, B y) { return x; }", "of one type"},
  };
  for (const Case& c : cases) {
    EXPECT_ERROR(jit::elementwise(c.source), InvalidArgument, c.text);
  }
}

TEST(JitSourceTest, SignaturesAreRead) {
  const auto f = jit::elementwise(R"(
    template <typename T> struct Pair { T first; T second; };
    /* template <typename T> T no(T x) { return x; } */
    static const char* text = "template <typename T> T no(T x) { return x; }";
    constexpr int kLarge = 1'000'000;
    template <class Number>
    inline Number last(const Number& a, Number b = Number(max(1, 2)), Number c = {3}) {
      return a + b + c;
    }
    template <typename T> T declared(T x);
  )");
  EXPECT_EQ(f.name(), "last");
  EXPECT_EQ(f.inputs(), 3);
  EXPECT_EQ(f.outputs(), 1);
}

}  // namespace
}  // namespace gantry
