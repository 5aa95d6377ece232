// The errors of calls that a capture forbids name the call and its line in the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/support/device_fixture.hpp"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

struct ForbiddenCall {
  const char* name;  ///< of gantry's function, as the text says it
  std::function<void(const Tensor& x)> call;
};

class CaptureErrorsTest : public testing::DeviceTest {};

TEST_F(CaptureErrorsTest, NameTheCallAndItsLine) {
  const Device device = Device::cuda(0);
  const Tensor x = arange(8, device).to(f32);
  const Tensor mask = x.gt(3);
  const Tensor whole = arange(8, device);
  const Tensor on_host = zeros({8}, f32);
  static_cast<void>(x.sum().item<float>());  // what is made at a first call is there
  synchronize(device);
  const ForbiddenCall calls[] = {
      {"item", [](const Tensor& t) { static_cast<void>(t.select(0, 0).item<float>()); }},
      {"to_host", [](const Tensor& t) { static_cast<void>(t.to_vector<float>()); }},
      {"nonzero", [](const Tensor& t) { static_cast<void>(nonzero(t)); }},
      {"index", [&](const Tensor& t) { static_cast<void>(t.index({mask})); }},
      {"equal", [](const Tensor& t) { static_cast<void>(equal(t, t.add(1))); }},
      {"operator<<",
       [](const Tensor& t) {
         std::ostringstream out;
         out << t;
       }},
      {"copy_", [&](const Tensor& t) { Tensor(t).copy_(on_host); }},
      {"cpu", [](const Tensor& t) { static_cast<void>(t.cpu()); }},
      {"tensor",
       [&](const Tensor&) {
         static_cast<void>(tensor({1.0F, 2.0F}, device));
       }},
      {"unique", [](const Tensor& t) { static_cast<void>(unique(t)); }},
      {"bincount", [&](const Tensor&) { static_cast<void>(bincount(whole)); }},
      {"synchronize", [&](const Tensor&) { Stream::current(device).synchronize(); }},
  };
  for (const ForbiddenCall& forbidden : calls) {
    SCOPED_TRACE(forbidden.name);
    Graph graph;
    std::string text;
    try {
      const GraphCapture capture(graph, {.mode = CaptureMode::relaxed});
      try {
        forbidden.call(x);
      } catch (const CudaError& error) {
        text = error.what();
        EXPECT_EQ(error.code(), 900);
        throw;
      }
    } catch (const Error&) {  // the capture ends with an error, too
    }
    EXPECT_THAT(text, HasSubstr("operation not permitted when stream is capturing"));
    EXPECT_THAT(text, HasSubstr("; make this call before or after the capture"));
    if (GANTRY_TEST_HAS_SYMBOLS) {
      EXPECT_THAT(text, AllOf(HasSubstr(", in gantry::"), HasSubstr(forbidden.name),
                              HasSubstr(" at "), HasSubstr("capture_errors_test.cpp:")));
    }
    synchronize(device);
  }
}

}  // namespace
}  // namespace gantry
