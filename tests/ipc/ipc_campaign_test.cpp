// Hostile conversations with exporters, and changed packets between exporters and importers.
// GANTRY_TEST_ROUNDS makes them more, GANTRY_TEST_SEED others.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gantry/ipc/ipc.hpp>

#include "ipc/exporter.hpp"
#include "ipc/handle.hpp"
#include "ipc/lifetime.hpp"
#include "ipc/socket.hpp"
#include "ipc/table.hpp"
#include "tests/ipc/ipc_text.hpp"
#include "tests/ipc/ipc_worker_process.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/descriptor_limit.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/hostile_peer.hpp"
#include "tests/support/sanitized.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::campaign_rounds;
using gantry::testing::campaign_seed;
using gantry::testing::count_descriptors;
using gantry::testing::eventually;
using gantry::testing::from_text;
using gantry::testing::imported;
using gantry::testing::IpcWorker;
using gantry::testing::mutated;
using gantry::testing::Random;
using gantry::testing::random_bytes;
using gantry::testing::to_text;

constexpr std::size_t kBytes = 4096;
constexpr std::size_t kChunkBytes = std::size_t{2} << 20;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
template <class Packet>
std::string text_of(const Packet& packet) {
  return {reinterpret_cast<const char*>(&packet), sizeof packet};
}

bool await(const UniqueFd& socket, int milliseconds) {
  return wait_readable(socket, -1,
                       std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds));
}

std::uint64_t any_number(Random& random) {
  switch (random() % 6) {
    case 0:
      return 0;
    case 1:
      return random() % 4;
    case 2:
      return std::uint64_t{1} << (random() % 64);
    case 3:
      return UINT64_MAX - random() % 4;
    default:
      return std::uint64_t{random()} << 32 | random();
  }
}

std::vector<int> some_descriptors(Random& random) {
  static const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return std::vector<int>(random() % 4, null);
}

