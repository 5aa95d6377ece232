// Shared memory between processes with few file descriptors.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gantry/ipc/ipc.hpp>

#include "ipc/handle.hpp"
#include "ipc/socket.hpp"
#include "ipc/table.hpp"
#include "tests/ipc/ipc_text.hpp"
#include "tests/ipc/ipc_worker_process.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/descriptor_limit.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::count_descriptors;
using gantry::testing::from_text;
using gantry::testing::imported;
using gantry::testing::in_limbo;
using gantry::testing::IpcWorker;
using gantry::testing::nothing_held;
using gantry::testing::WorkerReply;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kBytes = 4096;

class IpcDescriptorsTest : public gantry::testing::HeapTest {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    HeapTest::SetUp();
  }
};

// An importer's connection after its handshake, without the rest of the importer.
class Connection {
 public:
  explicit Connection(const IpcHandleFields& fields) : Connection(fields, handshake_for(fields)) {}
  Connection(const IpcHandleFields& fields, const IpcRequest& handshake)
      : socket_(connect_ipc(ipc_socket_name(fields.exporter.process, fields.nonce))) {
    EXPECT_TRUE(socket_) << std::strerror(errno);
    packet_ = ask(handshake);
  }
  [[nodiscard]] static IpcRequest handshake_for(const IpcHandleFields& fields) {
    IpcRequest handshake;
    handshake.nonce = fields.nonce;
    handshake.process = this_process();
    return handshake;
  }

  /// The exporter's table and the importer's own.
  [[nodiscard]] std::vector<UniqueFd>& tables() { return packet_.descriptors; }
  [[nodiscard]] const IpcPacket& reply() const { return packet_; }
  /// The reply to a request.
  [[nodiscard]] IpcPacket ask(const IpcRequest& request) {
    send(request);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    EXPECT_TRUE(wait_readable(socket_, -1, deadline));
    auto packet = receive_packet(socket_, sizeof(IpcReply));
    return packet ? std::move(*packet) : IpcPacket{};
  }
  int send(std::span<const std::byte> bytes, std::span<const int> descriptors) {
    return send_packet(socket_, bytes, descriptors);
  }
  void send(const IpcRequest& request) {
    EXPECT_EQ(send_packet(socket_, std::as_bytes(std::span(&request, 1))), 0);
  }

 private:
  UniqueFd socket_;
  IpcPacket packet_;
};

// Expects an error without descriptors.
void expect_refusal(const IpcPacket& packet, const char* text) {
  IpcReply reply;
  ASSERT_EQ(packet.bytes.size(), sizeof reply);
  std::memcpy(&reply, packet.bytes.data(), sizeof reply);
  EXPECT_EQ(reply.is_ok, 0u);
  EXPECT_EQ(packet.descriptors.size(), 0u);
  EXPECT_THAT(reply.error, HasSubstr(text));
}

// Descriptors to send.
std::vector<int> copies_of_null(int count) {
  static const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return std::vector<int>(static_cast<std::size_t>(count), null);
}

TEST_F(IpcDescriptorsTest, DescriptorsOfEveryPacketAreOwned) {
  int ends[2] = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd from(ends[0]);
  const UniqueFd to(ends[1]);
  const std::vector<int> sent = copies_of_null(4);
  const std::vector<std::byte> bytes(8);
  for (const std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{8}}) {
    for (const bool has_room : {true, false}) {
      const int before = count_descriptors();
      ASSERT_EQ(send_packet(to, std::span(bytes).first(size), sent), 0);
      {
        std::optional<gantry::testing::DescriptorLimit> limit;
        if (!has_room) limit.emplace(2);
        const auto packet = receive_packet(from, bytes.size());
        limit.reset();
        ASSERT_TRUE(packet.has_value());
        EXPECT_EQ(packet->bytes.size(), size);
        EXPECT_EQ(packet->descriptors.size(), has_room ? 4u : 2u);
        EXPECT_EQ(packet->is_truncated, !has_room);
      }
      EXPECT_EQ(count_descriptors(), before) << size << " bytes, room " << has_room;
    }
  }
}

TEST_F(IpcDescriptorsTest, PacketsOutsideOfTheProtocolLeaveNoDescriptorsBehind) {
  IpcWorker producer("heap", 0);
  const auto handles = producer.export_blocks(1, kBytes, 7);
  const IpcHandleFields fields = decode(from_text(handles.at(0)));
  const std::string pid = std::to_string(producer.pid());
  const std::vector<int> sent = copies_of_null(4);
  const std::string name = ipc_socket_name(fields.exporter.process, fields.nonce);
  const int before = count_descriptors(pid);
  const std::vector<std::byte> bytes(3);
  for (int round = 0; round < 8; ++round) {
    for (const std::size_t size : {std::size_t{0}, bytes.size()}) {
      // Before the handshake, and after it.
      const UniqueFd stranger = connect_ipc(name);
      ASSERT_TRUE(stranger);
      EXPECT_EQ(send_packet(stranger, std::span(bytes).first(size), sent), 0);
      Connection connection(fields);
      EXPECT_EQ(connection.send(std::span(bytes).first(size), sent), 0);
    }
  }
  const Connection last(fields);  // its reply comes after what was sent before
  EXPECT_LE(count_descriptors(pid), before + 8);
}

