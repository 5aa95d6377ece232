#include "memory/ipc/peer.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>

#include <gantry/core/error.hpp>

#include "core/escaped_text.hpp"
#include "memory/ipc/gates.hpp"

namespace gantry::memory {
namespace {

struct Peers {
  using Key = std::pair<std::int32_t, std::uint64_t>;

  // A process that is stopped answers late; who wants another one does not wait for it.
  struct Entry {
    std::mutex connecting;          ///< so that there is one connection
    std::shared_ptr<IpcPeer> peer;  ///< guarded by the mutex of all
  };

  std::mutex mutex;
  std::map<Key, std::shared_ptr<Entry>> peers;
};

Peers& peers() {
  static auto& instance = *new Peers();
  return instance;
}

std::atomic<std::chrono::milliseconds> answer_timeout{std::chrono::seconds(60)};

Peers::Key key_of(const ProcessStamp& process) { return {process.pid, process.start_time}; }

// This process lacks something, which says nothing about the exporter.
[[noreturn]] void throw_short(const ProcessStamp& exporter, const char* verb, int error) {
  throw Error(fmt::format("import_ipc: failed to {} process {}, which exported the memory: {}{}",
                          verb, exporter.pid, std::strerror(error), remedy_for(error)));
}

[[noreturn]] void throw_late(const ProcessStamp& exporter, std::chrono::milliseconds timeout) {
  throw TimeoutError(fmt::format(
      "import_ipc: an answer of process {}, which exported the memory, was expected, but none "
      "came within {} s; it may be stopped, or out of open files (ulimit -n)",
      exporter.pid, std::chrono::duration<double>(timeout).count()));
}

[[noreturn]] void throw_refused(const ProcessStamp& exporter, const std::string& why) {
  check_running(exporter);
  throw NotSupported(
      fmt::format("import_ipc: a connection to process {}, which exported the memory, was "
                  "expected, but got '{}'; both processes must be of one user, and in one pid and "
                  "network namespace",
                  exporter.pid, why));
}

}  // namespace

std::shared_ptr<IpcPeer> IpcPeer::of(const IpcMessage& message) {
  Peers& all = peers();
  const Peers::Key key = key_of(message.exporter.process);
  std::shared_ptr<Peers::Entry> entry;
  std::shared_ptr<IpcPeer> lost;  // ends without the lock
  {
    const std::lock_guard lock(all.mutex);
    std::shared_ptr<Peers::Entry>& place = all.peers[key];
    if (place == nullptr) place = std::make_shared<Peers::Entry>();
    entry = place;
  }
  const std::lock_guard connecting(entry->connecting);
  {
    const std::lock_guard lock(all.mutex);
    if (entry->peer != nullptr && !entry->peer->is_lost()) return entry->peer;
    lost = std::move(entry->peer);
  }
  auto made = std::make_shared<IpcPeer>(message);
  const std::lock_guard lock(all.mutex);
  entry->peer = made;
  return made;
}

void IpcPeer::set_answer_timeout(std::chrono::milliseconds timeout) noexcept {
  answer_timeout = timeout;
}

void IpcPeer::forget_lost() noexcept {
  std::vector<std::shared_ptr<IpcPeer>> gone;
  Peers& all = peers();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.peers, [&](const auto& known) {
    const auto& [key, entry] = known;
    if (entry.use_count() > 1) return false;  // somebody connects
    if (entry->peer != nullptr && !entry->peer->is_lost()) return false;
    gone.push_back(std::move(entry->peer));
    return true;
  });
}

// A queue of connections that is full empties again, unless the exporter is stopped.
void IpcPeer::connect(std::uint64_t nonce) {
  const std::chrono::milliseconds timeout = answer_timeout.load();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    socket_ = connect_ipc(ipc_socket_name(process_, nonce));
    if (socket_) return;
    const int error = errno;
    if (is_own_shortage(error)) throw_short(process_, "connect to", error);
    if (error != EAGAIN) throw_refused(process_, std::strerror(error));
    check_running(process_);
    if (std::chrono::steady_clock::now() > deadline) throw_late(process_, timeout);
    ::poll(nullptr, 0, 10);
  }
}

