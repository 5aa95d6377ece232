// The thread that serves importers.
#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "core/processes/background_thread.hpp"
#include "device/drivers/background_calls.hpp"
#include "ipc/exporter.hpp"
#include "ipc/mirrors.hpp"

namespace gantry::memory {
namespace {

// The interval between checks of importers whose end no descriptor signals.
constexpr int kWatchIntervalMs = 100;

struct ReceivedRequest {
  IpcOffer offer;  // a request that is no offer is its beginning
  std::vector<UniqueFd> descriptors;
};

std::optional<ReceivedRequest> receive_request(const UniqueFd& socket, bool& is_open) {
  auto packet = receive_packet(socket, sizeof(IpcOffer));
  if (!packet) return std::nullopt;
  ReceivedRequest received{.offer = {}, .descriptors = std::move(packet->descriptors)};
  IpcRequest& request = received.offer.request;
  const std::size_t bytes = packet->bytes.size();
  is_open = bytes == sizeof request || bytes == sizeof received.offer;
  if (!is_open) return std::nullopt;
  std::memcpy(&received.offer, packet->bytes.data(), bytes);
  const bool is_offer =
      request.kind == IpcRequest::Kind::offer || request.kind == IpcRequest::Kind::withdrawal;
  is_open = is_offer == (bytes == sizeof received.offer);
  if (!is_open) return std::nullopt;
  return received;
}

int send_reply(const UniqueFd& socket, const IpcRequest& request, IpcReply reply,
               std::span<const int> descriptors = {}) {
  reply.id = request.id;
  return send_packet(socket, std::as_bytes(std::span(&reply, 1)), descriptors);
}

IpcReply error_reply(const std::string& error) {
  IpcReply reply;
  error.copy(reply.error, sizeof reply.error - 1);
  return reply;
}

IpcReply send_error_reply(int error) {
  return error_reply(
      fmt::format("failed to send descriptors: {}{}", std::strerror(error), remedy_for(error)));
}

IpcReply reply_to_offer(const ProcessStamp& sender, const ReceivedRequest& received) {
  IpcReply reply;
  try {
    const IpcOffer& offer = received.offer;
    const auto mirrors = Mirrors::find(offer.mirrors);
    // A group that has ended has unmapped everything.
    if (offer.request.kind == IpcRequest::Kind::withdrawal) {
      if (mirrors != nullptr) mirrors->unmap(sender, offer);
    } else if (mirrors != nullptr) {
      reply.address =
          reinterpret_cast<std::uint64_t>(mirrors->map(sender, offer, received.descriptors));
    } else {
      return error_reply("the group has ended");
    }
    reply.is_ok = 1;
  } catch (const std::exception& failure) {
    return error_reply(failure.what());
  }
  return reply;
}

// Serves this process's exports to other processes.
//
// One thread, never joined, because the process may end at any moment: Note [Background threads at
// exit]. It takes no signals and holds no lock in driver calls. An importer that does not read its
// replies delays no other one.
class IpcService {
 public:
  [[nodiscard]] std::uint64_t start();

 private:
  void run();
  // Replies to the guests that have said something.
  void hear_guests();
  void accept_all();
  void serve(IpcConsumer& consumer);
  // Replies to the first packet of a connection. Returns false once the connection has become a
  // consumer or was refused.
  [[nodiscard]] bool handshake(UniqueFd& socket);
  // Returns false if the connection must be closed.
  [[nodiscard]] bool reply_to(const ReceivedRequest& received, IpcConsumer& consumer);

