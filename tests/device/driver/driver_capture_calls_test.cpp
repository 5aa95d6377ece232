// Which calls of the driver a capture allows: every call that does not conflict with the capture
// itself, in every mode, on every thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/device/driver/driver_fixture.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

using ::testing::AnyOf;
using testing::cuda_error_of;
using testing::DeviceBytes;
using testing::PinnedBytes;
using testing::TestEvent;
using testing::TestStream;

constexpr int kCaptureUnsupported = 900;
constexpr int kCaptureInvalidated = 901;
constexpr int kCaptureIsolation = 905;
constexpr int kCaptureImplicit = 906;
constexpr int kCapturedEvent = 907;
constexpr std::size_t kBytes = 4096;

constexpr CaptureMode kModes[] = {CaptureMode::global, CaptureMode::thread_local_,
                                  CaptureMode::relaxed};

// Ordinary host memory that can be page-locked.
class Page {
 public:
  [[nodiscard]] void* data() { return bytes_.data(); }

 private:
  alignas(kBytes) std::array<std::byte, kBytes> bytes_{};
};

struct Call {
  std::string name;
  std::function<void()> make;
};

class DriverCaptureCallsTest : public testing::DriverTest {
 protected:
  DriverCaptureCallsTest() {
    driver().begin_capture(stream_, CaptureMode::relaxed);
    driver().fill(device_.data(), 1, kBytes, stream_);
    graph_ = driver().end_capture(stream_);
    driver().record_event(recorded_, outside_);
    driver().record_event(timed_, outside_);
    driver().synchronize_stream(outside_);
  }
  ~DriverCaptureCallsTest() override { driver().destroy_graph(graph_); }

  // Calls that touch nothing of the capture.
  [[nodiscard]] std::vector<Call> allowed() {
    std::vector<Call> calls = {
        {"device_count", [] { (void)driver().device_count(); }},
        {"properties", [] { (void)driver().properties(0); }},
        {"memory_info", [] { (void)driver().memory_info(0); }},
        {"current_device", [] { driver().set_device(driver().current_device()); }},
        {"fault_record", [] { (void)driver().fault_record(0); }},
        {"allocate", [] { driver().deallocate(0, driver().allocate(0, kBytes)); }},
        {"allocate_pinned", [] { driver().deallocate_pinned(driver().allocate_pinned(kBytes)); }},
        {"register_host",
         [&] {
           if (driver().register_host(page_.data(), kBytes)) {
             driver().unregister_host(page_.data());
           }
         }},
        {"pointer_info", [&] { (void)driver().pointer_info(device_.data()); }},
        {"export_memory", [&] { (void)driver().export_memory(device_.data()); }},
        {"copy", [&] { driver().copy(device_.data(), pinned_.data(), kBytes, outside_); }},
        {"copy_batch",
         [&] {
           auto* const data = static_cast<std::byte*>(device_.data());
           driver().copy_batch(
               std::vector<CopyRegion>{{data, data + 512, 64}, {data, data + 1024, 64}}, outside_);
         }},
        {"fill", [&] { driver().fill(device_.data(), 1, kBytes, outside_); }},
        {"priority_range", [] { (void)driver().priority_range(0); }},
        {"create_stream", [] { driver().destroy_stream(driver().create_stream(0, 0)); }},
        {"stream_identity",
         [&] {
           (void)driver().stream_identity(outside_);
           (void)driver().stream_identity(stream_);
         }},
        {"query_stream", [&] { (void)driver().query_stream(outside_); }},
        {"synchronize_stream", [&] { driver().synchronize_stream(outside_); }},
        {"wait_event", [&] { driver().wait_event(outside_, recorded_); }},
        {"launch_host_function",
         [&] {
           driver().launch_host_function(
               outside_, [](void*) {}, nullptr);
         }},
        {"create_event",
         [] { driver().destroy_event(driver().create_event(0, {.timing = true})); }},
        {"record_event",
         [&] {
           const TestEvent event(0);
           driver().record_event(event, outside_);
         }},
        {"query_event", [&] { EXPECT_TRUE(driver().query_event(recorded_)); }},
        {"event_reached", [&] { EXPECT_TRUE(driver().event_reached(recorded_)); }},
        {"synchronize_event", [&] { driver().synchronize_event(recorded_); }},
        {"export_event", [&] { (void)driver().export_event(shared_); }},
        {"wait_for_word",
         [&] {
           const auto* const word = reinterpret_cast<const std::uint32_t*>(pinned_.data());
           driver().wait_for_word(outside_, word, *word);
         }},
        {"elapsed_ms", [&] { (void)driver().elapsed_ms(timed_, timed_); }},
        {"can_access_peer", [] { (void)driver().can_access_peer(0, driver().device_count() - 1); }},
        {"has_peer_atomics",
         [] { (void)driver().has_peer_atomics(0, driver().device_count() - 1); }},
        {"begin_capture",
         [&] {
           const TestStream other(0);
           driver().begin_capture(other, CaptureMode::relaxed);
           driver().destroy_graph(driver().end_capture(other));
         }},
        {"is_capturing", [&] { EXPECT_FALSE(driver().is_capturing(outside_)); }},
        {"capture_id", [&] { EXPECT_EQ(driver().capture_id(outside_), 0U); }},
        {"supports_conditions", [] { (void)driver().supports_conditions(0); }},
        {"launch_graph", [&] { driver().launch_graph(graph_, outside_); }},
        {"update_graph", [&] { EXPECT_TRUE(driver().update_graph(graph_, graph_)); }},
        {"dump_graph",
         [&] { driver().dump_graph(graph_, (folder_.path() / "graph.dot").string()); }},
    };
    add_pool_calls(calls);
    add_chunk_calls(calls);
    add_peer_calls(calls);
    return calls;
  }

