#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <gantry/extend/unique_fd.hpp>

#include "job/store/byte_queue.hpp"
#include "job/store/handshake.hpp"
#include "job/store/messages.hpp"

namespace gantry::store {

/// A StoreServer's end of a connection to one client.
struct Connection {
  std::uint64_t serial = 0;  ///< no other connection of the server ever has it
  UniqueFd fd;
  Splitter input;
  ByteQueue unsent;
  std::optional<Nonces> nonces;  ///< of a challenge that is on its way
  std::optional<Seal> seal;      ///< of a TCP connection after its handshake
  bool is_refused = false;       ///< the answer, and the end, come later
  int rank = -1;
  bool introduced = false;
  bool has_deregistered = false;
  bool wants_write = false;

  /// Sends a message, or puts what the socket does not take into `unsent`. False, without sending,
  /// if too much would wait there.
  bool send(std::string message) { return send_parts(std::move(message), {}); }
  /// As send(), for a reply that ends with the text field `value`, which is not copied unless it
  /// waits.
  bool send_value(Message kind, std::uint64_t id, std::string_view value);
  /// Sends as much of `unsent` as the socket takes. A failed connection drops the rest. It is not
  /// dead yet: messages that came before the failure are still to be read.
  void flush();

 private:
  bool send_parts(std::string head, std::string_view tail);
};

}  // namespace gantry::store
