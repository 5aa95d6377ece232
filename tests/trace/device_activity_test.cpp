// What CUPTI reports becomes events with arrows. A stand-in, which its own header declares, has its
// place: the records lie as in the header, and no GPU is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <initializer_list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/trace_log.hpp"
#include "device/drivers/profiling.hpp"
#include "kernels/trace/trace_file.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/trace/cupti_stand_in.hpp"
#include "tests/trace/trace_rules.hpp"

namespace gantry::testing {
namespace {

using ::testing::UnorderedElementsAre;

class DeviceActivityTest : public ::testing::Test {
 protected:
  // Records `body`, and returns the arrows of the file.
  template <class Body>
  std::vector<TracedArrow> record(const Body& body) {
    trace::TraceOrigin origin;
    origin.start_ns = trace::now_ns();
    EXPECT_TRUE(trace::TraceLog::instance().begin(1000));
    EXPECT_EQ(start_device_activity(), "");
    body();
    stop_device_activity();
    trace::write_trace(file, origin, trace::TraceLog::instance().end());
    return expect_rules(file);
  }
  // A call of gantry that makes calls of CUDA.
  static void op(const char* name, std::initializer_list<StandInCall> calls) {
    trace::TraceEvent event{.name = name,
                            .category = "op",
                            .track = trace::this_thread_track(),
                            .begin_ns = trace::now_ns()};
    for (const StandInCall call : calls) cupti_stand_in_call(call);
    event.duration_ns = trace::now_ns() - event.begin_ns;
    trace::TraceLog::instance().add(std::move(event));
  }

  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "trace.json";
};

TEST_F(DeviceActivityTest, WorkHasAnArrowFromTheCallThatSubmittedIt) {
  const auto arrows = record([] {
    op("add", {StandInCall::other, StandInCall::launch});
    op("to", {StandInCall::copy});
    op("compiled_op", {StandInCall::driver_launch, StandInCall::fill});
    std::thread([] { op("copy", {StandInCall::peer_copy}); }).join();
  });
  EXPECT_THAT(arrows, UnorderedElementsAre(TracedArrow{"add", "a_kernel"},
                                           TracedArrow{"to", "memcpy host to device"},
                                           TracedArrow{"compiled_op", "compiled"},
                                           TracedArrow{"compiled_op", "memset"},
                                           TracedArrow{"copy", "memcpy peer to peer"}));
}

TEST_F(DeviceActivityTest, WorkOfOtherCallsHasNoArrow) {
  const auto arrows = record([] {
    op("add", {StandInCall::launch});
    cupti_stand_in_call(StandInCall::launch);
  });
  EXPECT_THAT(arrows, UnorderedElementsAre(TracedArrow{"add", "a_kernel"}));
  EXPECT_EQ(count_device_events(traced_events(file)), 2u);
}

TEST_F(DeviceActivityTest, NothingIsReportedBehindTheEnd) {
  record([] {
    op("add", {StandInCall::launch});
    EXPECT_GT(cupti_stand_in_functions(), 0);
    EXPECT_TRUE(cupti_stand_in_records(10));
  });
  EXPECT_EQ(cupti_stand_in_functions(), 0);
  EXPECT_FALSE(cupti_stand_in_records(10));
}

}  // namespace
}  // namespace gantry::testing
