// Packets with descriptors between two processes of one machine.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/process_watch.hpp"
#include "core/unique_fd.hpp"

namespace gantry::memory {

/// What an importer asks its exporter for. Both run on one machine, so numbers travel as they are.
struct IpcRequest {
  enum class Kind : std::uint32_t {
    hello,     ///< the first packet: `nonce` and `process`; the answer carries the two tables
    chunks,    ///< the chunks of a block from number `first` on; the answer carries descriptors
    released,  ///< a block in limbo lost its last reference here; no answer
  };
  static constexpr std::uint32_t kProtocol = 2;

  std::uint32_t protocol = kProtocol;
  Kind kind = Kind::hello;
  std::uint64_t number = 0;  ///< of the question, which its answer repeats
  std::uint64_t nonce = 0;
  ProcessStamp process;
  std::uint32_t slot = 0;
  std::uint32_t first = 0;
  std::uint64_t generation = 0;
};

/// The answer.
struct IpcReply {
  static constexpr std::size_t kChunks = 250;  ///< Linux passes 253 descriptors in one packet

  std::uint64_t number = 0;  ///< of the question
  bool ok = false;
  std::uint32_t total = 0;  ///< chunks of the block
  std::uint32_t count = 0;  ///< chunks in this packet
  std::uint64_t bytes[kChunks] = {};
  char problem[256] = {};  ///< if not ok, why
};
static_assert(std::is_trivially_copyable_v<IpcRequest> && std::is_trivially_copyable_v<IpcReply>);

/// Name of the socket on which `process` serves its exports.
[[nodiscard]] std::string ipc_socket_name(const ProcessStamp& process, std::uint64_t nonce);

/// A non-blocking socket that listens at the abstract address `name`. Throws: Error.
[[nodiscard]] UniqueFd listen_ipc(const std::string& name);
/// The next connection, none if there is none now or it was refused.
[[nodiscard]] UniqueFd accept_ipc(const UniqueFd& listener);
/// A connection to `name`; none if nobody listens, with the reason in errno.
[[nodiscard]] UniqueFd connect_ipc(const std::string& name);

/// Who is at the other end.
struct IpcCredentials {
  std::int32_t pid = 0;
  std::uint32_t user = 0;
};
[[nodiscard]] std::optional<IpcCredentials> credentials_of(const UniqueFd& socket);

/// True if the other end has closed the connection. Its process may live on.
[[nodiscard]] bool has_hung_up(const UniqueFd& socket);

/// True for the errno values of a process that lacks descriptors or memory itself: they say
/// nothing about the other end.
[[nodiscard]] bool is_own_shortage(int error);
/// What to do about it, as the end of an error text: "; raise …", or nothing.
[[nodiscard]] const char* remedy_for(int error);

/// Sends one packet without waiting; 0, or the errno of the failure. EAGAIN: nobody reads.
[[nodiscard]] int send_packet(const UniqueFd& socket, std::span<const std::byte> bytes,
                              std::span<const int> descriptors = {});

/// One packet and the descriptors it came with, which are close-on-exec.
struct IpcPacket {
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> descriptors;
  bool is_truncated = false;  ///< descriptors were lost: this process can hold no more
};
/// The next packet of at most `limit` bytes, none if there is none now; an empty one at the end.
[[nodiscard]] std::optional<IpcPacket> receive_packet(const UniqueFd& socket, std::size_t limit);
/// Sleeps until `socket` or `watched`, which may be -1, can be read; false at `deadline`.
[[nodiscard]] bool wait_readable(const UniqueFd& socket, int watched,
                                 std::chrono::steady_clock::time_point deadline);

}  // namespace gantry::memory
