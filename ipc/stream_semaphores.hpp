// Streams that wait for the work of another process.
#pragma once

#include <memory>

#include <gantry/extend/driver.hpp>

#include "ipc/peer.hpp"

namespace gantry::memory {

/// Note [Waiting for another process]
/// CUDA never completes the event of a process that was killed before the event. Nothing ends the
/// wait of a stream for such an event. A helper stream that waits in its place does not help: then
/// every synchronization of the context hangs. So no stream waits for an exporter's event.
/// Instead, the stream waits for a host semaphore: a word in page-locked memory. The thread of a
/// CompletionQueue polls the event and signals the semaphore when the event is complete.
/// If the exporter has ended and the event is not complete, the thread signals as well. The next
/// synchronizing call of the importing device then throws PeerLostError.

/// Makes later work on `stream` wait until `event` is complete or `peer` has ended. The stream is
/// not being captured; `event` is one of `peer`, opened for the stream's device.
/// Thread safety: any thread.
/// Throws: CudaError, OutOfMemoryError, std::system_error without a thread; nothing waits then.
void wait_with_semaphore(NativeStream stream, std::shared_ptr<IpcPeer> peer, NativeEvent event);

}  // namespace gantry::memory