TEST_F(IpcDescriptorsTest, ImportersThatDisconnectWithoutAReferenceAreRemoved) {
  IpcWorker producer("heap", 0);
  const auto handles = producer.export_blocks(1, kBytes, 7);
  const IpcHandleFields fields = decode(from_text(handles.at(0)));
  const std::string pid = std::to_string(producer.pid());
  const int before = count_descriptors(pid);
  for (int round = 0; round < 150; ++round) {
    std::vector<Connection> together;
    for (int i = 0; i < 20; ++i) {
      together.emplace_back(fields);
      EXPECT_EQ(together.back().tables().size(), 2u);
    }
    // An importer that breaks the protocol is removed, too.
    IpcRequest second;
    second.kind = IpcRequest::Kind::handshake;
    together.back().send(second);
  }
  // Its reply comes after the exporter has removed the others.
  const Connection last(fields);
  EXPECT_LE(count_descriptors(pid), before + 8);
  IpcWorker consumer("heap", 1);
  EXPECT_EQ(consumer.import_blocks({handles[0]}), imported({7}));
}

TEST_F(IpcDescriptorsTest, ImportersThatHoldAReferenceAreKept) {
  IpcWorker producer("heap", 0);
  const auto handles = producer.export_blocks(1, kBytes, 7);
  const IpcHandleFields fields = decode(from_text(handles.at(0)));
  auto connection = std::make_unique<Connection>(fields);
  ASSERT_EQ(connection->tables().size(), 2u);
  {
    const ReferenceTable references(std::move(connection->tables()[1]));
    references[fields.slot].fetch_add(1);
    connection.reset();              // a killed process closes its sockets first
    const Connection later(fields);  // its reply comes after the exporter has noticed that
    EXPECT_EQ(producer.free_blocks(), in_limbo(kBytes)) << "this process has not ended";
    references[fields.slot].fetch_sub(1);
  }
  EXPECT_EQ(producer.collect(), nothing_held());
}

TEST_F(IpcDescriptorsTest, OnlyImportersThatHaveAHandleAndAreWhoTheySayGetTables) {
  IpcWorker producer("heap", 0);
  const auto handles = producer.export_blocks(1, kBytes, 7);
  const IpcHandleFields fields = decode(from_text(handles.at(0)));
  const IpcRequest right = Connection::handshake_for(fields);
  std::vector<IpcRequest> wrong(4, right);
  wrong[0].nonce = fields.nonce + 1;
  wrong[1].nonce = fields.nonce ^ std::uint64_t{1} << 63;
  wrong[2].process = fields.exporter.process;
  ++wrong[3].process.start_time;  // one that has ended
  for (const IpcRequest& handshake : wrong) {
    const Connection other(fields, handshake);
    expect_refusal(other.reply(), "expected credentials that match the handshake");
  }
  Connection importer(fields, right);
  EXPECT_EQ(importer.tables().size(), 2u);
}

TEST_F(IpcDescriptorsTest, ChunksGoOnlyToHoldersOfAReference) {
  for (const char* kind : {"heap", "chunks"}) {
    IpcWorker producer(kind, 0);
    const auto handles = producer.export_blocks(2, kBytes, 7);
    const IpcHandleFields fields = decode(from_text(handles.at(0)));
    const IpcHandleFields other = decode(from_text(handles.at(1)));
    Connection connection(fields);
    ASSERT_EQ(connection.tables().size(), 2u);
    const ReferenceTable references(std::move(connection.tables()[1]));
    IpcRequest request;
    request.kind = IpcRequest::Kind::chunks;
    request.slot = fields.slot;
    request.generation = fields.generation;
    expect_refusal(connection.ask(request), "the block was freed");
    references[other.slot].fetch_add(1);
    expect_refusal(connection.ask(request), "the block was freed");
    references[fields.slot].fetch_add(1);
    EXPECT_EQ(connection.ask(request).descriptors.size(), 1u) << kind;
    ++request.generation;
    expect_refusal(connection.ask(request), "the block was freed");
    --request.generation;
    references[fields.slot].fetch_sub(1);
    expect_refusal(connection.ask(request), "the block was freed");
    references[other.slot].fetch_sub(1);
  }
}

