// Groups of messages over links that a test makes.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/pinned_allocator.hpp>

#include "collectives/host/links/links.hpp"
#include "tests/collectives/host/host_group.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/sanitized.hpp"

namespace gantry {
namespace {

using testing::Bytes;
using testing::HostRank;

constexpr std::int64_t kLarge = 1 << 20;  // more than one frame holds

Descriptor message(CollectiveKind kind, std::int64_t number, int peer) {
  return {.call = number, .count = kLarge, .root = peer, .kind = kind, .dtype = DType::u8};
}

// Announces a large message, and breaks when its receiver awaits the data. As MPI, it may still
// write them then.
class BreakingLinks final : public HostLinks {
 public:
  std::string_view name() const override { return "breaking"; }
  void exchange(std::span<const Outgoing>, std::span<Incoming>) override {}
  void drive(ExchangeHandler& handler) override {
    const std::vector<Incoming> frames = handler.take_receives();
    const HostFrame frame{
        .what = message(CollectiveKind::send, 1, 0), .kind = HostFrame::Kind::message, .number = 1};
    std::memcpy(frames.at(0).buffer.data(), &frame, sizeof frame);
    handler.received(frames[0].rank, sizeof frame);
    awaited = handler.take_receives().at(0).buffer;
    throw PeerLostError("rank 1 died", 1);
  }
  void abort() noexcept override {}
  void leave() noexcept override {}
  // The transport itself may free its memory.
  bool release_memory() noexcept override { return std::exchange(is_asked_, true); }

  std::span<std::byte> awaited;

 private:
  bool is_asked_ = false;
};

class HostExchangeTest : public testing::DeviceTest {};

TEST_F(HostExchangeTest, MemoryThatLinksMayWriteIsNotUsedAgain) {
  if (testing::kIsSanitized) GTEST_SKIP() << "the memory is never freed, which is a leak";
  const Device device = Device::cuda(0);
  const Stream stream = Stream::from_pool(device);
  const Tensor output = empty({kLarge}, {.dtype = DType::u8, .device = device});
  const auto links = std::make_shared<BreakingLinks>();
  HostTransport transport({0, 2, device}, links);
  const ResolvedCall call(
      {.what = message(CollectiveKind::recv, 1, 1), .in = nullptr, .out = output.data()}, 2);
  EXPECT_THROW(transport.run_together({&call, 1}, stream), PeerLostError);
  ASSERT_GE(links->awaited.size(), static_cast<std::size_t>(kLarge));
  std::vector<memory::Buffer> later;
  for (int i = 0; i < 8; ++i) {
    later.push_back(memory::pinned(links->awaited.size()));
    const auto* const begin = static_cast<const std::byte*>(later.back().data());
    EXPECT_TRUE(begin + later.back().bytes() <= links->awaited.data() ||
                begin >= links->awaited.data() + links->awaited.size());
  }
}

// Counts the exchanges of other links.
class CountingLinks final : public HostLinks {
 public:
  explicit CountingLinks(std::unique_ptr<HostLinks> links) : links_(std::move(links)) {}

  std::string_view name() const override { return links_->name(); }
  void exchange(std::span<const Outgoing> sends, std::span<Incoming> receives) override {
    ++exchanges;
    links_->exchange(sends, receives);
  }
  void drive(ExchangeHandler& handler) override { links_->drive(handler); }
  bool has_message(int rank) noexcept override { return links_->has_message(rank); }
  void abort() noexcept override { links_->abort(); }
  void leave() noexcept override { links_->leave(); }
  bool release_memory() noexcept override { return links_->release_memory(); }

  int exchanges = 0;

 private:
  std::unique_ptr<HostLinks> links_;
};

// A collective behind a message of which the sender does not know that it was taken needs more.
TEST_F(HostExchangeTest, ACollectiveBehindALargeMessageOfAGroupIsOneExchange) {
  testing::host_ranks(2, [](HostRank& self) {
    const auto links = std::make_shared<CountingLinks>(
        make_host_links(*self.bootstrap, {.rank = self.rank, .size = self.size}));
    HostTransport transport({self.rank, self.size, self.device}, links);
    const Tensor tensor = self.on_device(Bytes(kLarge, std::byte{1}));
    const bool sends = self.rank == 0;
    const ResolvedCall call(
        {.what = message(sends ? CollectiveKind::send : CollectiveKind::recv, 1, 1 - self.rank),
         .in = sends ? tensor.data() : nullptr,
         .out = sends ? nullptr : tensor.data()},
        2);
    transport.run_together({&call, 1}, self.stream);
    EXPECT_EQ(links->exchanges, 0);
    const ResolvedCall barrier({.what = {.call = 1, .kind = CollectiveKind::barrier}}, 2);
    transport.run(barrier, self.stream);
    EXPECT_EQ(links->exchanges, 1);
  });
}

}  // namespace
}  // namespace gantry
