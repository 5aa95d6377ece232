// The errors of calls that a capture forbids name the call and its line in the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <regex>
#include <set>
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

// The numbers N of each "stream N of" in a text.
std::set<std::uint64_t> numbered_streams(const std::string& text) {
  static const std::regex stream("stream ([^ ]+) of cuda:0");
  std::set<std::uint64_t> numbers;
  for (std::sregex_iterator it(text.begin(), text.end(), stream), end; it != end; ++it) {
    const std::string number = (*it)[1];
    EXPECT_EQ(number.find_first_not_of("0123456789"), std::string::npos) << text;
    numbers.insert(std::stoull(number));
  }
  return numbers;
}

class StreamErrorsTest : public testing::DeviceTest {
 protected:
  // Calls `call`; its error names the member `name`, the program's line, and streams by their ids.
  void fails(const std::string& name, const std::function<void()>& call) const {
    SCOPED_TRACE(name);
    std::string text = "no error";
    try {
      call();
    } catch (const Error& error) {
      text = error.what();
    }
    EXPECT_THAT(text, HasSubstr("Failed "));
    const std::set<std::uint64_t> known{captured.id(), other.id()};
    EXPECT_THAT(numbered_streams(text), ::testing::Each(::testing::AnyOfArray(known)));
    if (GANTRY_TEST_HAS_SYMBOLS) {
      EXPECT_THAT(text, AllOf(HasSubstr(", in gantry::" + name + " at "),
                              HasSubstr("capture_errors_test.cpp:")));
    }
  }
  // Likewise, each call in a capture of its own, with `first` and `second` recorded in it.
  void fails_in_capture(const std::string& name, const std::function<void()>& call) {
    Graph graph;
    try {
      const GraphCapture capture(graph, {.stream = captured, .mode = CaptureMode::relaxed});
      first.record(captured);
      second.record(captured);
      fails(name, call);
    } catch (const Error&) {  // the capture may end with an error
    }
    synchronize(device);
  }

  const Device device = Device::cuda(0);
  const Stream other = Stream::from_pool(device);
  const Stream captured = Stream::from_pool(device);
  Event first{{.timing = true}};
  Event second{{.timing = true}};
};

TEST_F(StreamErrorsTest, NameTheMemberAndStreamsByTheirIds) {
  Event eager;
  eager.record(other);
  fails_in_capture("Event::elapsed_ms", [&] { static_cast<void>(first.elapsed_ms(second)); });
  fails_in_capture("Event::synchronize", [&] { first.synchronize(); });
  fails_in_capture("Event::query", [&] { static_cast<void>(first.query()); });
  fails_in_capture("Event::wait", [&] { eager.wait(captured); });
  fails_in_capture("Stream::wait", [&] { captured.wait(eager); });
  fails_in_capture("Stream::wait", [&] { captured.wait(other); });
  fails_in_capture("Stream::wait", [&] { Stream::default_stream(device).wait(first); });
  fails_in_capture("Stream::query", [&] { static_cast<void>(captured.query()); });
  fails_in_capture("Stream::synchronize", [&] { captured.synchronize(); });
  fails_in_capture("synchronize", [&] { synchronize(device); });
}

TEST_F(StreamErrorsTest, NameTheMemberInASpoiltCapture) {
  Graph graph;
  graph.capture_begin({.stream = captured, .mode = CaptureMode::relaxed});
  first.record(captured);
  second.record(captured);
  EXPECT_THROW(static_cast<void>(captured.query()), CudaError);
  fails("Event::wait", [&] { first.wait(other); });
  fails("Stream::wait", [&] { other.wait(first); });
  fails("Stream::synchronize", [&] { captured.synchronize(); });
  fails("launch_host_function", [&] { launch_host_function(captured, [] {}); });
  fails("Graph::capture_end", [&] { graph.capture_end(); });
}

TEST_F(StreamErrorsTest, NameTheMemberAfterACapture) {
  Graph graph;
  {
    const GraphCapture capture(graph, {.stream = captured, .mode = CaptureMode::relaxed});
    first.record(captured);
    second.record(captured);
  }
  fails("Event::elapsed_ms", [&] { static_cast<void>(first.elapsed_ms(second)); });
  fails("Event::synchronize", [&] { first.synchronize(); });
  fails("Event::query", [&] { static_cast<void>(first.query()); });
  fails("Event::wait", [&] { first.wait(other); });
  fails("Event::wait", [&] {
    const StreamGuard guard(other);
    first.wait();
  });
  fails("Stream::wait", [&] { other.wait(first); });
}

}  // namespace
}  // namespace gantry
