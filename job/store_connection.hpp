#pragma once

#include <string_view>

#include <gantry/extend/unique_fd.hpp>

#include "job/byte_queue.hpp"
#include "job/store_messages.hpp"

namespace gantry::store {

/// A StoreServer's end of a connection to one client.
struct Connection {
  UniqueFd fd;
  Splitter input;
  ByteQueue unsent;
  int rank = -1;
  bool introduced = false;
  bool has_deregistered = false;
  bool wants_write = false;

  /// Sends as much of `unsent` as the socket takes. A failed connection drops the rest. It is not
  /// dead yet: messages that came before the failure are still to be read.
  void flush();
};

}  // namespace gantry::store
