// An importer's connection to an exporter, of which this process plays the other end.
#include "ipc/peer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>

#include "core/processes/process_stamp.hpp"
#include "ipc/handle.hpp"
#include "ipc/lifetime.hpp"
#include "ipc/socket.hpp"
#include "ipc/table.hpp"
#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {
namespace {

constexpr std::uint64_t kNonce = 0x4321;
constexpr std::uint32_t kSlot = 3;
constexpr std::uint64_t kGeneration = 7;

// An exporter whose replies the test gives.
class PlayedExporter {
 public:
  PlayedExporter() : listener_(listen_ipc(ipc_socket_name(this_process(), kNonce))) {}

  [[nodiscard]] static IpcHandleFields handle() {
    IpcHandleFields fields;
    fields.exporter = this_process_scope();
    fields.nonce = kNonce;
    return fields;
  }
  // Accepts a connection that `connect` makes, and gives it the tables.
  std::shared_ptr<IpcPeer> accept(const std::function<std::shared_ptr<IpcPeer>()>& connect) {
    std::thread replies([this] {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      EXPECT_TRUE(wait_readable(listener_, -1, deadline));
      socket = accept_ipc(listener_);
      if (!socket) return;  // there is a connection already
      EXPECT_TRUE(wait_readable(socket, -1, deadline));
      const std::optional<IpcRequest> request = receive();
      IpcReply reply;
      reply.id = request.value_or(IpcRequest()).id;
      reply.is_ok = 1;
      const int tables[] = {slots.descriptor().get(), references.descriptor().get()};
      EXPECT_EQ(send_packet(socket, std::as_bytes(std::span(&reply, 1)), tables), 0);
    });
    std::shared_ptr<IpcPeer> peer = connect();
    replies.join();
    return peer;
  }
  // The request that waits for the exporter; none if there is none.
  [[nodiscard]] std::optional<IpcRequest> receive() const {
    const auto packet = receive_packet(socket, sizeof(IpcRequest));
    IpcRequest request;
    if (!packet || packet->bytes.size() != sizeof request) return std::nullopt;
    std::memcpy(&request, packet->bytes.data(), sizeof request);
    return request;
  }

  const SlotTable slots;
  const ReferenceTable references;
  UniqueFd socket;  // of the last connection

 private:
  const UniqueFd listener_;
};

class IpcPeerTest : public gantry::testing::DeviceTest {};

TEST_F(IpcPeerTest, ALostConnectionIsMadeAgain) {
  PlayedExporter exporter;
  const auto connect = [] { return IpcPeer::of(PlayedExporter::handle()); };
  const std::shared_ptr<IpcPeer> first = exporter.accept(connect);
  EXPECT_EQ(connect(), first);
  exporter.socket.reset();
  const std::shared_ptr<IpcPeer> second = exporter.accept(connect);
  EXPECT_NE(second, first);
  EXPECT_EQ(connect(), second);
}

// The exporter may have seen the reference for a moment, so that the block is in limbo.
TEST_F(IpcPeerTest, TheExporterHearsOfTheLastReferenceToABlockInLimboAndOfNoOther) {
  PlayedExporter exporter;
  const std::shared_ptr<IpcPeer> peer =
      exporter.accept([] { return std::make_shared<IpcPeer>(PlayedExporter::handle()); });
  const auto expect_released = [&](bool is_told) {
    EXPECT_EQ(exporter.references[kSlot].load(), 0u);
    const std::optional<IpcRequest> request = exporter.receive();
    ASSERT_EQ(request.has_value(), is_told);
    if (!is_told) return;
    EXPECT_EQ(request->kind, IpcRequest::Kind::released);
    EXPECT_EQ(request->slot, kSlot);
  };
  const auto set = [&](bool is_open, bool in_limbo) {
    exporter.slots[kSlot].store(
        SlotState{.generation = kGeneration, .is_open = is_open, .in_limbo = in_limbo}.word());
  };
  set(false, false);
  EXPECT_FALSE(peer->acquire(kSlot, kGeneration));
  expect_released(false);
  set(false, true);
  EXPECT_FALSE(peer->acquire(kSlot, kGeneration));
  expect_released(true);
  set(true, false);
  EXPECT_FALSE(peer->acquire(kSlot, kGeneration - 1));
  expect_released(false);
  for (const bool in_limbo : {false, true}) {
    set(true, false);
    EXPECT_TRUE(peer->acquire(kSlot, kGeneration));
    EXPECT_TRUE(peer->acquire(kSlot, kGeneration));
    set(true, in_limbo);
    peer->release(kSlot);
    EXPECT_FALSE(exporter.receive()) << "one reference is left";
    peer->release(kSlot);
    expect_released(in_limbo);
  }
}

}  // namespace
}  // namespace gantry::memory
