#include "ipc/socket.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <gantry/core/error.hpp>

namespace gantry::memory {
namespace {

constexpr int kBacklog = 128;

struct AbstractAddress {
  explicit AbstractAddress(const std::string& name) {
    value.sun_family = AF_UNIX;
    // A leading zero byte makes the name abstract: no file is created.
    name.copy(value.sun_path + 1, sizeof value.sun_path - 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }

  sockaddr_un value{};
  socklen_t length = 0;
};

UniqueFd packet_socket(int flags) {
  return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
}

}  // namespace

std::string ipc_socket_name(const ProcessStamp& process, std::uint64_t nonce) {
  return fmt::format("gantry-ipc-{}-{}-{:016x}", process.pid, process.start_time, nonce);
}

UniqueFd listen_ipc(const std::string& name) {
  const AbstractAddress address(name);
  UniqueFd socket = packet_socket(SOCK_NONBLOCK);
  if (!socket || ::bind(socket.get(), address.get(), address.length) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    const int error = errno;
    throw Error(fmt::format("export_ipc: failed to open a socket for importers: {}{}",
                            std::strerror(error), remedy_for(error)));
  }
  return socket;
}

UniqueFd accept_ipc(const UniqueFd& listener) {
  UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return {};
  const auto credentials = credentials_of(socket);
  return credentials && credentials->user == ::geteuid() ? std::move(socket) : UniqueFd();
}

UniqueFd connect_ipc(const std::string& name) {
  const AbstractAddress address(name);
  UniqueFd socket = packet_socket(SOCK_NONBLOCK);
  if (!socket || ::connect(socket.get(), address.get(), address.length) != 0) return {};
  return socket;
}

std::optional<IpcCredentials> credentials_of(const UniqueFd& socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return std::nullopt;
  }
  return IpcCredentials{credentials.pid, credentials.uid};
}

bool is_disconnected(const UniqueFd& socket) {
  if (!socket) return true;
  pollfd poll{socket.get(), POLLRDHUP, 0};
  return ::poll(&poll, 1, 0) > 0 && (poll.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

bool is_local_resource_error(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
         error == ETOOMANYREFS;
}

const char* remedy_for(int error) {
  return error == EMFILE         ? "; raise the limit of open files (ulimit -n)"
         : error == ETOOMANYREFS ? "; raise the limit of open files (ulimit -n), which also limits "
                                   "descriptors in transit"
                                 : "";
}

int send_packet(const UniqueFd& socket, std::span<const std::byte> bytes,
                std::span<const int> descriptors) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  std::vector<std::byte> control;
  if (!descriptors.empty()) {
    control.resize(CMSG_SPACE(descriptors.size_bytes()));
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;  // a packet is sent as a whole
}

std::optional<IpcPacket> receive_packet(const UniqueFd& socket, std::size_t limit) {
  constexpr std::size_t kMostDescriptors = IpcReply::kChunks + 3;
  IpcPacket packet;
  packet.bytes.resize(limit);
  packet.descriptors.reserve(kMostDescriptors);  // nothing throws once they are received
  std::vector<std::byte> control(CMSG_SPACE(sizeof(int) * kMostDescriptors));
  iovec part{packet.bytes.data(), limit};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = -1;
  do {
    got = ::recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || is_local_resource_error(errno))) {
    return std::nullopt;
  }
  packet.bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  if (got < 0) return packet;
  packet.is_truncated = (message.msg_flags & MSG_CTRUNC) != 0;
  // A packet without bytes may carry descriptors, too.
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(header) + i * sizeof number, sizeof number);
      packet.descriptors.emplace_back(number);
    }
  }
  return packet;
}

bool wait_readable(const UniqueFd& socket, int watched,
                   std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() < 0) return false;
    pollfd polls[2] = {{socket.get(), POLLIN, 0}, {watched, POLLIN, 0}};
    const int ready = ::poll(polls, 2, static_cast<int>(std::min<long>(left.count() + 1, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the next read reports the error
  }
}

}  // namespace gantry::memory
