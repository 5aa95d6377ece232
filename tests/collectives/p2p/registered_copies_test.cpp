// Operations on registered memory whose data copy engines send: what runs beside an operation's
// stream.
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;

class RegisteredCopiesTest : public testing::LocalGroupTest {};

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

TEST_F(RegisteredCopiesTest, CopiesOfACaptureAndOfCallsBesideItDoNotMeet) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_ALGO", "copy", 1);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const TensorOptions options = {.dtype = f32, .device = group.device()};
    const Tensor mine = full({4096}, group.rank() + 1, options);
    const Tensor captured = zeros({8192}, options);
    const Tensor called = zeros({8192}, options);
    group.register_memory(captured);
    group.register_memory(called);
    synchronize(group.device());
    const Stream stream = Stream::from_pool(group.device());
    driver().begin_capture(stream.native(), CaptureMode::relaxed);
    {
      const StreamGuard guard(stream);
      group.all_gather(captured, mine);
    }
    group.all_gather(called, mine);
    const NativeGraph graph = driver().end_capture(stream.native());
    require(called.sum().item<float>() == 3 * 4096, "a call beside a capture went wrong");
    require(captured.sum().item<float>() == 0, "a captured call has run");
    driver().launch_graph(graph, stream.native());
    synchronize(group.device());
    require(captured.sum().item<float>() == 3 * 4096, "a captured call went wrong");
    driver().destroy_graph(graph);
  });
}

TEST_F(RegisteredCopiesTest, CapturesAtOnceDoNotMeet) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_ALGO", "copy", 1);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    constexpr int kCaptures = 3;
    const TensorOptions options = {.dtype = f32, .device = group.device()};
    const Tensor mine = full({4096}, group.rank() + 1, options);
    std::vector<Tensor> joined;
    for (int i = 0; i < kCaptures; ++i) {
      joined.push_back(zeros({8192}, options));
      group.register_memory(joined.back());
    }
    synchronize(group.device());
    // Twice: what a capture used serves later ones when it is over.
    for (int round = 0; round < 2; ++round) {
      std::vector<Stream> streams;
      for (const Tensor& tensor : joined) {
        tensor.zero_();
        streams.push_back(Stream::from_pool(group.device()));
      }
      synchronize(group.device());
      for (const Stream& stream : streams) {
        driver().begin_capture(stream.native(), CaptureMode::relaxed);
      }
      // In turn, twice in each.
      for (int i = 0; i < 2 * kCaptures; ++i) {
        const auto at = static_cast<std::size_t>(i % kCaptures);
        const StreamGuard guard(streams[at]);
        group.all_gather(joined[at], mine);
      }
      std::vector<NativeGraph> graphs;
      for (const Stream& stream : streams) {
        graphs.push_back(driver().end_capture(stream.native()));
      }
      for (const NativeGraph graph : graphs) driver().launch_graph(graph, streams[0].native());
      streams[0].synchronize();
      for (const Tensor& tensor : joined) {
        require(tensor.sum().item<float>() == 3 * 4096, "a captured call went wrong");
      }
      for (const NativeGraph graph : graphs) driver().destroy_graph(graph);
      group.host_barrier();
    }
  });
}

TEST_F(RegisteredCopiesTest, ACallThatFailsWaitsForTheCopyBeside) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_ALGO", "copy", 1);
  testing::FaultDriver faults;
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    // The copies' memory belongs to the stream which is to wait for them.
    const StreamGuard guard(Stream::from_pool(group.device()));
    const TensorOptions options = {.dtype = u8, .device = group.device()};
    const Tensor joined = zeros({2048}, options);
    const Tensor mine = ones({1024}, options);
    group.register_memory(joined);
    synchronize(group.device());
    group.host_barrier();
    if (group.rank() != 0) return;
    faults.reset_counts();
    faults.fail_on("copy_batch", 1);
    bool failed = false;
    try {
      group.all_gather(joined, mine);
    } catch (const CudaError&) {
      failed = true;
    }
    require(failed, "a batch that failed was not told");
    // By the stream beside, and for it.
    require(faults.calls("wait_event") == 2, "a copy may go on behind the stream of its call");
  });
}

}  // namespace
}  // namespace gantry
