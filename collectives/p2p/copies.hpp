#pragma once

#include <cstdint>

#include <gantry/device/driver.hpp>
#include <gantry/streams/stream.hpp>

#include "collectives/p2p/registrations.hpp"
#include "collectives/protocol/plan.hpp"
#include "collectives/transport.hpp"

namespace gantry {

// Operations on registered memory, by copy engines; see Note [Phases].
class Copies {
 public:
  Copies(const protocol::Group& group, const Registrations& registrations, int device);
  ~Copies();
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // Where peers would read the input of `call`; 0 if it cannot be done so.
  std::uint64_t place_of(const CollectiveCall& call) const;
  // Enqueues `call`, whose place is known.
  void run(const CollectiveCall& call, const Stream& stream);

 private:
  protocol::Phase phase(const CollectiveCall& call, std::uint32_t step) const;
  void gather_shares(const CollectiveCall& call, const Stream& stream);
  void reduce_parts(const CollectiveCall& call, const Stream& stream);

  const protocol::Group& group_;
  const Registrations& registrations_;
  Stream side_;  // for this rank's own share, beside those of others
  NativeEvent forked_;
  NativeEvent joined_;
};

}  // namespace gantry
