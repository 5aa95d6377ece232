#include "streams/stream_order.hpp"

#include <optional>

#include <gantry/streams/event.hpp>

namespace gantry {

void order_behind(const Stream& root, std::span<const Stream> others) {
  for (const Stream& other : others) root.wait(other);
}

void release_behind(std::span<const Stream> others, const Stream& root) {
  std::optional<Event> reached;
  for (const Stream& other : others) {
    if (other == root) continue;
    if (!reached) reached = root.record();
    other.wait(*reached);
  }
}

void order_all(std::span<const Stream> streams) {
  if (streams.empty()) return;
  order_behind(streams.front(), streams.subspan(1));
  release_behind(streams.subspan(1), streams.front());
}

}  // namespace gantry
