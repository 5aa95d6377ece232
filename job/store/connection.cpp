#include "job/store/connection.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
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

bool Connection::send_parts(std::string head, std::string_view tail) {
  if (unsent.size() + head.size() + tail.size() + sizeof(MessageTag) > kMaxUnsentBytes)
    return false;
  MessageTag tag{};
  std::string_view end;
  if (seal) {
    tag = seal->close(head, tail);
    end = {reinterpret_cast<const char*>(tag.data()), tag.size()};
  }
  const std::array<std::string_view, 3> message{head, tail, end};
  std::size_t sent = 0;
  if (unsent.empty()) {
    std::array<iovec, message.size()> parts{};
    std::transform(message.begin(), message.end(), parts.begin(), part_of);
    msghdr header{};
    header.msg_iov = parts.data();
    header.msg_iovlen = parts.size();
    ssize_t count = 0;
    do {
      count = sendmsg(fd.get(), &header, MSG_NOSIGNAL);
    } while (count < 0 && errno == EINTR);
    if (count < 0 && errno != EAGAIN) return true;  // as flush()
    sent = count < 0 ? 0 : static_cast<std::size_t>(count);
  }
  for (const std::string_view part : message) {
    const std::size_t skipped = std::min(sent, part.size());
    sent -= skipped;
    if (skipped < part.size()) unsent.append(part.substr(skipped));
  }
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
