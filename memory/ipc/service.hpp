// The thread that answers importers.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "memory/ipc/exports.hpp"

namespace gantry::memory {

/// Serves this process's exports to other processes; started by the first export.
///
/// One thread, never joined: the process may end at any moment. It takes no signals and keeps no
/// lock while it calls the driver. An importer that does not read its answers delays nobody.
class IpcService {
 public:
  [[nodiscard]] static IpcService& instance();

  /// Starts the thread unless it runs; the nonce that its socket's name carries.
  /// Thread safety: any thread. Throws: Error without a socket or a thread.
  [[nodiscard]] std::uint64_t start();

 private:
  IpcService() = default;
  void run();
  void accept_all();
  void serve(IpcConsumer& consumer);
  [[nodiscard]] bool greet(UniqueFd& socket);
  [[nodiscard]] bool answer(IpcConsumer& consumer, const IpcRequest& request);

  std::mutex mutex_;
  bool started_ = false;
  std::uint64_t nonce_ = 0;
  UniqueFd listener_;
  std::vector<UniqueFd> unauthenticated_;  ///< accepted, yet to say hello
};

}  // namespace gantry::memory
