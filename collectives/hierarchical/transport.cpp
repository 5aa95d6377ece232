#include "collectives/hierarchical/transport.hpp"

#include <exception>
#include <memory>
#include <utility>

#include <gantry/collectives/collective_mismatch.hpp>
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
      check_node_(std::move(layers.check_node)),
      make_flat_(std::move(layers.make_flat)) {
  if (!map_.is_hierarchical() || map_.ranks() != everyone_.size) {
    throw InvalidArgument(
        "hierarchical transport: expected several nodes of equally many ranks, more than one each");
  }
  if (!column_) column_ = all_->among(map_.column(map_.index_of(everyone_.rank)));
  if (!column_->uses_nccl()) return;
  watch_ = std::make_unique<NetworkWatch>(
      everyone_, all_->links(), layers.timeout,
      NetworkWatch::Actions{.find_error = [this] { return asynchronous_error(); },
                            .abort = [this] { end_work(); }});
}

// Runs `exchange`. Its error becomes the error of this rank, unless all ranks throw it and go on.
template <class Exchange>
void HierarchicalTransport::over_links(Exchange exchange) {
  try {
    exchange();
  } catch (const CollectiveMismatch&) {
    throw;
  } catch (const CaptureError&) {
    throw;
  } catch (...) {
    if (watch_) watch_->fail(std::current_exception());
    require_intact();
    throw;
  }
}

End HierarchicalTransport::run_together(std::span<const ResolvedCall> messages,
                                        const Stream& stream) {
  require_intact();
  End end;
  over_links([&] { end = all_->run_together(messages, stream); });
  return end;
}

// Throws the error that explains the one that is being caught.
void HierarchicalTransport::rethrow_failure(const CollectiveCall& call, const Stream& stream) {
  std::exception_ptr cause = std::current_exception();
  if (watch_) {
    try {
      throw;
    } catch (const PeerLostError&) {
      watch_->await_diagnosis();
    } catch (const NcclError&) {
      watch_->await_diagnosis();
    } catch (...) {  // of this rank
    }
    watch_->fail(cause);
    watch_->require_intact();
  }
  try {
    throw;
  } catch (const PeerLostError&) {
    // A rank of this node may have left because of a rank elsewhere, which the links report.
    try {
      all_->verify(call, stream);
    } catch (const PeerLostError&) {
      cause = std::current_exception();
    } catch (...) {  // less specific than the original error
    }
  } catch (...) {  // The other ranks wait for this rank's part.
  }
  abort();
  std::rethrow_exception(cause);
}

template <class Operation>
End HierarchicalTransport::run_compared(const ResolvedCall& call, const Stream& stream,
                                        Operation operation) {
  over_links([&] { all_->verify(call, stream); });
  try {
    if (watch_) watch_->begin(stream, call);
    operation();
    if (watch_) watch_->end(stream);
    if (check_node_ || watch_) {
      // Kernels that lost a rank end without a result, which must not be used.
      const BlockingIsNeeded needed;
      stream.record().synchronize();
      require_intact();
      if (check_node_) check_node_();
    }
  } catch (...) {
    rethrow_failure(call, stream);
  }
  all_->throw_rejection();
  return End{};
}

bool HierarchicalTransport::carries_unequal_blocks(const ResolvedCall& call, const Stream& stream) {
  if (!make_flat_) return flat_ != nullptr;
  over_links([&] {
    // All ranks come here, or none does.
    all_->verify(call, stream);
    flat_ = std::exchange(make_flat_, nullptr)();
  });
  started_flat_ = flat_.get();
  return flat_ != nullptr;
}

End HierarchicalTransport::run(const ResolvedCall& call, const Stream& stream) {
  const Descriptor& what = call.what;
  const auto flat = [&] {
    End end;
    over_links([&] { end = all_->run(call, stream); });
    return end;
  };
  require_intact();
  if (call.is_uneven()) {
    if (!carries_unequal_blocks(call, stream)) return flat();
    return run_compared(call, stream, [&] { (void)flat_->run(call, stream); });
  }
  if (all_->is_small(what)) return flat();
  // Scratch memory belongs to the stream that uses it.
  const StreamGuard guard(stream);
  const auto by_levels = [&](void (Run::*operation)()) {
    Run run{*this, call, stream};
    return run_compared(call, stream, [&] { (run.*operation)(); });
  };
  switch (what.kind) {
    case CollectiveKind::barrier:
    case CollectiveKind::send:
    case CollectiveKind::recv:
      return flat();
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
