#include "job/store_connection.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>

namespace gantry::store {

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