// A process that exports, an importer, and what the socket of the first one is told by others.
class IpcCampaignTest : public gantry::testing::HeapTest {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    HeapTest::SetUp();
    exporter_ = std::make_unique<IpcWorker>("heap", 0);
    importer_ = std::make_unique<IpcWorker>("heap", 1);
    handle_ = exporter_->export_blocks(1, kBytes, 7).at(0);
    fields_ = decode(from_text(handle_));
  }
  void expect_undisturbed() {
    EXPECT_EQ(importer_->import_blocks({handle_}), imported({7}));
    EXPECT_EQ(importer_->drop_imports().status, "ok");
    EXPECT_EQ(exporter_->collect().status, "ok");
  }
  [[nodiscard]] UniqueFd connect() const {
    for (;;) {
      UniqueFd socket = connect_ipc(ipc_socket_name(fields_.exporter.process, fields_.nonce));
      if (socket || errno != EAGAIN) return socket;
      ::poll(nullptr, 0, 1);  // its queue is full
    }
  }
  [[nodiscard]] UniqueFd connect_as_importer() const {
    UniqueFd socket = connect();
    EXPECT_EQ(send_packet(socket, bytes_of(text_of(handshake()))), 0);
    EXPECT_TRUE(await(socket, 60'000));
    static_cast<void>(receive_packet(socket, sizeof(IpcReply)));
    return socket;
  }
  [[nodiscard]] IpcRequest handshake() const {
    IpcRequest request;
    request.nonce = fields_.nonce;
    request.process = this_process();
    return request;
  }
  // A request with fields of any value.
  [[nodiscard]] std::string request(Random& random) const {
    IpcRequest request = handshake();
    request.kind = static_cast<IpcRequest::Kind>(random() % 4);
    request.id = any_number(random);
    request.slot =
        static_cast<std::uint32_t>(random() % 2 == 0 ? fields_.slot : any_number(random));
    request.first = static_cast<std::uint32_t>(any_number(random));
    request.generation = random() % 2 == 0 ? fields_.generation : any_number(random);
    if (random() % 8 == 0) request.nonce = any_number(random);
    if (random() % 8 == 0) request.protocol = static_cast<std::uint32_t>(any_number(random));
    if (random() % 8 == 0) request.process.pid = static_cast<std::int32_t>(any_number(random));
    return text_of(request);
  }
  [[nodiscard]] int descriptors_of_exporter() const {
    return count_descriptors(std::to_string(exporter_->pid()));
  }
  [[nodiscard]] double exporter_mib() const {
    std::ifstream statm("/proc/" + std::to_string(exporter_->pid()) + "/statm");
    long whole = 0;
    long resident = 0;
    statm >> whole >> resident;
    return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / (1 << 20);
  }

  std::unique_ptr<IpcWorker> exporter_;
  std::unique_ptr<IpcWorker> importer_;
  std::string handle_;
  IpcHandleFields fields_;
};

TEST_F(IpcCampaignTest, HostileConversationsDisturbNoImporter) {
  constexpr int kBetweenLooks = 100;
  const int rounds = campaign_rounds(500);
  Random random(campaign_seed());
  expect_undisturbed();
  const int files = descriptors_of_exporter();
  const auto expect_few_descriptors = [&] {
    expect_undisturbed();
    EXPECT_TRUE(eventually([&] { return descriptors_of_exporter() <= files + 8; }))
        << descriptors_of_exporter();
  };
  for (int round = 0; round < rounds; ++round) {
    const UniqueFd guest = connect();
    ASSERT_TRUE(guest) << std::strerror(errno);
    for (unsigned packets = random() % 4; packets > 0; --packets) {
      static_cast<void>(
          send_packet(guest, bytes_of(random_bytes(random, 600)), some_descriptors(random)));
    }
    if (round % kBetweenLooks == 0) expect_few_descriptors();
  }
  const double before = exporter_mib();
  std::string recorded;
  for (int round = 0; round < rounds / 10; ++round) {
    const UniqueFd guest = random() % 2 == 0 ? connect() : connect_as_importer();
    ASSERT_TRUE(guest) << std::strerror(errno);
    for (unsigned packets = 1 + random() % 4; packets > 0; --packets) {
      std::string packet = request(random);
      if (random() % 8 == 0) packet = recorded;  // of another connection
      if (random() % 4 == 0) recorded = packet;
      static_cast<void>(send_packet(guest, bytes_of(packet), some_descriptors(random)));
      if (random() % 4 == 0 && await(guest, 2)) {
        static_cast<void>(receive_packet(guest, sizeof(IpcReply)));
      }
    }
    if (round % kBetweenLooks == 0) expect_few_descriptors();
  }
  expect_few_descriptors();
  constexpr double kFlat = 24;  // MiB; what allocators keep
  // Sanitizers keep what is freed.
  if (!gantry::testing::kIsSanitized) {
    EXPECT_LE(exporter_mib() - before, kFlat);
  }
}

TEST_F(IpcCampaignTest, ChangedRequestsDisturbNoImporter) {
  const int rounds = campaign_rounds(2000);
  Random random(campaign_seed());
  expect_undisturbed();
  UniqueFd guest = connect_as_importer();
  for (int round = 0; round < rounds; ++round) {
    if (is_disconnected(guest)) guest = connect_as_importer();
    std::string packet = mutated(random, request(random));
    if (send_packet(guest, bytes_of(packet)) == EAGAIN) {
      while (!is_disconnected(guest) && await(guest, 1)) {
        if (!receive_packet(guest, sizeof(IpcReply))) break;
      }
    }
    if (round % 1000 == 0) expect_undisturbed();
  }
  expect_undisturbed();
}

TEST_F(IpcCampaignTest, GuestsWithoutAHandshakeAreFew) {
  expect_undisturbed();
  const int files = descriptors_of_exporter();
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 10 * kMostIpcGuests; ++i) {
    flood.push_back(connect());
    ASSERT_TRUE(flood.back()) << std::strerror(errno);
    // Half of them wait within a packet's time for more than they say.
    if (i % kMostIpcGuests == 0) expect_undisturbed();
  }
  expect_undisturbed();
  EXPECT_TRUE(eventually([&] { return descriptors_of_exporter() <= files + kMostIpcGuests + 8; }))
      << descriptors_of_exporter();
}

