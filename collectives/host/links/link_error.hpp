#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/host/links/control_message.hpp"
#include "collectives/host/links/links.hpp"

namespace gantry {

// Says that a message of `rank` was changed on its way.
std::string forgery_text(int rank);

// The error that broke a rank's links, if there is one. Every later call throws it again.
//
// Thread safety: only the thread that exchanges.
class LinkError {
 public:
  // `broadcast` sends a control message to all other ranks. `group` outlives this object.
  LinkError(const LinkGroup& group, std::function<void(const ControlMessage&)> broadcast)
      : group_(group), broadcast_(std::move(broadcast)) {}

  // Throws the error that broke the links, if there is one.
  void require_intact() const {
    if (why_) raise();
  }
  // Records the error, broadcasts it, and throws it. `text`: details that this rank knows.
  // `from`: the rank that reported the error, −1 for this rank.
  [[noreturn]] void fail(const ControlMessage& why, std::string text = {}, int from = -1);
  // Fails with a timeout that names the ranks `missing`.
  [[noreturn]] void fail_late(const std::vector<int>& missing);

 private:
  [[noreturn]] void raise() const;

  const LinkGroup& group_;
  std::function<void(const ControlMessage&)> broadcast_;
  std::optional<ControlMessage> why_;
  int from_ = -1;
  std::string text_;
  std::vector<int> late_;  // the ranks that this rank waited for
};

}  // namespace gantry
