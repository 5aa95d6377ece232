// The connection of an importer to one exporter.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <gantry/extend/driver.hpp>

#include "ipc/handle.hpp"
#include "ipc/socket.hpp"
#include "ipc/table.hpp"

namespace gantry::memory {

/// The connection to another process that exports memory. It stays open until that process has
/// ended and nothing of it is in use here.
///
/// Thread safety: every member may be called from any thread.
class IpcPeer : public std::enable_shared_from_this<IpcPeer> {
 public:
  /// Returns the peer for the exporter of `fields`; the first call connects. Throws: PeerLostError,
  /// NotSupported, TimeoutError, Error.
  [[nodiscard]] static std::shared_ptr<IpcPeer> of(const IpcHandleFields& fields);
  /// Removes exporters that disconnected or ended.
  static void remove_lost() noexcept;
  /// Sets how long exporters may take to reply, 60 s by default. For tests.
  static void set_reply_timeout(std::chrono::milliseconds timeout) noexcept;
  /// Returns the number of requests of this process that wait for a reply. For tests.
  [[nodiscard]] static int pending_requests() noexcept;

  explicit IpcPeer(const IpcHandleFields& fields);
  ~IpcPeer();
  IpcPeer(const IpcPeer&) = delete;
  IpcPeer& operator=(const IpcPeer&) = delete;

  [[nodiscard]] const ProcessStamp& process() const { return process_; }
  /// Acquires a reference to an exported block; false if it was freed.
  [[nodiscard]] bool acquire(std::uint32_t slot, std::uint64_t generation);
  void release(std::uint32_t slot) noexcept;

  /// A chunk's descriptor and size.
  struct Chunk {
    UniqueFd descriptor;
    std::size_t bytes = 0;
  };
  /// Requests the chunks of a block to which a reference is held, from index `first` on, and sets
  /// `total`. One reply carries a part of them: call until `total` chunks have arrived.
  /// Throws: PeerLostError, TimeoutError, Error.
  [[nodiscard]] std::vector<Chunk> fetch_chunks(std::uint32_t slot, std::uint64_t generation,
                                                std::size_t first, std::size_t& total);
  /// Sends `offer` with the descriptors of its chunks. Returns where the process has the range;
  /// null for a withdrawal. Throws: PeerLostError, TimeoutError, Error.
  std::byte* send_offer(IpcOffer offer, std::span<const int> descriptors);
  /// Makes later work on `stream` wait for an event of the exporter, or for the exporter's end; see
  /// Note [Waiting for another process]. A stream that is being captured waits for the event
  /// itself. Throws: CudaError, OutOfMemoryError, std::system_error; nothing waits then.
  void wait_for(const NativeEventHandle& event, NativeStream stream);
  /// True if the process has ended completely, with all its work on devices.
  [[nodiscard]] bool has_ended() const { return watch_.has_ended(); }

 private:
  [[nodiscard]] NativeEvent open(const NativeEventHandle& event, int device);
  // Tells the exporter that this process holds no reference to a slot any more.
  void send_released(std::uint32_t slot) noexcept;
  [[nodiscard]] IpcPacket send_request(IpcRequest request, IpcReply& reply);
  // As above, of a request that is the beginning of `bytes`.
  [[nodiscard]] IpcPacket send_request(IpcRequest& request, std::span<const std::byte> bytes,
                                       std::span<const int> descriptors, IpcReply& reply);
  [[nodiscard]] bool is_lost() const { return is_disconnected(socket_) || has_ended(); }
  void connect(std::uint64_t nonce);

  const ProcessStamp process_;
  UniqueFd socket_;
  ProcessWatch watch_;
  std::unique_ptr<SlotTable> slots_;
  std::unique_ptr<ReferenceTable> references_;

  std::mutex request_mutex_;  ///< held from a request to its reply
  std::uint64_t last_request_ = 0;
  std::mutex events_mutex_;
  /// Opened events by device and handle. They stay open as long as the peer: CUDA misbehaves if an
  /// imported event is closed while a stream of another device still waits for it.
  std::map<std::pair<int, std::array<std::byte, 64>>, NativeEvent> events_;
};

}  // namespace gantry::memory
