#include "collectives/hierarchical/transport.hpp"

#include <exception>

#include <gantry/core/error.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "collectives/control/segment.hpp"
#include "collectives/hierarchical/run.hpp"
#include "device/platform/sync_debug_driver.hpp"

namespace gantry {

HierarchicalTransport::HierarchicalTransport(HierarchyParts layers)
    : everyone_(layers.everyone),
      map_(std::move(layers.map)),
      all_(std::move(layers.all)),
      node_(std::move(layers.node)),
      column_(std::move(layers.column)),
      check_node_(std::move(layers.check_node)) {
  if (!map_.is_hierarchical() || map_.ranks() != everyone_.size) {
    throw InvalidArgument(
        "hierarchical transport: expected several nodes of equally many ranks, more than one each");
  }
  if (!column_) column_ = all_->among(map_.column(map_.index_of(everyone_.rank)));
}

End HierarchicalTransport::run(const ResolvedCall& call, const Stream& stream) {
  const Descriptor& what = call.what;
  if (call.is_uneven() || all_->is_small(what)) return all_->run(call, stream);
  // Scratch memory belongs to the stream that uses it.
  const StreamGuard guard(stream);
  Run run{*this, call, stream};
  const auto by_levels = [&](void (Run::*operation)()) {
    all_->verify(call, stream);
    try {
      (run.*operation)();
      if (check_node_) {
        // Kernels of a node that lost a rank end without a result, which must not be used.
        const BlockingIsNeeded needed;
        stream.record().synchronize();
        check_node_();
      }
    } catch (const PeerLostError&) {
      // A rank of this node may have left because of a rank elsewhere, which the links report.
      std::exception_ptr cause = std::current_exception();
      try {
        all_->verify(call, stream);
      } catch (const PeerLostError&) {
        cause = std::current_exception();
      } catch (...) {  // less specific than the original error
      }
      abort();
      std::rethrow_exception(cause);
    } catch (...) {
      abort();  // The other ranks wait for this rank's part.
      throw;
    }
    all_->throw_rejection();
    return End{};
  };
  switch (what.kind) {
    case CollectiveKind::barrier:
    case CollectiveKind::send:
    case CollectiveKind::recv:
      return all_->run(call, stream);
    case CollectiveKind::all_reduce:
      return by_levels(&Run::all_reduce);
    case CollectiveKind::reduce:
      return by_levels(&Run::reduce);
    case CollectiveKind::broadcast:
      return by_levels(&Run::broadcast);
    case CollectiveKind::all_gather:
      return by_levels(&Run::all_gather);
    case CollectiveKind::reduce_scatter:
      return by_levels(&Run::reduce_scatter);
    case CollectiveKind::gather:
      return by_levels(&Run::gather);
    case CollectiveKind::scatter:
      return by_levels(&Run::scatter);
    case CollectiveKind::all_to_all:
      return by_levels(&Run::all_to_all);
  }
  __builtin_unreachable();
}

}  // namespace gantry
