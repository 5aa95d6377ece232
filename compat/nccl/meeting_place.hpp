// The contents of a ncclUniqueId: where the ranks of a group meet.
#pragma once

#include <memory>
#include <string>

#include <gantry/extend/store.hpp>

#include "compat/nccl/types/api.hpp"

namespace gantry::nccl_api {

// The address and the secret of a store that the ranks of one group share.
struct MeetingPlace {
  std::string address;
  std::string token;

  // Starts a store that ranks of any machine reach, or of this one without libcrypto, and keeps it.
  // Throws: Error.
  static MeetingPlace open();
  // Throws: InvalidArgument unless open() made it, in any process.
  static MeetingPlace parse(const ncclUniqueId& id);
  [[nodiscard]] ncclUniqueId id() const;
  // The store of open(), which the caller keeps from now on; null if another process has it.
  [[nodiscard]] std::shared_ptr<StoreServer> take_server() const;
  // Keeps a store again whose group was not made.
  void keep_server(std::shared_ptr<StoreServer> server) const;
};

}  // namespace gantry::nccl_api
