#include "collectives/communicator/call_ledger.hpp"

#include <algorithm>
#include <utility>

#include <gantry/collectives/collective_mismatch.hpp>
#include <gantry/core/error.hpp>

#include "collectives/bootstrap/failure_note.hpp"
#include "collectives/control/segment.hpp"
#include "collectives/traced_collective.hpp"
#include "job/flight_file.hpp"

namespace gantry {

void CallFaults::add(CallFault fault, bool is_unreported) {
  const std::lock_guard lock(mutex_);
  // A graph may have run the call before.
  faults_.insert_or_assign(fault.call, Entry{std::move(fault.error), is_unreported});
  if (faults_.size() > kKept) faults_.erase(faults_.begin());
  update_unreported();
}

std::exception_ptr CallFaults::oldest() {
  const std::lock_guard lock(mutex_);
  return faults_.empty() ? nullptr : faults_.begin()->second.error;
}

void CallFaults::raise(std::uint64_t call) {
  const std::lock_guard lock(mutex_);
  if (const auto found = faults_.find(call); found != faults_.end()) report(found->second);
}

void CallFaults::raise_unreported() {
  if (!has_unreported()) return;
  const std::lock_guard lock(mutex_);
  for (auto& [call, entry] : faults_) {
    if (entry.is_unreported) report(entry);
  }
}

void CallFaults::update_unreported() {
  has_unreported_.store(
      std::ranges::any_of(faults_, [](const auto& it) { return it.second.is_unreported; }),
      std::memory_order_release);
}

void CallFaults::report(Entry& entry) {
  entry.is_unreported = false;
  update_unreported();
  std::rethrow_exception(entry.error);
}

CallLedger::CallLedger(const Members& members, const TransportSet& transports)
    : members_(members), transports_(transports) {
  add_fault_source(*this);
}

CallLedger::~CallLedger() { remove_fault_source(*this); }

void CallLedger::number(CollectiveCall& call) {
  if (call.continues) return;
  const std::uint64_t number =
      is_message(call.what.kind) ? flight::kMessageBit | ++messages_ : ++collectives_;
  call.what.call = static_cast<std::int64_t>(number);
}

void CallLedger::record(const ResolvedCall& call, const Stream& stream, bool is_grouped) const {
  if (call.continues) return;
  TracedCollective::note_algorithm(call.choice.algorithm);
  if (!control()) return;
  control()->record(call, call.choice.algorithm, call.message_bytes, stream.id(), is_grouped);
}

void CallLedger::tell_failure(const Descriptor& what) {
  if (!control() && transports_.is_broken()) loss_is_known_ = true;
  try {
    throw;
  } catch (const CollectiveMismatch& error) {
    if (control()) {
      control()->report_mismatch(error);
    } else {
      report_to_launcher({.kind = FailureKind::mismatch, .message = error.what()});
    }
  } catch (const CaptureError&) {  // every rank throws the same error
  } catch (const PeerLostError& error) {
    if (!control()) return;
    loss_is_known_ = true;
    control()->diagnose_loss(error.rank());  // Note [One diagnosis]
    control()->abort();
  } catch (const TimeoutError& error) {
    if (!control()) return;
    loss_is_known_ = true;
    control()->diagnose_timeout(what, error);
  } catch (...) {
    // The other ranks wait for this rank's part of the operation.
    if (control()) control()->abort();
  }
}

void CallLedger::require_usable() {
  if (!control()) return;
  // An earlier mismatch of all ranks is not thrown here: ranks that have not detected it yet make
  // this call, so this rank must make it too.
  const auto reported = control()->fault();
  const bool is_fatal = reported && (control()->broken() || flight::is_message(reported->call) ||
                                     reported->fault() == OperationFault::overlap);
  if (is_fatal) {
    if (const auto failed = take_fault()) faults_.raise(*failed);
  }
  require_intact();
}

void CallLedger::require_intact() {
  if (!control()) return transports_.require_intact();
  if (!control()->broken()) return;
  loss_is_known_ = true;
  control()->require_intact();
}

std::optional<std::uint64_t> CallLedger::take_fault() {
  if (!control()->has_fault()) return std::nullopt;
  auto fault = control()->take_fault();
  if (!fault) return std::nullopt;
  const std::uint64_t call = fault->call;
  bool is_news = true;
  if (control()->broken()) {
    is_news = !loss_is_known_.exchange(true);
    // The device reports only the first fault. Messages have their own numbers.
    first_lost_.lower(flight::is_message(call) ? 0 : call);
  } else {
    first_mismatch_.lower(call);
  }
  faults_.add(std::move(*fault), is_news);
  return call;
}

std::exception_ptr CallLedger::failure() noexcept {
  try {
    if (!control()) {
      transports_.require_intact();
      return nullptr;
    }
    if (control()->broken()) control()->require_intact();
    (void)take_fault();
    return faults_.oldest();
  } catch (...) {
    return std::current_exception();
  }
}

bool CallLedger::has_fault() const noexcept {
  if (!control()) return !loss_is_known_ && transports_.is_broken();
  return (control()->has_fault() || faults_.has_unreported()) &&
         !(loss_is_known_ && control()->broken());
}

void CallLedger::raise_fault() {
  if (!control()) {
    if (!loss_is_known_.exchange(true)) transports_.require_intact();
    return;
  }
  (void)take_fault();
  faults_.raise_unreported();
}

void CallLedger::check(std::uint64_t call, bool pending) {
  if (!control()) {
    if (transports_.is_broken()) loss_is_known_ = true;
    return transports_.require_intact();
  }
  (void)take_fault();
  faults_.raise(call);
  faults_.raise_unreported();
  if (pending || call >= first_lost_.get()) require_intact();
  if (pending || flight::is_message(call)) return;
  // A device reports no second mismatch before its first one is taken, and none of blocks between
  // other ranks.
  if (call > first_mismatch_.get() || control()->has_block_counts(call)) control()->verify(call);
}

}  // namespace gantry