  void add_pool_calls(std::vector<Call>& calls) {
    if (!driver().supports_memory_pools(0)) return;
    calls.push_back(
        {"allocate_async",
         [&] { driver().deallocate_async(driver().allocate_async(outside_, kBytes), outside_); }});
    calls.push_back({"trim_pool", [] { driver().trim_pool(0, 0); }});
    calls.push_back({"pool_memory", [] { (void)driver().pool_memory(0); }});
    calls.push_back({"reset_pool_peaks", [] { driver().reset_pool_peaks(0); }});
  }

  static void add_chunk_calls(std::vector<Call>& calls) {
    if (!driver().supports_virtual_memory(0)) return;
    calls.push_back({"chunks", [] {
                       const std::size_t bytes = driver().chunk_granularity(0);
                       void* const address = driver().reserve_address(bytes, bytes);
                       const NativeChunk chunk = driver().create_chunk(0, bytes);
                       driver().map_chunk(address, bytes, chunk);
                       driver().set_access(address, bytes, std::vector<int>{0});
                       const UniqueFd exported = driver().export_chunk(chunk);
                       driver().release_chunk(driver().import_chunk(0, exported.get(), bytes));
                       driver().unmap(address, bytes);
                       driver().release_chunk(chunk);
                       driver().free_address(address, bytes);
                     }});
  }

  static void add_peer_calls(std::vector<Call>& calls) {
    const int last = driver().device_count() - 1;
    for (const auto& [from, to] : {std::pair(0, last), std::pair(last, 0)}) {
      if (from == to || !driver().can_access_peer(from, to)) continue;
      calls.push_back(
          {"enable_peer_access", [from, to] { driver().enable_peer_access(from, to); }});
      calls.push_back({"copy_peer", [from, to] {
                         const DeviceBytes source(from, kBytes);
                         const DeviceBytes target(to, kBytes);
                         const TestStream stream(from);
                         driver().copy_peer(target.data(), to, source.data(), from, kBytes, stream);
                         driver().synchronize_stream(stream);
                       }});
    }
  }

  static void on_thread(bool is_other, const std::function<void()>& call) {
    if (!is_other) return call();
    std::thread(call).join();
  }

  const TestStream stream_{0};   // captured
  const TestStream outside_{0};  // takes no part
  const TestEvent recorded_{0};  // outside of captures
  const TestEvent timed_{0, {.timing = true}};
  const TestEvent shared_{0, {.interprocess = true}};
  const DeviceBytes device_{0, kBytes};
  const PinnedBytes pinned_{kBytes};
  Page page_;
  const testing::TemporaryFolder folder_;
  NativeGraph graph_ = nullptr;
};

TEST_F(DriverCaptureCallsTest, CallsBesideTheCaptureAreAllowedInEveryMode) {
  for (const CaptureMode mode : kModes) {
    for (const bool is_other : {false, true}) {
      for (const Call& call : allowed()) {
        SCOPED_TRACE(call.name + " in mode " + std::to_string(static_cast<int>(mode)) +
                     (is_other ? " on another thread" : ""));
        driver().begin_capture(stream_, mode);
        driver().fill(device_.data(), 1, kBytes, stream_);
        EXPECT_NO_THROW(
            on_thread(is_other, [&] { EXPECT_EQ(cuda_error_of([&] { call.make(); }), 0); }));
        NativeGraph graph = nullptr;
        EXPECT_EQ(cuda_error_of([&] { graph = driver().end_capture(stream_); }), 0);
        driver().destroy_graph(graph);
      }
    }
  }
  driver().synchronize_device(0);
}

TEST_F(DriverCaptureCallsTest, CallsThatConflictWithTheCaptureSpoilItInEveryMode) {
  const TestEvent captured(0);
  const NativeStream legacy{.device = 0, .handle = nullptr};
  struct Refused {
    std::string name;
    std::function<void()> make;
    int error;
    int or_error = error;  ///< CUDA's documentation leaves open which
  };
  const Refused calls[] = {
      {"query_stream", [&] { (void)driver().query_stream(stream_); }, kCaptureUnsupported},
      {"synchronize_stream", [&] { driver().synchronize_stream(stream_); }, kCaptureUnsupported},
      {"synchronize_device", [&] { driver().synchronize_device(0); }, kCaptureUnsupported},
      {"query_event", [&] { (void)driver().query_event(captured); }, kCapturedEvent},
      {"synchronize_event", [&] { driver().synchronize_event(captured); }, kCapturedEvent},
      {"wait_event outside", [&] { driver().wait_event(stream_, recorded_); }, kCaptureIsolation},
      {"wait_event of the default stream", [&] { driver().wait_event(legacy, captured); },
       kCaptureUnsupported, kCaptureImplicit},
  };
  for (const CaptureMode mode : kModes) {
    for (const bool is_other : {false, true}) {
      for (const Refused& call : calls) {
        SCOPED_TRACE(call.name + " in mode " + std::to_string(static_cast<int>(mode)) +
                     (is_other ? " on another thread" : ""));
        driver().begin_capture(stream_, mode);
        driver().record_event(captured, stream_);
        on_thread(is_other, [&] {
          EXPECT_THAT(cuda_error_of([&] { call.make(); }), AnyOf(call.error, call.or_error));
        });
        EXPECT_TRUE(driver().is_capturing(stream_));
        EXPECT_EQ(cuda_error_of([&] { driver().destroy_graph(driver().end_capture(stream_)); }),
                  kCaptureInvalidated);
        EXPECT_FALSE(driver().is_capturing(stream_));
      }
    }
  }
}

}  // namespace
}  // namespace gantry
