// The thread that serves importers.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "memory/ipc/exporter.hpp"

namespace gantry::memory {

/// Serves this process's exports to other processes. The first export starts it.
///
/// One thread, never joined, because the process may end at any moment. It takes no signals and
/// holds no lock in driver calls. An importer that does not read its replies delays no other one.
class IpcService {
 public:
  [[nodiscard]] static IpcService& instance();

  /// Starts the thread unless it runs. Returns the nonce in its socket's name.
  /// Thread safety: any thread. Throws: Error without a socket or a thread.
  [[nodiscard]] std::uint64_t start();

 private:
  IpcService() = default;
  void run();
  void accept_all();
  void serve(IpcConsumer& consumer);
  /// Replies to the first packet of a connection. Returns false once the connection has become a
  /// consumer or was refused.
  [[nodiscard]] bool handshake(UniqueFd& socket);
  /// Returns false if the connection must be closed.
  [[nodiscard]] bool reply_to(const IpcRequest& request, IpcConsumer& consumer);

  std::mutex mutex_;
  bool started_ = false;
  std::uint64_t nonce_ = 0;
  UniqueFd listener_;
  std::vector<UniqueFd> unauthenticated_;  ///< accepted connections before their handshake
};

}  // namespace gantry::memory
