#include "memory/ipc/service.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "core/background_thread.hpp"

namespace gantry::memory {
namespace {

// Between two questions about importers that cannot be waited for.
constexpr int kAskMs = 100;

std::optional<IpcRequest> receive_request(const UniqueFd& socket, bool& is_open) {
  const auto packet = receive_packet(socket, sizeof(IpcRequest));
  if (!packet) return std::nullopt;
  IpcRequest request;
  if (packet->bytes.size() != sizeof request) {
    is_open = false;
    return std::nullopt;
  }
  std::memcpy(&request, packet->bytes.data(), sizeof request);
  return request;
}

int send_reply(const UniqueFd& socket, const IpcRequest& question, IpcReply reply,
               std::span<const int> descriptors = {}) {
  reply.number = question.number;
  return send_packet(socket, std::as_bytes(std::span(&reply, 1)), descriptors);
}

IpcReply refusal(const std::string& why) {
  IpcReply reply;
  why.copy(reply.problem, sizeof reply.problem - 1);
  return reply;
}

IpcReply unsent(int error) {
  return refusal(
      fmt::format("failed to send descriptors: {}{}", std::strerror(error), remedy_for(error)));
}

}  // namespace

IpcService& IpcService::instance() {
  static auto& service = *new IpcService();
  return service;
}

std::uint64_t IpcService::start() {
  const std::lock_guard lock(mutex_);
  if (started_) return nonce_;
  std::random_device random;
  nonce_ = std::uint64_t{random()} << 32 | random();
  listener_ = listen_ipc(ipc_socket_name(this_process(), nonce_));
  static_cast<void>(IpcExports::instance());
  start_background_thread("gantry-ipc", [this] { run(); }).detach();
  started_ = true;
  return nonce_;
}

void IpcService::run() {
  std::vector<pollfd> polls;
  for (;;) {
    const auto consumers = IpcExports::instance().consumers();
    polls.assign(1, {listener_.get(), POLLIN, 0});
    for (const UniqueFd& socket : unauthenticated_) polls.push_back({socket.get(), POLLIN, 0});
    const std::size_t first_consumer = polls.size();
    int timeout_ms = -1;
    for (const auto& consumer : consumers) {
      // After the end of its connection, only the end of the process is of interest.
      polls.push_back({consumer->socket.get(), POLLIN, 0});
      polls.push_back({consumer->watch.descriptor(), POLLIN, 0});
      if (consumer->watch.descriptor() < 0) timeout_ms = kAskMs;
    }
    if (::poll(polls.data(), polls.size(), timeout_ms) < 0) continue;
    try {
      bool someone_ended = false;
      for (std::size_t i = 0; i < consumers.size(); ++i) {
        if (polls[first_consumer + 2 * i].revents != 0) serve(*consumers[i]);
        const bool is_asked = consumers[i]->watch.descriptor() < 0;
        someone_ended |=
            is_asked ? consumers[i]->is_gone() : polls[first_consumer + 2 * i + 1].revents != 0;
      }
      if (someone_ended) IpcExports::instance().sweep();
      std::erase_if(unauthenticated_, [this](UniqueFd& socket) {
        pollfd poll{socket.get(), POLLIN, 0};
        return ::poll(&poll, 1, 0) > 0 && !greet(socket);
      });
      if (polls[0].revents != 0) accept_all();
    } catch (const std::exception&) {
      // Out of memory or descriptors: whoever was concerned sees an end or a refusal.
    }
  }
}

void IpcService::accept_all() {
  errno = 0;
  while (UniqueFd socket = accept_ipc(listener_)) unauthenticated_.push_back(std::move(socket));
  // Out of descriptors: the connection stays in the queue, so do not ask again at once.
  if (errno == EMFILE || errno == ENFILE) ::poll(nullptr, 0, 10);
}

// Answers the first packet. False: the connection became a consumer or was refused.
bool IpcService::greet(UniqueFd& socket) {
  bool is_open = true;
  const auto request = receive_request(socket, is_open);
  if (!request) return is_open;
  const auto credentials = credentials_of(socket);
  std::string problem;
  if (request->protocol != IpcRequest::kProtocol || request->kind != IpcRequest::Kind::hello) {
    problem = fmt::format("the exporter speaks protocol {}; both processes need the same gantry",
                          IpcRequest::kProtocol);
  } else if (request->nonce != nonce_ || !credentials || credentials->pid != request->process.pid ||
             has_ended(request->process)) {
    problem = "the exporter does not know this process";
  }
  if (!problem.empty()) {
    static_cast<void>(send_reply(socket, *request, refusal(problem)));
    return false;
  }
  IpcExports& exports = IpcExports::instance();
  std::shared_ptr<IpcConsumer> consumer;
  try {
    consumer = exports.add_consumer(socket, request->process);
  } catch (const std::exception& error) {
    // The importer must hear that this process lacks something, not see its connection end.
    static_cast<void>(send_reply(socket, *request, refusal(error.what())));
    return false;
  }
  IpcReply reply;
  reply.ok = true;
  const int tables[] = {exports.slots().descriptor().get(),
                        consumer->references.descriptor().get()};
  if (const int error = send_reply(consumer->socket, *request, reply, tables); error != 0) {
    static_cast<void>(send_reply(consumer->socket, *request, unsent(error)));
    exports.hang_up(*consumer);
  }
  return false;
}

void IpcService::serve(IpcConsumer& consumer) {
  bool is_open = true;
  while (is_open) {
    const auto request = receive_request(consumer.socket, is_open);
    if (!request) break;
    is_open = answer(consumer, *request);
  }
  if (!is_open) IpcExports::instance().hang_up(consumer);
}

bool IpcService::answer(IpcConsumer& consumer, const IpcRequest& request) {
  if (request.slot >= kIpcSlots) return false;
  switch (request.kind) {
    case IpcRequest::Kind::hello:
      return false;
    case IpcRequest::Kind::released:
      IpcExports::instance().sweep_slot(request.slot);
      return true;
    case IpcRequest::Kind::chunks:
      break;
  }
  const auto chunks = IpcExports::instance().chunks(request.slot, request.generation);
  if (!chunks || consumer.references[request.slot].load() == 0) {
    return send_reply(consumer.socket, request, refusal("the block was freed")) == 0;
  }
  IpcReply reply;
  reply.ok = true;
  reply.total = static_cast<std::uint32_t>(chunks->size());
  std::vector<UniqueFd> descriptors;
  std::vector<int> numbers;
  try {
    for (std::size_t i = request.first; i < chunks->size() && numbers.size() < IpcReply::kChunks;
         ++i) {
      const ChunkSpan& span = (*chunks)[i];
      reply.bytes[numbers.size()] = span.bytes;
      descriptors.emplace_back(driver().export_chunk(span.chunk));
      numbers.push_back(descriptors.back().get());
    }
  } catch (const std::exception& error) {
    return send_reply(consumer.socket, request, refusal(error.what())) == 0;
  }
  reply.count = static_cast<std::uint32_t>(numbers.size());
  const int error = send_reply(consumer.socket, request, reply, numbers);
  if (!is_own_shortage(error)) return error == 0;
  return send_reply(consumer.socket, request, unsent(error)) == 0;
}

}  // namespace gantry::memory
