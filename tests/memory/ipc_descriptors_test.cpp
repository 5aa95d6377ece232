// Shared memory between processes that have few descriptors, or none left.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gantry/memory/ipc.hpp>

#include "memory/ipc/message.hpp"
#include "memory/ipc/socket.hpp"
#include "memory/ipc/table.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/memory/ipc_text.hpp"
#include "tests/memory/ipc_worker_process.hpp"
#include "tests/support/descriptor_limit.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::count_descriptors;
using gantry::testing::from_text;
using gantry::testing::IpcWorker;
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

// A connection to an exporter that speaks the protocol, without the rest of an importer.
class Connection {
 public:
  explicit Connection(const IpcMessage& message) {
    const ProcessStamp& exporter = message.exporter.process;
    socket_ = connect_ipc(ipc_socket_name(exporter, message.nonce));
    EXPECT_TRUE(socket_) << std::strerror(errno);
    IpcRequest hello;
    hello.nonce = message.nonce;
    hello.process = this_process();
    EXPECT_EQ(send_packet(socket_, std::as_bytes(std::span(&hello, 1))), 0);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    EXPECT_TRUE(wait_readable(socket_, -1, deadline));
    auto packet = receive_packet(socket_, sizeof(IpcReply));
    if (packet) packet_ = std::move(*packet);
  }

  /// The exporter's table and the importer's own.
  [[nodiscard]] std::vector<UniqueFd>& tables() { return packet_.descriptors; }
  void send(const IpcRequest& request) {
    EXPECT_EQ(send_packet(socket_, std::as_bytes(std::span(&request, 1))), 0);
  }

 private:
  UniqueFd socket_;
  IpcPacket packet_;
};

TEST_F(IpcDescriptorsTest, AnExporterForgetsImportersThatHungUpWithoutAReference) {
  IpcWorker producer("heap", 0);
  const auto handles = producer.export_blocks(1, kBytes, 7);
  const IpcMessage message = decode(from_text(handles.at(0)));
  const std::string pid = std::to_string(producer.pid());
  const int before = count_descriptors(pid);
  for (int round = 0; round < 150; ++round) {
    std::vector<Connection> together;
    for (int i = 0; i < 20; ++i) {
      together.emplace_back(message);
      EXPECT_EQ(together.back().tables().size(), 2u);
    }
    // One that breaks the protocol is forgotten, too.
    IpcRequest odd;
    odd.kind = IpcRequest::Kind::hello;
    together.back().send(odd);
  }
  // Its answer comes after the exporter has seen that the others are gone.
  const Connection last(message);
  EXPECT_LE(count_descriptors(pid), before + 8);
  IpcWorker consumer("heap", 1);
  EXPECT_EQ(consumer.ask("import " + handles[0]), "7 ");
}

TEST_F(IpcDescriptorsTest, AnImporterThatHoldsAReferenceIsNotForgotten) {
  IpcWorker producer("heap", 0);
  const auto handles = producer.export_blocks(1, kBytes, 7);
  const IpcMessage message = decode(from_text(handles.at(0)));
  auto connection = std::make_unique<Connection>(message);
  ASSERT_EQ(connection->tables().size(), 2u);
  {
    const ReferenceTable references(std::move(connection->tables()[1]));
    references[message.slot].fetch_add(1);
    connection.reset();  // as one that is being killed does first
    EXPECT_EQ(producer.ask("free"), std::to_string(kBytes)) << "this process has not ended";
    references[message.slot].fetch_sub(1);
  }
  EXPECT_EQ(producer.ask("collect"), "0 0");
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
  EXPECT_EQ(producer.ask("limit 128"), "limited");
  EXPECT_EQ(consumer.ask("limit 128"), "limited");
  constexpr int kStreams = 32;
  for (int round = 0; round < 80; ++round) {
    // Their work is not done, so each handle carries an event.
    const auto handles = IpcWorker::words(producer.ask("hold " + std::to_string(kStreams)));
    ASSERT_EQ(handles.size(), std::size_t{kStreams}) << ::testing::PrintToString(handles);
    std::string command = IpcWorker::import_command(handles);
    ASSERT_EQ(consumer.ask(command.replace(0, 6, "map")), "mapped") << round;
    ASSERT_EQ(producer.ask("release"), "released");
    ASSERT_EQ(consumer.ask("drop"), "0 0 0");
    ASSERT_EQ(producer.ask("free"), "0");
  }
}

// What an importer says that may open only `free` more descriptors, of memory that is held.
std::string ask_short(IpcWorker& consumer, int free, const std::string& command) {
  EXPECT_EQ(consumer.ask("exhaust " + std::to_string(free)), "exhausted");
  std::string answer = consumer.ask(command);
  EXPECT_EQ(consumer.ask("relax"), "relaxed");
  return answer;
}

TEST_F(IpcDescriptorsTest, AnImporterWithoutDescriptorsCallsNobodyGoneAndNothingFreed) {
  for (const char* kind : {"heap", "chunks"}) {
    IpcWorker consumer(kind, 1);
    bool has_failed = false;
    bool has_passed = false;
    for (int free = 0; free < 12; ++free) {
      // A new one each time: nothing of it is connected or mapped.
      IpcWorker producer(kind, 0);
      const auto handles = producer.export_blocks(1, kBytes, 40 + free);
      const std::string import = "import " + handles.at(0);
      const std::string right = std::to_string(40 + free) + ' ';
      const std::string answer = ask_short(consumer, free, import);
      has_passed |= answer == right;
      has_failed |= answer != right;
      if (answer != right) {
        EXPECT_THAT(answer, AllOf(HasSubstr("oo many open files"), Not(HasSubstr("gone")),
                                  Not(HasSubstr("freed")), Not(HasSubstr("one user"))))
            << kind << ' ' << free;
      }
      EXPECT_EQ(consumer.ask(import), right) << "once it has descriptors again";
      EXPECT_EQ(producer.ask("free"), std::to_string(kBytes)) << "it is held";
      EXPECT_EQ(consumer.ask("drop"), "0 0 0");
    }
    EXPECT_TRUE(has_failed && has_passed) << kind;
  }
}

TEST_F(IpcDescriptorsTest, AnExporterWithoutDescriptorsIsNotCalledGone) {
  for (int free = 0; free < 8; ++free) {
    IpcWorker producer("heap", 0);
    IpcWorker consumer("heap", 1);
    const auto handles = producer.export_blocks(1, kBytes, 9);
    EXPECT_EQ(producer.ask("exhaust " + std::to_string(free)), "exhausted");
    consumer.write_line("import " + handles.at(0));
    if (free == 0) {
      // The connection waits in the exporter's queue until it can take it.
      EXPECT_EQ(producer.ask("relax"), "relaxed");
      EXPECT_EQ(consumer.read_line(), "9 ");
      continue;
    }
    const std::string answer = consumer.read_line();
    if (answer != "9 ") {
      EXPECT_THAT(answer, AllOf(HasSubstr("Too many open files"), Not(HasSubstr("gone")),
                                Not(HasSubstr("closed the connection")), Not(HasSubstr("freed"))))
          << free;
    }
    EXPECT_EQ(producer.ask("relax"), "relaxed");
    EXPECT_EQ(consumer.ask("import " + handles[0]), "9 ");
    EXPECT_EQ(producer.ask("free"), std::to_string(kBytes)) << "it is held";
  }
}

}  // namespace
}  // namespace gantry::memory
