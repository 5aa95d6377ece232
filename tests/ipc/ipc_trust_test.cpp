// Exporters and importers that are of another user or process than they say.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <span>

#include <gantry/core/error.hpp>
#include <gantry/ipc/ipc.hpp>

#include "core/processes/process_stamp.hpp"
#include "ipc/exporter.hpp"
#include "ipc/handle.hpp"
#include "ipc/lifetime.hpp"
#include "ipc/socket.hpp"
#include "ipc/table.hpp"
#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr uid_t kSomebodyElse = 65534;
constexpr std::uint64_t kNonce = 0x1234;
constexpr std::size_t kChunkBytes = std::size_t{2} << 20;

void await(const UniqueFd& socket) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::hours(1);
  if (!wait_readable(socket, -1, deadline)) _exit(1);
}

// Replies to every request as an exporter of one block of one chunk. Does not return.
[[noreturn]] void serve(const UniqueFd& listener) {
  const SlotTable slots;
  const ReferenceTable references;
  slots[0].store(SlotState{.generation = 1, .is_open = true}.word());
  const UniqueFd chunk(memfd_create("impostor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (ftruncate(chunk.get(), kChunkBytes) != 0) _exit(1);
  if (fcntl(chunk.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) _exit(1);
  for (;;) {
    await(listener);
    const UniqueFd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    while (socket) {
      auto packet = receive_packet(socket, sizeof(IpcRequest));
      if (!packet) {
        await(socket);
        continue;
      }
      IpcRequest request;
      if (packet->bytes.size() != sizeof request) break;
      std::memcpy(&request, packet->bytes.data(), sizeof request);
      IpcReply reply;
      reply.id = request.id;
      reply.is_ok = 1;
      reply.total = reply.count = 1;
      reply.bytes[0] = kChunkBytes;
      const int tables[] = {slots.descriptor().get(), references.descriptor().get()};
      const int chunks[] = {chunk.get()};
      static_cast<void>(send_packet(socket, std::as_bytes(std::span(&reply, 1)),
                                    request.kind == IpcRequest::Kind::handshake
                                        ? std::span<const int>(tables)
                                        : std::span<const int>(chunks)));
    }
  }
}

// A process that serves as an exporter does: one of another user, or in the name of another
// process.
class Impostor {
 public:
  explicit Impostor(uid_t user, std::optional<ProcessStamp> victim = {}) {
    int ends[2] = {};
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    const UniqueFd from(ends[0]);
    UniqueFd to(ends[1]);
    pid_ = fork();
    if (pid_ == 0) {
      if (user != geteuid() && syscall(SYS_setresuid, user, user, user) != 0) _exit(1);
      const ProcessStamp named = victim.value_or(this_process());
      const UniqueFd listener = listen_ipc(ipc_socket_name(named, kNonce));
      if (write(to.get(), &named, sizeof named) != sizeof named) _exit(1);
      serve(listener);
    }
    to.reset();
    is_ready_ = read(from.get(), &process_, sizeof process_) == sizeof process_;
  }
  ~Impostor() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;

  [[nodiscard]] bool is_ready() const { return is_ready_; }
  // A handle that names this user.
  [[nodiscard]] IpcHandle handle() const {
    IpcHandleFields fields;
    fields.kind = IpcKind::chunks;
    fields.exporter = this_process_scope();
    fields.exporter.process = process_;
    fields.device_uuid = device_properties(Device::cuda(0)).uuid;
    fields.nonce = kNonce;
    fields.generation = 1;
    fields.extent_bytes = fields.bytes = kChunkBytes;
    return encode(fields);
  }

 private:
  pid_t pid_ = -1;
  bool is_ready_ = false;
  ProcessStamp process_;
};

class IpcTrustTest : public gantry::testing::DeviceTest {};

TEST_F(IpcTrustTest, AnExporterOfAnotherUserIsRefusedWhateverItsHandleSays) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can start processes of other users";
  const Impostor impostor(kSomebodyElse);
  ASSERT_TRUE(impostor.is_ready());
  EXPECT_THAT([&] { static_cast<void>(import_ipc(impostor.handle())); },
              ThrowsMessage<NotSupported>(AllOf(HasSubstr("its socket belongs to user 65534"),
                                                HasSubstr("run both processes as one user"))));
}

// A process that does nothing.
class IdleProcess {
 public:
  IdleProcess() : pid_(fork()) {
    if (pid_ != 0) return;
    for (;;) pause();
  }
  ~IdleProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  IdleProcess(const IdleProcess&) = delete;
  IdleProcess& operator=(const IdleProcess&) = delete;

  [[nodiscard]] std::optional<ProcessStamp> process() const { return find_process(pid_); }

 private:
  const pid_t pid_;
};

TEST_F(IpcTrustTest, AnExporterInTheNameOfAnotherProcessIsRefused) {
  const IdleProcess victim;
  const Impostor impostor(geteuid(), victim.process());
  EXPECT_TRUE(impostor.is_ready());
  EXPECT_THAT([&] { static_cast<void>(import_ipc(impostor.handle())); },
              ThrowsMessage<NotSupported>(HasSubstr("another process owns its socket")));
}

TEST_F(IpcTrustTest, AnImporterInTheNameOfAnotherProcessIsRefused) {
  const IdleProcess victim;
  const std::uint64_t nonce = start_ipc_service();
  const auto greet = [&](const ProcessStamp& process, std::uint64_t said) {
    const UniqueFd socket = connect_ipc(ipc_socket_name(this_process(), nonce));
    IpcRequest request;
    request.nonce = said;
    request.process = process;
    EXPECT_EQ(send_packet(socket, std::as_bytes(std::span(&request, 1))), 0);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    EXPECT_TRUE(wait_readable(socket, -1, deadline));
    IpcReply reply;
    const auto packet = receive_packet(socket, sizeof reply);
    if (packet && packet->bytes.size() == sizeof reply) {
      std::memcpy(&reply, packet->bytes.data(), sizeof reply);
    }
    return reply.is_ok != 0 && packet->descriptors.size() == 2;
  };
  ProcessStamp ended = this_process();
  ++ended.start_time;
  EXPECT_TRUE(greet(this_process(), nonce));
  EXPECT_FALSE(greet(*victim.process(), nonce));
  EXPECT_FALSE(greet(ended, nonce));
  EXPECT_FALSE(greet(this_process(), nonce + 1));
}

// A file with these seals, as a process may send it in place of a table.
UniqueFd file_of(std::size_t bytes, int seals) {
  UniqueFd file(memfd_create("table", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

template <class Table, class Number>
void expect_that_only_tables_are_mapped() {
  constexpr std::size_t kBytes = kIpcSlots * sizeof(Number);
  const auto expect_refused = [](std::size_t bytes, int seals) {
    EXPECT_THAT([&] { const Table table(file_of(bytes, seals)); },
                ThrowsMessage<Error>(HasSubstr("ipc: failed to open a table in shared memory")))
        << bytes << " bytes, seals " << seals;
  };
  for (const int seals : {0, F_SEAL_GROW, F_SEAL_GROW | F_SEAL_SEAL}) expect_refused(kBytes, seals);
  for (const std::size_t bytes : {std::size_t{0}, kBytes - sizeof(Number), kBytes + 1}) {
    expect_refused(bytes, F_SEAL_SHRINK);
  }
  const Table table(file_of(kBytes, F_SEAL_SHRINK));
  EXPECT_EQ(table[kIpcSlots - 1].load(), 0u);
}

// The process that sent it could end this one by a cut.
TEST_F(IpcTrustTest, ATableThatMayShrinkIsNotMapped) {
  expect_that_only_tables_are_mapped<SlotTable, std::uint64_t>();
  expect_that_only_tables_are_mapped<ReferenceTable, std::uint32_t>();
}

}  // namespace
}  // namespace gantry::memory
