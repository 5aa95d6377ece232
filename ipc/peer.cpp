#include "ipc/peer.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>

#include <gantry/core/error.hpp>

#include "core/assert.hpp"
#include "core/text/escaped_text.hpp"
#include "ipc/lifetime.hpp"
#include "ipc/stream_semaphores.hpp"

namespace gantry::memory {
namespace {

/// The connections of this process.
struct PeerTable {
  using Key = std::pair<std::int32_t, std::uint64_t>;

  // Each exporter has a lock of its own: a stopped exporter delays no import from another one.
  struct Entry {
    std::mutex connecting;          ///< held while the connection is made
    std::shared_ptr<IpcPeer> peer;  ///< guarded by the table's mutex
  };

  std::mutex mutex;
  std::map<Key, std::shared_ptr<Entry>> peers;
};

PeerTable& peer_table() {
  static auto& instance = *new PeerTable();
  return instance;
}

std::atomic<std::chrono::milliseconds> reply_timeout{std::chrono::seconds(60)};

/// A request that waits for its reply.
struct PendingRequest {
  PendingRequest() { ++count; }
  ~PendingRequest() { --count; }
  PendingRequest(const PendingRequest&) = delete;
  PendingRequest& operator=(const PendingRequest&) = delete;

  inline static std::atomic<int> count{0};
};

// This process lacks a resource, which says nothing about the exporter.
[[noreturn]] void throw_resource_error(const ProcessStamp& exporter, const char* verb, int error) {
  throw Error(fmt::format("import_ipc: failed to {} exporter process {}: {}{}", verb, exporter.pid,
                          std::strerror(error), remedy_for(error)));
}

[[noreturn]] void throw_timeout(const ProcessStamp& exporter, std::chrono::milliseconds timeout) {
  throw TimeoutError(
      fmt::format("import_ipc: exporter process {} did not reply within {} s; check whether it is "
                  "stopped or out of open files (ulimit -n)",
                  exporter.pid, std::chrono::duration<double>(timeout).count()));
}

[[noreturn]] void throw_refused(const ProcessStamp& exporter, const std::string& cause) {
  check_running(exporter);
  throw NotSupported(
      fmt::format("import_ipc: failed to connect to exporter process {}: {}; run both processes as "
                  "one user, in one pid and network namespace",
                  exporter.pid, cause));
}

}  // namespace

std::shared_ptr<IpcPeer> IpcPeer::of(const IpcHandleFields& fields) {
  const ProcessStamp& exporter = fields.exporter.process;
  PeerTable& table = peer_table();
  std::shared_ptr<PeerTable::Entry> entry;
  std::shared_ptr<IpcPeer> lost;  // destroyed without the lock
  {
    const std::lock_guard lock(table.mutex);
    std::shared_ptr<PeerTable::Entry>& known = table.peers[{exporter.pid, exporter.start_time}];
    if (known == nullptr) known = std::make_shared<PeerTable::Entry>();
    entry = known;
  }
  const std::lock_guard connecting(entry->connecting);
  {
    const std::lock_guard lock(table.mutex);
    if (entry->peer != nullptr && !entry->peer->is_lost()) return entry->peer;
    lost = std::move(entry->peer);
  }
  auto connected = std::make_shared<IpcPeer>(fields);
  const std::lock_guard lock(table.mutex);
  GANTRY_ASSERT(entry->peer == nullptr, "one exporter has two connections");
  entry->peer = connected;
  return connected;
}

void IpcPeer::set_reply_timeout(std::chrono::milliseconds timeout) noexcept {
  reply_timeout = timeout;
}

int IpcPeer::pending_requests() noexcept { return PendingRequest::count; }

void IpcPeer::remove_lost() noexcept {
  std::vector<std::shared_ptr<IpcPeer>> lost;  // destroyed without the lock
  PeerTable& table = peer_table();
  const std::lock_guard lock(table.mutex);
  std::erase_if(table.peers, [&](const auto& known) {
    const auto& [key, entry] = known;
    if (entry.use_count() > 1) return false;  // a thread is connecting
    if (entry->peer != nullptr && !entry->peer->is_lost()) return false;
    lost.push_back(std::move(entry->peer));
    return true;
  });
}

// EAGAIN means that the exporter's queue of connections is full. It empties unless the exporter is
// stopped.
void IpcPeer::connect(std::uint64_t nonce) {
  const std::chrono::milliseconds timeout = reply_timeout.load();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    socket_ = connect_ipc(ipc_socket_name(process_, nonce));
    if (socket_) return;
    const int error = errno;
    if (is_local_resource_error(error)) throw_resource_error(process_, "connect to", error);
    if (error != EAGAIN) throw_refused(process_, std::strerror(error));
    check_running(process_);
    if (std::chrono::steady_clock::now() > deadline) throw_timeout(process_, timeout);
    ::poll(nullptr, 0, 10);
  }
}

IpcPeer::IpcPeer(const IpcHandleFields& fields) : process_(fields.exporter.process) {
  check_reachable(fields.exporter);
  connect(fields.nonce);
  // Any process may write this user into a handle. The kernel knows the real one.
  const auto credentials = credentials_of(socket_);
  if (!credentials || credentials->pid != process_.pid) {
    throw_refused(process_, "another process owns its socket");
  }
  if (credentials->user != ::geteuid()) {
    throw_refused(process_, fmt::format("its socket belongs to user {}", credentials->user));
  }
  watch_ = ProcessWatch(process_);
  IpcReply reply;
  IpcRequest handshake;
  handshake.nonce = fields.nonce;
  handshake.process = this_process();
  IpcPacket packet = send_request(handshake, reply);
  if (packet.is_truncated) throw_resource_error(process_, "receive the tables of", EMFILE);
  if (reply.is_ok == 0 || packet.descriptors.size() != 2) {
    throw_refused(process_,
                  reply.is_ok != 0 ? "malformed reply" : escape_control_characters(reply.error));
  }
  slots_ = std::make_unique<SlotTable>(std::move(packet.descriptors[0]));
  references_ = std::make_unique<ReferenceTable>(std::move(packet.descriptors[1]));
}

