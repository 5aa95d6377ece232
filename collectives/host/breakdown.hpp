#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/host/links.hpp"
#include "collectives/host/notice.hpp"

namespace gantry {

// Why a rank's links are unusable. Whatever broke them first, every later call throws it again.
//
// Thread safety: by the thread that exchanges.
class Breakdown {
 public:
  // `tell` brings a notice to all other ranks. `group` outlives this object.
  Breakdown(const LinkGroup& group, std::function<void(const Notice&)> tell)
      : group_(group), tell_(std::move(tell)) {}

  // Throws what broke the links, if anything did.
  void require_none() const {
    if (why_) raise();
  }
  // Tells everybody whose fault it is, remembers it, and throws. `text`: what this rank knows more
  // about it; `from`: who said so, −1 for this rank.
  [[noreturn]] void give_up(const Notice& why, std::string text = {}, int from = -1);
  // As above, over ranks that this one waited for in vain.
  [[noreturn]] void give_up_waiting(const std::vector<int>& missing);

 private:
  [[noreturn]] void raise() const;

  const LinkGroup& group_;
  std::function<void(const Notice&)> tell_;
  std::optional<Notice> why_;
  int from_ = -1;
  std::string text_;
  std::vector<int> late_;  // that this rank waited for
};

}  // namespace gantry