  std::mutex mutex_;
  bool started_ = false;
  std::uint64_t nonce_ = 0;
  UniqueFd listener_;
  std::deque<UniqueFd> guests_;  // accepted connections before their handshake, oldest first
};

std::uint64_t IpcService::start() {
  const std::lock_guard lock(mutex_);
  if (started_) return nonce_;
  std::random_device random;
  nonce_ = std::uint64_t{random()} << 32 | random();
  listener_ = listen_ipc(ipc_socket_name(this_process(), nonce_));
  static_cast<void>(IpcExporter::instance());
  start_background_thread("gantry-ipc", [this] { run(); }).detach();
  started_ = true;
  return nonce_;
}

void IpcService::run() {
  std::vector<pollfd> polls;
  for (;;) {
    const auto consumers = IpcExporter::instance().consumers();
    polls.assign(1, {listener_.get(), POLLIN, 0});
    for (const UniqueFd& socket : guests_) polls.push_back({socket.get(), POLLIN, 0});
    const std::size_t first_consumer = polls.size();
    int timeout_ms = -1;
    for (const auto& consumer : consumers) {
      // The socket is -1 after a disconnect: then only the end of the process is polled.
      polls.push_back({consumer->socket.get(), POLLIN, 0});
      polls.push_back({consumer->watch.descriptor(), POLLIN, 0});
      if (consumer->watch.descriptor() < 0) timeout_ms = kWatchIntervalMs;
    }
    if (::poll(polls.data(), polls.size(), timeout_ms) < 0) continue;
    const ExitLock::Shared held(background_calls());
    if (!held) return;
    try {
      bool has_ended = false;
      for (std::size_t i = 0; i < consumers.size(); ++i) {
        if (polls[first_consumer + 2 * i].revents != 0) serve(*consumers[i]);
        has_ended |= consumers[i]->watch.descriptor() < 0
                         ? consumers[i]->has_ended()
                         : polls[first_consumer + 2 * i + 1].revents != 0;
      }
      if (has_ended) IpcExporter::instance().sweep();
      hear_guests();
      if (polls[0].revents != 0) accept_all();
    } catch (const std::exception&) {
      // Out of memory or descriptors. The importer concerned sees a closed connection or an error.
    }
  }
}

void IpcService::hear_guests() {
  std::erase_if(guests_, [this](UniqueFd& socket) {
    pollfd poll{socket.get(), POLLIN, 0};
    return ::poll(&poll, 1, 0) > 0 && !handshake(socket);
  });
}

void IpcService::accept_all() {
  errno = 0;
  while (UniqueFd socket = accept_ipc(listener_)) {
    guests_.push_back(std::move(socket));
    if (guests_.size() <= kMostIpcGuests) continue;
    hear_guests();  // an importer among many connections has said who it is
    if (guests_.size() > kMostIpcGuests) guests_.pop_front();
  }
  // Out of descriptors: the connection stays in the kernel's queue, so pause before the next try.
  if (errno == EMFILE || errno == ENFILE) ::poll(nullptr, 0, 10);
}

bool IpcService::handshake(UniqueFd& socket) {
  bool is_open = true;
  const auto received = receive_request(socket, is_open);
  if (!received) return is_open;
  const IpcRequest* const request = &received->offer.request;
  const auto credentials = credentials_of(socket);
  std::string error;
  if (request->protocol != IpcRequest::kProtocol || request->kind != IpcRequest::Kind::handshake) {
    error = fmt::format("expected protocol {}; both processes need the same version of gantry",
                        IpcRequest::kProtocol);
  } else if (request->nonce != nonce_ || !credentials || credentials->pid != request->process.pid ||
             has_ended(request->process)) {
    error = "expected credentials that match the handshake";
  }
  if (!error.empty()) {
    static_cast<void>(send_reply(socket, *request, error_reply(error)));
    return false;
  }
  IpcExporter& exporter = IpcExporter::instance();
  std::shared_ptr<IpcConsumer> consumer;
  try {
    consumer = exporter.add_consumer(socket, request->process);
  } catch (const std::exception& failure) {
    // An explicit error: a closed connection would not tell that this process lacks a resource.
    static_cast<void>(send_reply(socket, *request, error_reply(failure.what())));
    return false;
  }
  IpcReply reply;
  reply.is_ok = 1;
  const int tables[] = {exporter.slots().descriptor().get(),
                        consumer->references.descriptor().get()};
  if (const int failed = send_reply(consumer->socket, *request, reply, tables); failed != 0) {
    static_cast<void>(send_reply(consumer->socket, *request, send_error_reply(failed)));
    exporter.disconnect(*consumer);
  }
  return false;
}

void IpcService::serve(IpcConsumer& consumer) {
  bool is_open = true;
  while (is_open) {
    const auto received = receive_request(consumer.socket, is_open);
    if (!received) break;
    is_open = reply_to(*received, consumer);
  }
  if (!is_open) IpcExporter::instance().disconnect(consumer);
}

bool IpcService::reply_to(const ReceivedRequest& received, IpcConsumer& consumer) {
  const IpcRequest& request = received.offer.request;
  if (request.slot >= kIpcSlots) return false;
  switch (request.kind) {
    case IpcRequest::Kind::handshake:
      return false;
    case IpcRequest::Kind::released:
      IpcExporter::instance().sweep_slot(request.slot);
      return true;
    case IpcRequest::Kind::offer:
    case IpcRequest::Kind::withdrawal:
      return send_reply(consumer.socket, request, reply_to_offer(consumer.process(), received)) ==
             0;
    case IpcRequest::Kind::chunks:
      break;
  }
  const auto chunks = IpcExporter::instance().chunks(request.slot, request.generation);
  if (!chunks || consumer.references[request.slot].load() == 0) {
    return send_reply(consumer.socket, request, error_reply("the block was freed")) == 0;
  }
  IpcReply reply;
  reply.is_ok = 1;
  reply.total = static_cast<std::uint32_t>(chunks->size());
  std::vector<UniqueFd> descriptors;
  std::vector<int> numbers;
  try {
    for (std::size_t i = request.first; i < chunks->size() && numbers.size() < IpcReply::kChunks;
         ++i) {
      const Chunk& span = (*chunks)[i];
      reply.bytes[numbers.size()] = span.bytes;
      descriptors.push_back(driver().export_chunk(span.native));
      numbers.push_back(descriptors.back().get());
    }
  } catch (const std::exception& failure) {
    return send_reply(consumer.socket, request, error_reply(failure.what())) == 0;
  }
  reply.count = static_cast<std::uint32_t>(numbers.size());
  const int error = send_reply(consumer.socket, request, reply, numbers);
  if (!is_local_resource_error(error)) return error == 0;
  return send_reply(consumer.socket, request, send_error_reply(error)) == 0;
}

}  // namespace

std::uint64_t start_ipc_service() {
  static auto& service = *new IpcService();
  return service.start();
}

}  // namespace gantry::memory
