// Calls of all ranks of a group on one array per rank, compared byte by byte when all are done.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/tensor.hpp>

#include "tests/collectives/scalar_reduce.hpp"

namespace gantry::testing {

/// Elements of the ranks' arrays: the same place on every rank.
struct Place {
  std::int64_t at = 0;  ///< bytes
  std::int64_t count = 0;
  DType dtype = DType::u8;

  [[nodiscard]] Place part(std::int64_t index, std::int64_t size) const {
    return {at + index * size * static_cast<std::int64_t>(element_size(dtype)), size, dtype};
  }
};

/// One thread calls for all ranks. Bytes that no call may change are compared, too: inputs, and the
/// bytes between places.
class CallBatch {
 public:
  static constexpr std::int64_t kArrayBytes = std::int64_t{2} << 20;

  /// The tensor of a place on the calling rank.
  using View = std::function<Tensor(const Place&)>;
  using Call = std::function<void(const Communicator& rank, const View& view)>;

  explicit CallBatch(const std::vector<Communicator>& group) : group_(group) {
    for (const Communicator& rank : group_) {
      arrays_.push_back(empty({kArrayBytes}, {.dtype = u8, .device = rank.device()}));
    }
    clear();
  }

  [[nodiscard]] int size() const { return static_cast<int>(group_.size()); }
  [[nodiscard]] const Tensor& array(int rank) const {
    return arrays_[static_cast<std::size_t>(rank)];
  }

  /// A new place, `skew` elements behind an aligned address.
  Place place(DType dtype, std::int64_t count, std::int64_t skew) {
    const auto width = static_cast<std::int64_t>(element_size(dtype));
    const Place place{end_ + skew * width, count, dtype};
    end_ = (place.at + count * width + 2 * kGrain - 1) / kGrain * kGrain;
    return place;
  }
  /// True if places of so many bytes, with what lies between them, might not fit.
  [[nodiscard]] bool is_full(std::int64_t bytes) const { return end_ + bytes > kArrayBytes; }

  /// Sets the bytes of a place of `rank` before the calls, and after them unless expect() does.
  void give(int rank, const Place& place, const std::byte* bytes) {
    write(before_, rank, place, bytes);
    write(after_, rank, place, bytes);
  }
  /// Sets the bytes of a place of `rank` after the calls.
  void expect(int rank, const Place& place, const std::byte* bytes) {
    write(after_, rank, place, bytes);
  }

  /// Adds a call of every rank, on places since the previous add().
  void add(std::string what, Call call) {
    calls_.push_back({std::move(what), std::move(call), end_});
    ++added_;
  }
  [[nodiscard]] std::int64_t added() const { return added_; }

  /// Makes the calls. Returns the first call whose bytes differ, with the place; empty if none.
  std::string run() {
    for (int rank = 0; rank < size(); ++rank) upload(rank);
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      for (int turn = 0; turn < size(); ++turn) {
        // Either end begins.
        const int rank = i % 2 == 0 ? turn : size() - 1 - turn;
        const Tensor& array = this->array(rank);
        calls_[i].call(group_[static_cast<std::size_t>(rank)], [&](const Place& place) {
          const auto width = static_cast<std::int64_t>(element_size(place.dtype));
          return Tensor::from_storage(array.storage(), {place.count}, {1}, place.at / width,
                                      place.dtype);
        });
      }
    }
    std::string found;
    for (int rank = 0; rank < size() && found.empty(); ++rank) found = difference(rank);
    clear();
    return found;
  }

 private:
  static constexpr std::int64_t kGrain = 64;
  static constexpr std::byte kUntouched{0x5a};

  struct Added {
    std::string what;
    Call call;
    std::int64_t end;  // of its places
  };
  using Images = std::vector<Bytes>;

  static void write(Images& images, int rank, const Place& place, const std::byte* bytes) {
    const std::size_t size = static_cast<std::size_t>(place.count) * element_size(place.dtype);
    if (size > 0) std::memcpy(&images[static_cast<std::size_t>(rank)][place.at], bytes, size);
  }

  void clear() {
    calls_.clear();
    end_ = kGrain;
    before_.assign(group_.size(), Bytes(kArrayBytes, kUntouched));
    after_ = before_;
  }

  void upload(int rank) {
    const Bytes& bytes = before_[static_cast<std::size_t>(rank)];
    const Tensor host = empty({kArrayBytes}, {.dtype = u8});
    std::memcpy(host.data(), bytes.data(), bytes.size());
    Tensor array = this->array(rank);
    array.copy_(host);
  }

  [[nodiscard]] std::string difference(int rank) const {
    const Tensor host = array(rank).cpu();
    const Bytes& wanted = after_[static_cast<std::size_t>(rank)];
    const auto* got = static_cast<const std::byte*>(host.data());
    if (std::memcmp(got, wanted.data(), wanted.size()) == 0) return {};
    const auto at = std::mismatch(wanted.begin(), wanted.end(), got).first - wanted.begin();
    const auto* call = &calls_.front();
    std::int64_t begin = 0;
    while (call->end <= at && call != &calls_.back()) begin = (call++)->end;
    return "rank " + std::to_string(rank) + " of " + std::to_string(size()) + ": " + call->what +
           " differs at byte " + std::to_string(at - begin) + " of its places";
  }

  const std::vector<Communicator>& group_;
  std::vector<Tensor> arrays_;
  Images before_;
  Images after_;
  std::vector<Added> calls_;
  std::int64_t end_ = 0;
  std::int64_t added_ = 0;
};

}  // namespace gantry::testing
