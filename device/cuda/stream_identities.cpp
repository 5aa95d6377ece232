#include "device/cuda/stream_identities.hpp"

namespace gantry::cuda {

StreamIdentities& StreamIdentities::instance() {
  static auto& identities = *new StreamIdentities();
  return identities;
}

StreamIdentities::Key StreamIdentities::key_of(CUstream stream) {
  return {stream, stream == CU_STREAM_PER_THREAD ? std::this_thread::get_id() : std::thread::id()};
}

void StreamIdentities::remember(CUstream stream, std::uint64_t identity) {
  const std::lock_guard lock(mutex_);
  answers_[key_of(stream)] = identity;
}

std::uint64_t StreamIdentities::known(CUstream stream) {
  const std::lock_guard lock(mutex_);
  const auto [answer, is_new] = answers_.try_emplace(key_of(stream), next_);
  if (is_new) ++next_;
  return answer->second;
}

}  // namespace gantry::cuda
