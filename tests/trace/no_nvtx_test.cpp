#include <gtest/gtest.h>

#include "streams/profiling/nvtx_calls.hpp"

namespace gantry::nvtx {
namespace {

TEST(NoNvtxTest, CallsDoNothingAndTheReasonNamesTheHeader) {
  call_mark("a");
  call_push("b");
  call_pop();
  EXPECT_EQ(call_start("c"), 0U);
  call_end(0);
  EXPECT_EQ(why_not_loaded("profiler.so"),
            "this build of gantry has no NVTX; build it where nvtx3/nvToolsExt.h is installed");
}

}  // namespace
}  // namespace gantry::nvtx