IpcPeer::~IpcPeer() {
  if (in_bad_fork()) return;
  try {
    for (const auto& [key, event] : events_) driver().destroy_event(event);
  } catch (...) {
    // The platform is shutting down and destroys the events.
  }
}

bool IpcPeer::acquire(std::uint32_t slot, std::uint64_t generation) {
  if (slot >= kIpcSlots) return false;
  return acquire_reference((*slots_)[slot], (*references_)[slot], generation,
                           [this, slot] { send_released(slot); });
}

void IpcPeer::release(std::uint32_t slot) noexcept {
  release_reference((*slots_)[slot], (*references_)[slot], [this, slot] { send_released(slot); });
}

void IpcPeer::send_released(std::uint32_t slot) noexcept {
  IpcRequest request;
  request.kind = IpcRequest::Kind::released;
  request.slot = slot;
  // A lost request is harmless: the exporter's next sweep reads the table.
  static_cast<void>(send_packet(socket_, std::as_bytes(std::span(&request, 1))));
}

IpcPacket IpcPeer::send_request(IpcRequest request, IpcReply& reply) {
  return send_request(request, std::as_bytes(std::span(&request, 1)), {}, reply);
}

IpcPacket IpcPeer::send_request(IpcRequest& request, std::span<const std::byte> bytes,
                                std::span<const int> descriptors, IpcReply& reply) {
  const std::lock_guard lock(request_mutex_);
  const std::chrono::milliseconds timeout = reply_timeout.load();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  request.id = ++last_request_;
  const auto throw_lost = [this](const char* event) {
    check_running(process_);
    throw PeerLostError(fmt::format("import_ipc: exporter process {} {}", process_.pid, event));
  };
  if (const int error = send_packet(socket_, bytes, descriptors); error != 0) {
    if (is_local_resource_error(error)) throw_resource_error(process_, "send a request to", error);
    if (error == EAGAIN) throw_timeout(process_, std::chrono::milliseconds(0));
    throw_lost("closed the connection");
  }
  const PendingRequest pending;
  for (;;) {
    if (!wait_readable(socket_, watch_.descriptor(), deadline)) throw_timeout(process_, timeout);
    auto packet = receive_packet(socket_, sizeof reply);
    if (packet && packet->bytes.size() == sizeof reply) {
      std::memcpy(&reply, packet->bytes.data(), sizeof reply);
      // A late reply to an earlier request that timed out.
      if (reply.id != request.id) continue;
      reply.error[sizeof reply.error - 1] = '\0';
      return std::move(*packet);
    }
    if (packet) throw_lost("closed the connection");
    if (has_ended()) throw_lost("has ended");
  }
}

std::vector<IpcPeer::Chunk> IpcPeer::fetch_chunks(std::uint32_t slot, std::uint64_t generation,
                                                  std::size_t first, std::size_t& total) {
  IpcReply reply;
  IpcRequest request;
  request.kind = IpcRequest::Kind::chunks;
  request.slot = slot;
  request.first = static_cast<std::uint32_t>(first);
  request.generation = generation;
  IpcPacket packet = send_request(request, reply);
  if (reply.is_ok == 0) {
    throw Error(
        fmt::format("import_ipc: failed to get the chunks of a block of exporter process {}: {}",
                    process_.pid, escape_control_characters(reply.error)));
  }
  if (reply.count != packet.descriptors.size() || reply.count > IpcReply::kChunks ||
      reply.count == 0) {
    throw Error(fmt::format(
        "import_ipc: expected {} descriptors from exporter process {}, but got {}; this process "
        "may have too many open files (ulimit -n)",
        reply.count, process_.pid, packet.descriptors.size()));
  }
  total = reply.total;
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < reply.count; ++i) {
    chunks.push_back({std::move(packet.descriptors[i]), reply.bytes[i]});
  }
  return chunks;
}

std::byte* IpcPeer::send_offer(IpcOffer offer, std::span<const int> descriptors) {
  IpcReply reply;
  const auto bytes = std::as_bytes(std::span(&offer, 1));
  static_cast<void>(send_request(offer.request, bytes, descriptors, reply));
  if (reply.is_ok == 0) {
    throw Error(fmt::format("process {} could not map memory of this one: {}", process_.pid,
                            escape_control_characters(reply.error)));
  }
  return reinterpret_cast<std::byte*>(reply.address);
}

NativeEvent IpcPeer::open(const NativeEventHandle& event, int device) {
  const std::lock_guard lock(events_mutex_);
  const std::pair key(device, event.bytes);
  auto found = events_.find(key);
  if (found == events_.end()) {
    const NativeEvent opened = driver().open_event(device, event);
    found = events_.emplace(key, opened).first;
  }
  return found->second;
}

void IpcPeer::wait_for(const NativeEventHandle& event, NativeStream stream) {
  const NativeEvent opened = open(event, stream.device);
  if (driver().is_capturing(stream)) {
    driver().wait_event(stream, opened);
  } else if (!driver().event_reached(opened)) {
    wait_with_semaphore(stream, shared_from_this(), opened);
  }
}

}  // namespace gantry::memory
