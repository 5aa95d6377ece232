#include "collectives/own_copy.hpp"

#include <gantry/extend/driver.hpp>

namespace gantry {

namespace {

// A shorter copy takes less time than the order between two streams.
constexpr std::size_t kLeastBesideBytes = std::size_t{4} << 20;

}  // namespace

OwnCopy::OwnCopy(CollectiveCall& call) {
  if (!copies_own(call)) return;
  to_ = call.out;
  to_block_ = call.out_block;
  from_ = call.in;
  bytes_ = static_cast<std::size_t>(call.what.bytes());
  call.out = const_cast<void*>(call.in);
  call.out_block = call.in_block;
}

void OwnCopy::begin(ResolvedCall& call, const Stream& stream) {
  if (to_ == nullptr) return;
  if (call.choice.algorithm == Algorithm::ll || call.choice.algorithm == Algorithm::ll128) {
    call.out = to_;
    call.out_block = to_block_;
    return;
  }
  // A body of a condition has one stream.
  if (bytes_ >= kLeastBesideBytes && !call.in_condition) {
    side_ = Stream::from_pool(stream.device());
    side_->wait(stream);
  }
  driver().copy(to_, from_, bytes_, side_.value_or(stream).native());
}

bool OwnCopy::complete(const Stream& stream) {
  if (side_) stream.wait(*side_);
  return side_.has_value();
}

}  // namespace gantry
