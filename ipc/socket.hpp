// Packets with file descriptors between two processes of one machine.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gantry/extend/unique_fd.hpp>

#include "core/processes/process_watch.hpp"

namespace gantry::memory {

/// A request of an importer to its exporter. Both run on one machine: the struct is sent as it is.
struct IpcRequest {
  enum class Kind : std::uint32_t {
    handshake,  ///< the first packet: `nonce` and `process`; the reply carries the two tables
    chunks,     ///< the chunks of a block from index `first` on; the reply carries descriptors
    released,   ///< a block in limbo lost its last reference of this importer; no reply
    offer,      ///< an IpcOffer with descriptors: chunks to be mapped; the reply carries an address
    withdrawal,  ///< an IpcOffer without descriptors: addresses to be unmapped
  };
  static constexpr std::uint32_t kProtocol = 4;

  std::uint32_t protocol = kProtocol;
  Kind kind = Kind::handshake;
  std::uint64_t id = 0;  ///< repeated by the reply
  std::uint64_t nonce = 0;
  ProcessStamp process;
  std::uint32_t slot = 0;
  std::uint32_t first = 0;
  std::uint64_t generation = 0;
};

/// Linux passes 253 descriptors in one packet.
inline constexpr std::size_t kChunksPerPacket = 250;

/// A request about memory of its sender, which the receiver maps: see Note [Mirrors].
struct IpcOffer {
  IpcRequest request;
  std::uint64_t mirrors = 0;                    ///< the receiver's number of a Mirrors
  std::uint64_t range = 0;                      ///< the sender's number of an address range
  std::uint64_t range_bytes = 0;                ///< of the whole range
  std::uint64_t offset = 0;                     ///< of the chunks in the range
  std::uint64_t bytes = 0;                      ///< of all chunks
  std::uint32_t count = 0;                      ///< chunks in this packet
  std::uint64_t chunks[kChunksPerPacket] = {};  ///< the bytes of each
};
static_assert(std::is_trivially_copyable_v<IpcOffer>);

/// The reply to a request.
struct IpcReply {
  static constexpr std::size_t kChunks = kChunksPerPacket;

  std::uint64_t id = 0;       ///< of the request
  std::uint64_t address = 0;  ///< of an offer: where the range begins in the receiver's addresses
  std::uint32_t is_ok = 0;    ///< no bool: the other process may send any value
  std::uint32_t total = 0;    ///< chunks of the block
  std::uint32_t count = 0;    ///< chunks in this packet
  std::uint64_t bytes[kChunks] = {};
  char error[256] = {};  ///< the reason if not ok
};
static_assert(std::is_trivially_copyable_v<IpcRequest> && std::is_trivially_copyable_v<IpcReply>);

/// Returns the name of the socket on which `process` serves its exports.
[[nodiscard]] std::string ipc_socket_name(const ProcessStamp& process, std::uint64_t nonce);

/// Opens a non-blocking socket that listens at the abstract address `name`. Throws: Error.
[[nodiscard]] UniqueFd listen_ipc(const std::string& name);
/// Accepts the next connection of this user; none if no connection is waiting.
[[nodiscard]] UniqueFd accept_ipc(const UniqueFd& listener);
/// Connects to `name`. On failure returns none, with the reason in errno.
[[nodiscard]] UniqueFd connect_ipc(const std::string& name);

/// The process at the other end of a connection.
struct IpcCredentials {
  std::int32_t pid = 0;
  std::uint32_t user = 0;
};
[[nodiscard]] std::optional<IpcCredentials> credentials_of(const UniqueFd& socket);

/// True if the other end has closed the connection. Its process may still run.
[[nodiscard]] bool is_disconnected(const UniqueFd& socket);

/// True for the errno values of a process that lacks descriptors or memory. They say nothing about
/// the other end.
[[nodiscard]] bool is_local_resource_error(int error);
/// Returns the remedy for an errno value, as the end of an error text: "; raise …", or "".
[[nodiscard]] const char* remedy_for(int error);

/// Sends one packet without waiting. Returns 0 or an errno; EAGAIN: the other end does not read.
[[nodiscard]] int send_packet(const UniqueFd& socket, std::span<const std::byte> bytes,
                              std::span<const int> descriptors = {});

/// One packet and its descriptors, which are close-on-exec.
struct IpcPacket {
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> descriptors;
  bool is_truncated = false;  ///< descriptors were lost: this process has no room
};
/// Receives a packet of at most `limit` bytes; none if no packet is waiting, an empty one at the
/// end of the connection.
[[nodiscard]] std::optional<IpcPacket> receive_packet(const UniqueFd& socket, std::size_t limit);
/// Sleeps until `socket` or the descriptor `watched` is readable. `watched` may be -1. Returns
/// false at `deadline`.
[[nodiscard]] bool wait_readable(const UniqueFd& socket, int watched,
                                 std::chrono::steady_clock::time_point deadline);

}  // namespace gantry::memory