IpcPeer::IpcPeer(const IpcMessage& message) : process_(message.exporter.process) {
  check_reachable(message.exporter);
  connect(message.nonce);
  const auto credentials = credentials_of(socket_);
  if (!credentials || credentials->pid != process_.pid) {
    throw_refused(process_, "another process behind its socket");
  }
  watch_ = ProcessWatch(process_);
  IpcReply reply;
  IpcRequest hello;
  hello.nonce = message.nonce;
  hello.process = this_process();
  IpcPacket packet = ask(hello, reply);
  if (packet.is_truncated) throw_short(process_, "take the tables of", EMFILE);
  if (!reply.ok || packet.descriptors.size() != 2) {
    throw_refused(process_,
                  reply.ok ? "an answer without tables" : escape_control_characters(reply.problem));
  }
  slots_ = std::make_unique<SlotTable>(std::move(packet.descriptors[0]));
  references_ = std::make_unique<ReferenceTable>(std::move(packet.descriptors[1]));
}

IpcPeer::~IpcPeer() {
  if (in_bad_fork()) return;
  try {
    for (const auto& [key, event] : events_) driver().destroy_event(event);
  } catch (...) {
    // The platform is shutting down; it takes the events with it.
  }
}

bool IpcPeer::acquire(std::uint32_t slot, std::uint64_t generation) {
  if (slot >= kIpcSlots) return false;
  (*references_)[slot].fetch_add(1);
  const SlotState state = SlotState::of((*slots_)[slot].load());
  if (state.is_open && state.generation == generation) return true;
  release(slot);
  return false;
}

void IpcPeer::release(std::uint32_t slot) noexcept {
  if ((*references_)[slot].fetch_sub(1) != 1) return;
  if (!SlotState::of((*slots_)[slot].load()).in_limbo) return;
  IpcRequest request;
  request.kind = IpcRequest::Kind::released;
  request.slot = slot;
  // If it does not get through, the exporter's next sweep sees the table.
  static_cast<void>(send_packet(socket_, std::as_bytes(std::span(&request, 1))));
}

IpcPacket IpcPeer::ask(IpcRequest request, IpcReply& reply) {
  const std::lock_guard lock(asking_);
  const std::chrono::milliseconds timeout = answer_timeout.load();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  request.number = ++asked_;
  const auto lost = [this](const char* what) {
    check_running(process_);
    throw PeerLostError(fmt::format(
        "import_ipc: an answer of process {}, which exported the memory, was expected, but it {}",
        process_.pid, what));
  };
  if (const int error = send_packet(socket_, std::as_bytes(std::span(&request, 1))); error != 0) {
    if (is_own_shortage(error)) throw_short(process_, "send a question to", error);
    if (error == EAGAIN) throw_late(process_, std::chrono::milliseconds(0));
    lost("closed the connection");
  }
  for (;;) {
    if (!wait_readable(socket_, watch_.descriptor(), deadline)) throw_late(process_, timeout);
    auto packet = receive_packet(socket_, sizeof reply);
    if (packet && packet->bytes.size() == sizeof reply) {
      std::memcpy(&reply, packet->bytes.data(), sizeof reply);
      // The late answer to a question that was given up is no answer to this one.
      if (reply.number != request.number) continue;
      reply.problem[sizeof reply.problem - 1] = '\0';
      return std::move(*packet);
    }
    if (packet) lost("closed the connection");
    if (is_gone()) lost("ended");
  }
}

std::vector<IpcPeer::Chunk> IpcPeer::fetch(std::uint32_t slot, std::uint64_t generation,
                                           std::size_t first, std::size_t& total) {
  IpcReply reply;
  IpcRequest request;
  request.kind = IpcRequest::Kind::chunks;
  request.slot = slot;
  request.first = static_cast<std::uint32_t>(first);
  request.generation = generation;
  IpcPacket packet = ask(request, reply);
  if (!reply.ok) {
    throw Error(
        fmt::format("import_ipc: the chunks of a block of process {} were expected, but "
                    "got '{}'",
                    process_.pid, escape_control_characters(reply.problem)));
  }
  if (reply.count != packet.descriptors.size() || reply.count > IpcReply::kChunks ||
      reply.count == 0) {
    throw Error(fmt::format(
        "import_ipc: {} descriptors of process {} were expected, but got {}; this process may have "
        "too many open files (ulimit -n)",
        reply.count, process_.pid, packet.descriptors.size()));
  }
  total = reply.total;
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < reply.count; ++i) {
    chunks.push_back({std::move(packet.descriptors[i]), reply.bytes[i]});
  }
  return chunks;
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
    IpcGates::instance().hold(stream, shared_from_this(), opened);
  }
}

}  // namespace gantry::memory
