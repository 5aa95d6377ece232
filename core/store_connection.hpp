#pragma once

#include <string_view>

#include "core/byte_queue.hpp"
#include "core/store_wire.hpp"

namespace gantry::store {

/// A StoreServer's end of a connection to one client.
struct Connection {
  Descriptor fd;
  Splitter input;
  ByteQueue unsent;
  int rank = -1;
  bool introduced = false;
  bool goodbye = false;
  bool wants_write = false;

  /// Sends what the socket takes of `unsent`. A connection that has failed drops the rest, and is
  /// not dead yet: what came before, a goodbye perhaps, is still to be read.
  void flush();
};

}  // namespace gantry::store
