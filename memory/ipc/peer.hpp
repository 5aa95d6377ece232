// An exporter as its importers see it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <gantry/device/driver.hpp>

#include "memory/ipc/message.hpp"
#include "memory/ipc/table.hpp"

namespace gantry::memory {

/// The connection to another process that exports memory. It stays open until that process is gone
/// and nothing of it is in use here.
///
/// Thread safety: every member may be called from any thread.
class IpcPeer : public std::enable_shared_from_this<IpcPeer> {
 public:
  /// The one for the exporter of `message`, connected at the first call. Throws: PeerLostError,
  /// NotSupported, TimeoutError.
  [[nodiscard]] static std::shared_ptr<IpcPeer> of(const IpcMessage& message);
  /// Forgets exporters that are gone.
  static void forget_lost() noexcept;
  /// How long exporters may take for an answer, 60 s at first. For tests.
  static void set_answer_timeout(std::chrono::milliseconds timeout) noexcept;

  explicit IpcPeer(const IpcMessage& message);
  ~IpcPeer();
  IpcPeer(const IpcPeer&) = delete;
  IpcPeer& operator=(const IpcPeer&) = delete;

  [[nodiscard]] const ProcessStamp& process() const { return process_; }
  /// Takes a reference to an exported block; false if it was freed.
  [[nodiscard]] bool acquire(std::uint32_t slot, std::uint64_t generation);
  /// Gives it back.
  void release(std::uint32_t slot) noexcept;

  /// A chunk's descriptor and size.
  struct Chunk {
    UniqueFd descriptor;
    std::size_t bytes = 0;
  };
  /// Asks for the chunks of a block to which a reference is held, from number `first` on; all of
  /// them are fetched by calling until `total` have come. Throws: PeerLostError, TimeoutError,
  /// Error.
  [[nodiscard]] std::vector<Chunk> fetch(std::uint32_t slot, std::uint64_t generation,
                                         std::size_t first, std::size_t& total);
  /// Makes later work on `stream` wait for an event of the exporter, or for the exporter's end; see
  /// Note [Waiting for another process]. A stream that is being captured waits for the event
  /// itself. Throws: CudaError, OutOfMemoryError, std::system_error; nothing waits then.
  void wait_for(const NativeEventHandle& event, NativeStream stream);
  /// True if the process has ended completely, so that no work of it is left on a device.
  [[nodiscard]] bool is_gone() const { return watch_.has_ended(); }

 private:
  [[nodiscard]] NativeEvent open(const NativeEventHandle& event, int device);
  [[nodiscard]] IpcPacket ask(IpcRequest request, IpcReply& reply);
  [[nodiscard]] bool is_lost() const { return has_hung_up(socket_) || is_gone(); }
  void connect(std::uint64_t nonce);

  const ProcessStamp process_;
  UniqueFd socket_;
  ProcessWatch watch_;
  std::unique_ptr<SlotTable> slots_;
  std::unique_ptr<ReferenceTable> references_;

  std::mutex asking_;        ///< one question at a time
  std::uint64_t asked_ = 0;  ///< the number of the last one
  std::mutex events_mutex_;
  /// Opened events by device. They stay open as long as this: CUDA does not take kindly to an
  /// imported event that is closed while a stream of another device still waits for it.
  std::map<std::pair<int, std::array<std::byte, 64>>, NativeEvent> events_;
};

}  // namespace gantry::memory
