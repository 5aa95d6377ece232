#include "job/store/connection.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstddef>

namespace gantry::store {
namespace {

constexpr std::size_t kMaxUnsentBytes = std::size_t{256} << 20;

iovec part_of(std::string_view bytes) {
  return {const_cast<char*>(bytes.data()), bytes.size()};  // sendmsg() only reads
}

}  // namespace

bool Connection::send_value(Message kind, std::uint64_t id, std::string_view value) {
  return send_parts(Writer(kind, id).head_of_text(value.size()), value);
}

bool Connection::send_parts(std::string_view head, std::string_view tail) {
  const std::size_t bytes = head.size() + tail.size();
  if (unsent.size() + bytes > kMaxUnsentBytes) return false;
  std::size_t sent = 0;
  if (unsent.empty()) {
    std::array<iovec, 2> parts{part_of(head), part_of(tail)};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    ssize_t count = 0;
    do {
      count = sendmsg(fd.get(), &message, MSG_NOSIGNAL);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && errno != EAGAIN) return true;  // as flush()
    sent = count < 0 ? 0 : static_cast<std::size_t>(count);
  }
  if (sent < head.size()) unsent.append(head.substr(sent));
  const std::size_t sent_of_tail = sent > head.size() ? sent - head.size() : 0;
  if (sent_of_tail < tail.size()) unsent.append(tail.substr(sent_of_tail));
  return true;
}

void Connection::flush() {
  while (!unsent.empty()) {
    const std::string_view waiting = unsent.waiting();
    const ssize_t count = ::send(fd.get(), waiting.data(), waiting.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) return unsent.clear();
    unsent.take(static_cast<std::size_t>(count));
  }
}

}  // namespace gantry::store
