#include <gantry/collectives/gradient_buckets.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/streams/stream.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "collectives/communicator/checks.hpp"
#include "collectives/multi_gpu/buckets.hpp"
#include "collectives/multi_gpu/checks.hpp"

namespace gantry {

namespace {

constexpr std::string_view kClass = "GradientBuckets";

// A bucket with the circumstances of its step.
struct GradientBucket {
  std::vector<std::size_t> members;  // positions in the list of gradients
  std::vector<Tensor> tensors;       // of the members
  std::size_t absent = 0;            // members that are not ready
  std::vector<Stream> writers;       // streams that were current at ready()
};

// The device of the group. Throws: as the constructor, for all its arguments.
Device checked_device(const Communicator& communicator, std::span<const Tensor> gradients,
                      const GradientBucketOptions& options) {
  if (!communicator.defined()) {
    throw InvalidArgument(
        fmt::format("{}: expected a defined communicator, but got an undefined one", kClass));
  }
  if (gradients.empty()) {
    throw InvalidArgument(fmt::format("{}: expected at least one gradient, but got none", kClass));
  }
  if (options.bucket_bytes == 0) {
    throw InvalidArgument(fmt::format("{}: expected buckets of 1 byte or more, but got 0", kClass));
  }
  const Device device = communicator.device();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const std::string argument = fmt::format("gradients[{}]", i);
    require_tensor(gradients[i], device, kClass, argument);
    require_writable(gradients[i], kClass, argument);
    require_reducible(options.op, gradients[i].dtype(), options.collective, kClass);
  }
  comm::require_separate(kClass, gradients);
  return device;
}

// The buckets in the order in which a backward pass opens them.
std::vector<GradientBucket> fill(const std::vector<Tensor>& gradients, std::size_t bytes) {
  const std::vector<Tensor> backward(gradients.rbegin(), gradients.rend());
  std::vector<GradientBucket> buckets;
  for (const Bucket& bucket : make_buckets(backward, bytes)) {
    GradientBucket& filled = buckets.emplace_back();
    for (const std::size_t place : bucket.members) {
      filled.members.push_back(gradients.size() - 1 - place);
      filled.tensors.push_back(backward[place]);
    }
    filled.absent = filled.members.size();
  }
  return buckets;
}

}  // namespace

class GradientBuckets::Impl {
 public:
  Impl(const Communicator& communicator, std::vector<Tensor> gradients,
       GradientBucketOptions options)
      : communicator_(communicator),
        options_(options),
        stream_(Stream::from_pool(checked_device(communicator, gradients, options),
                                  StreamPriority::high)),
        gradients_(std::move(gradients)),
        buckets_(fill(gradients_, options.bucket_bytes)),
        bucket_of_(gradients_.size()),
        is_ready_(gradients_.size(), false) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      for (const std::size_t member : buckets_[b].members) bucket_of_[member] = b;
    }
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      by_data_.emplace(gradients_[i].data(), i);
      gradients_[i].record_stream(stream_);
    }
  }

  void ready(std::size_t index) {
    if (index >= gradients_.size()) {
      throw InvalidArgument(fmt::format("{}::ready: expected an index below {}, but got {}", kClass,
                                        gradients_.size(), index));
    }
    if (is_ready_[index]) {
      throw InvalidArgument(fmt::format(
          "{}::ready: expected each gradient once a step, but got {} twice", kClass, text(index)));
    }
    is_ready_[index] = true;
    GradientBucket& bucket = buckets_[bucket_of_[index]];
    const Stream writer = Stream::current(stream_.device());
    if (std::ranges::count(bucket.writers, writer) == 0) bucket.writers.push_back(writer);
    --bucket.absent;
    while (started_ < buckets_.size() && buckets_[started_].absent == 0) start(started_++);
  }

  // The first gradient with these elements that is not ready, or else the first one with them.
  std::size_t find(const Tensor& gradient) const {
    if (!gradient.defined()) {
      throw InvalidArgument(
          fmt::format("{}::ready: expected a gradient, but got an undefined tensor", kClass));
    }
    std::size_t found = gradients_.size();
    const auto [begin, end] = by_data_.equal_range(gradient.data());
    for (auto it = begin; it != end; ++it) {
      const Tensor& own = gradients_[it->second];
      const bool is_same = own.dtype() == gradient.dtype() && own.sizes() == gradient.sizes() &&
                           own.strides() == gradient.strides();
      if (!is_same) continue;
      const auto rank = [&](std::size_t i) { return std::pair(is_ready_[i] ? 1 : 0, i); };
      if (found == gradients_.size() || rank(it->second) < rank(found)) found = it->second;
    }
    if (found < gradients_.size()) return found;
    throw InvalidArgument(
        fmt::format("{}::ready: expected one of the {} gradients, but got another tensor {}{}",
                    kClass, gradients_.size(), name(gradient.dtype()), gradient.sizes().str()));
  }

  void finish() {
    const auto absent = std::ranges::find(is_ready_, false);
    if (absent != is_ready_.end()) {
      const auto index = static_cast<std::size_t>(absent - is_ready_.begin());
      throw InvalidArgument(
          fmt::format("{}::finish: expected every gradient to be ready, but got {}, which is not",
                      kClass, text(index)));
    }
    Stream::current(stream_.device()).wait(stream_);
    is_ready_.assign(is_ready_.size(), false);
    for (GradientBucket& bucket : buckets_) bucket.absent = bucket.members.size();
    started_ = 0;
  }

  const std::vector<Tensor>& gradients() const { return gradients_; }
  const std::vector<GradientBucket>& buckets() const { return buckets_; }

 private:
  std::string text(std::size_t index) const {
    const Tensor& gradient = gradients_[index];
    return fmt::format("gradient {}, {}{}", index, name(gradient.dtype()), gradient.sizes().str());
  }

  void start(std::size_t index) {
    GradientBucket& bucket = buckets_[index];
    for (const Stream& writer : bucket.writers) stream_.wait(writer);
    bucket.writers.clear();
    const StreamGuard guard(stream_);
    (void)communicator_.all_reduce_coalesced(bucket.tensors, options_.op, options_.collective);
  }

  const Communicator communicator_;
  const GradientBucketOptions options_;
  const Stream stream_;
  const std::vector<Tensor> gradients_;
  std::vector<GradientBucket> buckets_;
  std::vector<std::size_t> bucket_of_;  // of each gradient
  std::unordered_multimap<const void*, std::size_t> by_data_;
  std::vector<bool> is_ready_;
  std::size_t started_ = 0;  // buckets of this step, from the first one on
};

GradientBuckets::GradientBuckets(const Communicator& communicator, std::vector<Tensor> gradients,
                                 GradientBucketOptions options)
    : impl_(std::make_unique<Impl>(communicator, std::move(gradients), options)) {}

GradientBuckets::~GradientBuckets() = default;

void GradientBuckets::ready(std::size_t index) { impl_->ready(index); }

void GradientBuckets::ready(const Tensor& gradient) { impl_->ready(impl_->find(gradient)); }

void GradientBuckets::finish() { impl_->finish(); }

const std::vector<Tensor>& GradientBuckets::gradients() const noexcept {
  return impl_->gradients();
}

std::vector<std::vector<std::size_t>> GradientBuckets::buckets() const {
  std::vector<std::vector<std::size_t>> members;
  for (const GradientBucket& bucket : impl_->buckets()) members.push_back(bucket.members);
  return members;
}

}  // namespace gantry