// This process as an exporter that answers with any packets.
class ForgingExporter {
 public:
  explicit ForgingExporter(unsigned seed)
      : random_(seed), chunk_(memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    slots_[0].store(SlotState{.generation = 1, .is_open = true}.word());
    EXPECT_EQ(ftruncate(chunk_.get(), kChunkBytes), 0);
    EXPECT_EQ(fcntl(chunk_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    thread_ = std::thread([this] { run(); });
  }
  ~ForgingExporter() {
    is_ended_ = true;
    thread_.join();
  }
  ForgingExporter(const ForgingExporter&) = delete;
  ForgingExporter& operator=(const ForgingExporter&) = delete;

  [[nodiscard]] std::string handle() const {
    IpcHandleFields fields;
    fields.kind = IpcKind::chunks;
    fields.exporter = this_process_scope();
    fields.device_uuid = device_properties(Device::cuda(0)).uuid;
    fields.nonce = kNonce;
    fields.generation = 1;
    fields.extent_bytes = fields.bytes = kChunkBytes;
    return to_text(encode(fields));
  }

 private:
  static constexpr std::uint64_t kNonce = 0x5678;

  void run() {
    while (!is_ended_) {
      if (!await(listener_, 5)) continue;
      const UniqueFd socket = accept_ipc(listener_);
      // An importer waits for an answer to its own request, so a wrong number ends the connection.
      while (socket && await(socket, 20)) {
        const auto packet = receive_packet(socket, sizeof(IpcRequest));
        if (!packet || packet->bytes.size() != sizeof(IpcRequest)) break;
        IpcRequest request;
        std::memcpy(&request, packet->bytes.data(), sizeof request);
        answer(socket, request);
        if (random_() % 4 == 0) break;  // so that the importer begins again
      }
    }
  }
  void answer(const UniqueFd& socket, const IpcRequest& request) {
    IpcReply reply;
    reply.id = request.id;
    reply.is_ok = 1;
    reply.total = reply.count = 1;
    reply.bytes[0] = kChunkBytes;
    std::vector<int> sent{chunk_.get()};
    if (request.kind == IpcRequest::Kind::handshake) {
      sent = {slots_.descriptor().get(), references_.descriptor().get()};
    }
    if (random_() % 2 == 0) {
      const auto number = any_number(random_);
      switch (random_() % 7) {
        case 0:
          reply.id = number;
          break;
        case 1:
          reply.is_ok = static_cast<std::uint32_t>(number % 3);
          std::memset(reply.error, 0x1b, sizeof reply.error);
          break;
        case 2:
          reply.total = static_cast<std::uint32_t>(number);
          break;
        case 3:
          reply.count = static_cast<std::uint32_t>(number);
          break;
        case 4:
          reply.bytes[0] = number;
          break;
        case 5:
          sent.resize(random_() % 4, chunk_.get());
          break;
        default:
          std::ranges::reverse(sent);
      }
    }
    std::string packet = text_of(reply);
    if (random_() % 8 == 0) packet = mutated(random_, std::move(packet));
    static_cast<void>(send_packet(socket, bytes_of(packet), sent));
  }

  Random random_;
  const UniqueFd listener_ = listen_ipc(ipc_socket_name(this_process(), kNonce));
  const SlotTable slots_;
  const ReferenceTable references_;
  const UniqueFd chunk_;
  std::atomic<bool> is_ended_{false};
  std::thread thread_;
};

TEST_F(IpcCampaignTest, ChangedRepliesHarmNoImporter) {
  const ForgingExporter forging(campaign_seed());
  const std::string forged = forging.handle();
  const std::string importer = std::to_string(importer_->pid());
  const int rounds = campaign_rounds(300);
  int failed = 0;
  int files = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto reply = importer_->import_blocks({forged});
    ASSERT_NE(reply.status, "") << "the importer has ended in round " << round;
    if (reply.status != "ok") ++failed;
    ASSERT_EQ(importer_->drop_imports().status, "ok");
    if (round % 100 != 0) continue;
    expect_undisturbed();
    if (round == 0) files = count_descriptors(importer);
    EXPECT_TRUE(eventually([&] { return count_descriptors(importer) <= files + 8; }));
  }
  EXPECT_GT(failed, rounds / 8);
  EXPECT_LT(failed, rounds) << "some replies are as they should be";
}

}  // namespace
}  // namespace gantry::memory
