// The thread that serves importers, and importers that say nothing or hear nothing.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <span>
#include <vector>

#include "core/processes/process_stamp.hpp"
#include "ipc/exporter.hpp"
#include "ipc/socket.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/eventually.hpp"

namespace gantry::memory {
namespace {

class IpcServiceTest : public gantry::testing::DeviceTest {
 protected:
  [[nodiscard]] UniqueFd connect() const {
    UniqueFd socket;
    // The queue of connections may be full for a moment.
    EXPECT_TRUE(gantry::testing::eventually([&] {
      socket = connect_ipc(ipc_socket_name(this_process(), nonce_));
      return static_cast<bool>(socket);
    }));
    return socket;
  }
  void greet(const UniqueFd& socket) const {
    IpcRequest request;
    request.nonce = nonce_;
    request.process = this_process();
    EXPECT_EQ(send_packet(socket, std::as_bytes(std::span(&request, 1))), 0);
  }
  // True if the service has taken the greeting.
  [[nodiscard]] static bool is_accepted(const UniqueFd& socket) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    EXPECT_TRUE(wait_readable(socket, -1, deadline));
    const auto packet = receive_packet(socket, sizeof(IpcReply));
    IpcReply reply;
    if (!packet || packet->bytes.size() != sizeof reply) return false;
    std::memcpy(&reply, packet->bytes.data(), sizeof reply);
    return reply.is_ok != 0;
  }
  // Waits until the service has closed the connection.
  [[nodiscard]] static bool is_closed(const UniqueFd& socket) {
    pollfd poll{socket.get(), 0, 0};
    return ::poll(&poll, 1, 60'000) == 1 && (poll.revents & POLLHUP) != 0;
  }

 private:
  const std::uint64_t nonce_ = start_ipc_service();
};

TEST_F(IpcServiceTest, OfTooManySilentConnectionsTheOldestIsClosed) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i <= kMostIpcGuests; ++i) silent.push_back(connect());
  std::vector<pollfd> polls;
  for (const UniqueFd& socket : silent) polls.push_back({socket.get(), 0, 0});
  ASSERT_EQ(::poll(polls.data(), polls.size(), 60'000), 1) << "one of them is closed";
  ASSERT_NE(polls.front().revents & POLLHUP, 0);
  for (std::size_t i = 1; i < silent.size(); ++i) {
    greet(silent[i]);
    EXPECT_TRUE(is_accepted(silent[i])) << i;
  }
}

TEST_F(IpcServiceTest, AnImporterThatCannotTakeItsTablesIsDisconnected) {
  const UniqueFd socket = connect();
  ASSERT_EQ(shutdown(socket.get(), SHUT_RD), 0);
  greet(socket);
  EXPECT_TRUE(is_closed(socket));
}

}  // namespace
}  // namespace gantry::memory