TEST_F(IpcDescriptorsTest, TheExportersTableCannotBeWrittenByImporters) {
  IpcWorker producer("heap", 0);
  const auto handles = producer.export_blocks(1, kBytes, 7);
  Connection connection(decode(from_text(handles.at(0))));
  ASSERT_EQ(connection.tables().size(), 2u);
  const auto map = [&](std::size_t table) {
    void* data = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
                      connection.tables()[table].get(), 0);
    if (data != MAP_FAILED) munmap(data, 4096);
    return data != MAP_FAILED;
  };
  EXPECT_FALSE(map(0));
  EXPECT_EQ(pwrite(connection.tables()[0].get(), "x", 1, 0), -1);
  EXPECT_TRUE(map(1)) << "its own counts";
}

TEST_F(IpcDescriptorsTest, ThousandsOfTensorsOnManyStreamsPassWithFewDescriptors) {
  IpcWorker producer("heap", 0);
  IpcWorker consumer("heap", 1);
  EXPECT_EQ(producer.request("limit 128").status, "ok");
  EXPECT_EQ(consumer.request("limit 128").status, "ok");
  constexpr int kStreams = 32;
  for (int round = 0; round < 80; ++round) {
    // Their work is not complete, so each handle carries an event.
    const auto handles = producer.request("hold " + std::to_string(kStreams)).handles;
    ASSERT_EQ(handles.size(), std::size_t{kStreams}) << ::testing::PrintToString(handles);
    ASSERT_EQ(consumer.map_blocks(handles).status, "ok") << round;
    ASSERT_EQ(producer.request("release").status, "ok");
    ASSERT_EQ(consumer.drop_imports(), nothing_held());
    ASSERT_EQ(producer.free_blocks(), nothing_held());
  }
}

// Imports `handle` while the consumer can open only `free` more descriptors.
WorkerReply import_with_descriptors(IpcWorker& consumer, int free, const std::string& handle) {
  EXPECT_EQ(consumer.limit_new_descriptors(free).status, "ok");
  const WorkerReply reply = consumer.import_blocks({handle});
  EXPECT_EQ(consumer.lift_limit().status, "ok");
  return reply;
}

TEST_F(IpcDescriptorsTest, AnImporterWithoutDescriptorsNamesItself) {
  for (const char* kind : {"heap", "chunks"}) {
    IpcWorker consumer(kind, 1);
    bool has_failed = false;
    bool has_passed = false;
    for (int free = 0; free < 12; ++free) {
      // A new producer for each round: nothing of it is connected or mapped.
      IpcWorker producer(kind, 0);
      const auto handles = producer.export_blocks(1, kBytes, 40 + free);
      const WorkerReply expected = imported({40 + free});
      const WorkerReply reply = import_with_descriptors(consumer, free, handles.at(0));
      has_passed |= reply == expected;
      has_failed |= reply != expected;
      if (reply != expected) {
        EXPECT_EQ(reply.status, "error") << kind << ' ' << free;
        EXPECT_THAT(reply.error, AllOf(HasSubstr("oo many open files"), Not(HasSubstr("ended")),
                                       Not(HasSubstr("freed")), Not(HasSubstr("one user"))))
            << kind << ' ' << free;
      }
      EXPECT_EQ(consumer.import_blocks(handles), expected) << "with descriptors again";
      EXPECT_EQ(producer.free_blocks(), in_limbo(kBytes)) << "it is imported";
      EXPECT_EQ(consumer.drop_imports(), nothing_held());
    }
    EXPECT_TRUE(has_failed && has_passed) << kind;
  }
}

TEST_F(IpcDescriptorsTest, AnExporterWithoutDescriptorsIsNamedAsTheCause) {
  for (int free = 0; free < 8; ++free) {
    IpcWorker producer("heap", 0);
    IpcWorker consumer("heap", 1);
    const auto handles = producer.export_blocks(1, kBytes, 9);
    EXPECT_EQ(producer.limit_new_descriptors(free).status, "ok");
    consumer.write_line(IpcWorker::command("import", handles));
    if (free == 0) {
      // The connection waits in the exporter's queue until the exporter can accept it.
      EXPECT_EQ(producer.lift_limit().status, "ok");
      EXPECT_EQ(consumer.read_reply(), imported({9}));
      continue;
    }
    const WorkerReply reply = consumer.read_reply();
    if (reply != imported({9})) {
      EXPECT_EQ(reply.status, "error") << free;
      EXPECT_THAT(reply.error,
                  AllOf(HasSubstr("Too many open files"), Not(HasSubstr("ended")),
                        Not(HasSubstr("closed the connection")), Not(HasSubstr("freed"))))
          << free;
    }
    EXPECT_EQ(producer.lift_limit().status, "ok");
    EXPECT_EQ(consumer.import_blocks(handles), imported({9}));
    EXPECT_EQ(producer.free_blocks(), in_limbo(kBytes)) << "it is imported";
  }
}

}  // namespace
}  // namespace gantry::memory
