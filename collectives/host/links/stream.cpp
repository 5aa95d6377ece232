#include "collectives/host/links/stream.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/assert.hpp"

namespace gantry {

namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr std::size_t kBufferBytes = std::size_t{64} << 10;
// Bytes that are sent or received at once: the tag is computed while they are in the cache. Less at
// a time is received, since nothing overlaps the tag of a message's last bytes.
constexpr std::size_t kTagBytes = std::size_t{512} << 10;
constexpr std::size_t kReceivedTagBytes = std::size_t{128} << 10;
// From this size on the tags of a message are computed aside.
constexpr std::size_t kAsideBytes = std::size_t{128} << 10;

// The parts of a message before its tag.
struct Segments {
  explicit Segments(const Outgoing& message)
      : length(message.head.size() + message.body.size()),
        parts{std::as_bytes(std::span(&length, 1)), message.head, message.body} {}
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  const std::uint64_t length;
  const std::array<std::span<const std::byte>, 3> parts;
};

// Calls `f` with the parts of the bytes from `begin` to `end` of the segments.
template <class F>
void for_each_part(std::span<const std::span<const std::byte>> segments, std::size_t begin,
                   std::size_t end, F f) {
  std::size_t at = 0;
  for (const auto& segment : segments) {
    const std::size_t first = std::clamp(begin, at, at + segment.size());
    const std::size_t last = std::clamp(end, at, at + segment.size());
    if (first < last) f(segment.subspan(first - at, last - first));
    at += segment.size();
  }
}

HostStream::Outcome outcome_of(ssize_t moved) {
  if (moved > 0) return HostStream::Outcome::moved;
  const bool waits = moved < 0 && (errno == EAGAIN || errno == EINTR);
  return waits ? HostStream::Outcome::blocked : HostStream::Outcome::ended;
}

}  // namespace

bool HostStream::has_arrived() const noexcept {
  if (begin_ < end_) return true;
  std::byte first;
  return is_connected() &&
         recv(socket_.get(), &first, sizeof first, MSG_PEEK | MSG_DONTWAIT) == sizeof first;
}

short HostStream::wanted() const {
  return static_cast<short>((outgoing_.empty() ? 0 : POLLOUT) | (awaited_.empty() ? 0 : POLLIN));
}

HostStream::Outcome HostStream::progress() {
  Outcome result = Outcome::blocked;
  bool can_send = true;
  for (bool moves = true; moves;) {
    moves = false;
    // Receive first: a rank that sent its last message and left accepts no more data.
    if (!awaited_.empty()) {
      const Outcome outcome = receive_some();
      if (outcome != Outcome::moved && outcome != Outcome::blocked) return outcome;
      moves |= outcome == Outcome::moved;
    }
    // In turns: a rank that computes tags more slowly than its peer sends would else not send.
    if (!outgoing_.empty() && can_send) {
      const Outcome outcome = send_some();
      can_send = outcome != Outcome::ended;
      moves |= outcome == Outcome::moved;
    }
    if (moves) result = Outcome::moved;
  }
  return can_send ? result : Outcome::ended;
}

void HostStream::tag_ahead(const Outgoing& message) {
  const Segments segments(message);
  const std::size_t whole = kLengthBytes + segments.length;
  if (!tags_) {
    tagged_ = whole;
    return;
  }
  const std::size_t end = std::min(whole, sent_ + kTagBytes);
  const bool is_aside = threads_ != nullptr && message.body.size() >= kAsideBytes;
  for_each_part(segments.parts, tagged_, std::max(end, tagged_),
                [&](std::span<const std::byte> part) {
                  // Length and head may not outlive this call.
                  const bool is_body = part.data() >= message.body.data() &&
                                       part.data() < message.body.data() + message.body.size();
                  if (is_aside && is_body) {
                    outgoing_aside_ = threads_->outgoing.add(tags_->outgoing, part);
                  } else {
                    tags_->outgoing.add(part);
                  }
                });
  tagged_ = std::max(end, tagged_);
  const bool is_added = threads_ == nullptr || threads_->outgoing.has_added(outgoing_aside_);
  if (tagged_ == whole && !has_tag_ && is_added) {
    tag_ = tags_->outgoing.finish();
    has_tag_ = true;
  }
}

void HostStream::seal_next_chunk(const Outgoing& message) {
  const Segments segments(message);
  const std::size_t whole = kLengthBytes + segments.length;
  const std::size_t end = std::min(whole, tagged_ + kTagBytes);
  if (sealed_.empty()) sealed_.resize(kTagBytes + sizeof(MessageTag));
  std::byte* next = sealed_.data();
  std::size_t at = tagged_;
  for_each_part(segments.parts, tagged_, end, [&](std::span<const std::byte> part) {
    if (at < kLengthBytes) {  // the receiver needs it to read the rest
      std::ranges::copy(part, next);
      tags_->outgoing.add(part);
    } else {
      tags_->outgoing.encrypt(part, next);
    }
    next += part.size();
    at += part.size();
  });
  if (end == whole) {
    const MessageTag tag = tags_->outgoing.finish();
    next = std::ranges::copy(std::as_bytes(std::span(tag)), next).out;
  }
  tagged_ = end;
  sealed_sent_ = 0;
  sealed_bytes_ = static_cast<std::size_t>(next - sealed_.data());
}

HostStream::Outcome HostStream::send_sealed() {
  const Outgoing& message = outgoing_.front();
  if (sealed_sent_ == sealed_bytes_) seal_next_chunk(message);
  const ssize_t moved = send(socket_.get(), sealed_.data() + sealed_sent_,
                             sealed_bytes_ - sealed_sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
  const Outcome outcome = outcome_of(moved);
  if (outcome != Outcome::moved) return outcome;
  sealed_sent_ += static_cast<std::size_t>(moved);
  GANTRY_ASSERT(sealed_sent_ <= sealed_bytes_, "more sealed bytes are sent than there are");
  const std::size_t whole = kLengthBytes + message.head.size() + message.body.size();
  if (tagged_ == whole && sealed_sent_ == sealed_bytes_) {
    outgoing_.erase(outgoing_.begin());
    tagged_ = 0;
    sealed_sent_ = sealed_bytes_ = 0;
  }
  return outcome;
}

HostStream::Outcome HostStream::send_some() {
  if (encrypts()) return send_sealed();
  const Outgoing& message = outgoing_.front();
  tag_ahead(message);
  const Segments segments(message);
  const std::array<std::span<const std::byte>, 4> all{
      segments.parts[0], segments.parts[1], segments.parts[2], std::as_bytes(std::span(tag_))};
  const std::size_t whole = kLengthBytes + segments.length + tag_bytes();
  const std::size_t bytes = whole - tag_bytes();
  const std::size_t ready = has_tag_ || tag_bytes() == 0 ? whole
                            : threads_ != nullptr        ? bytes
                                                         : tagged_;
  sends_wait_for_tag_ = sent_ == ready;
  if (sends_wait_for_tag_) return Outcome::blocked;
  std::array<iovec, all.size()> parts{};
  std::size_t count = 0;
  for_each_part(all, sent_, ready, [&](std::span<const std::byte> part) {
    parts[count++] = {const_cast<std::byte*>(part.data()), part.size()};
  });
  msghdr header{};
  header.msg_iov = parts.data();
  header.msg_iovlen = count;
  const ssize_t moved = sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  const Outcome outcome = outcome_of(moved);
  if (outcome != Outcome::moved) return outcome;
  sent_ += static_cast<std::size_t>(moved);
  GANTRY_ASSERT(sent_ <= whole, "more bytes of a message are sent than it has");
  if (sent_ == whole) {
    outgoing_.erase(outgoing_.begin());
    sent_ = 0;
    tagged_ = 0;
    has_tag_ = false;
  }
  return outcome;
}

HostStream::Outcome HostStream::refill() {
  if (buffer_.empty()) buffer_.resize(kBufferBytes);
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const ssize_t got =
      recv(socket_.get(), buffer_.data() + end_, buffer_.size() - end_, MSG_DONTWAIT);
  const Outcome outcome = outcome_of(got);
  if (outcome == Outcome::moved) end_ += static_cast<std::size_t>(got);
  return outcome;
}

std::span<const std::byte> HostStream::take(std::size_t bytes) {
  GANTRY_ASSERT(bytes <= end_ - begin_, "more bytes are taken than have arrived");
  const std::span<const std::byte> taken(buffer_.data() + begin_, bytes);
  begin_ += bytes;
  return taken;
}

HostStream::Outcome HostStream::receive_some() {
  Incoming& message = *awaited_.front();
  if (!has_length_) {
    if (end_ - begin_ < kLengthBytes) return refill();
    const auto length = take(kLengthBytes);
    std::memcpy(&length_, length.data(), kLengthBytes);
    has_length_ = true;
    if (tags_) tags_->incoming.add(length);
  }
  // At each call: the message stays the first one.
  if (length_ > message.buffer.size()) return Outcome::too_long;
  return received_ < length_ ? receive_body(message) : end_message(message);
}

HostStream::Outcome HostStream::receive_body(Incoming& message) {
  const auto rest = message.buffer.subspan(received_, length_ - received_);
  std::size_t count = std::min(end_ - begin_, rest.size());
  if (count > 0) {
    std::memcpy(rest.data(), take(count).data(), count);
  } else if (rest.size() < kBufferBytes / 4) {
    return refill();
  } else {
    // Receive long messages directly into their buffer.
    const ssize_t got =
        recv(socket_.get(), rest.data(),
             tags_ ? std::min(rest.size(), kReceivedTagBytes) : rest.size(), MSG_DONTWAIT);
    const Outcome outcome = outcome_of(got);
    if (outcome != Outcome::moved) return outcome;
    count = static_cast<std::size_t>(got);
  }
  if (encrypts()) {
    tags_->incoming.decrypt(rest.first(count));
  } else if (threads_ != nullptr && length_ >= kAsideBytes) {
    incoming_aside_ = threads_->incoming.add(tags_->incoming, rest.first(count));
  } else if (tags_) {
    tags_->incoming.add(rest.first(count));
  }
  received_ += count;
  return received_ < length_ ? Outcome::moved : end_message(message);
}

HostStream::Outcome HostStream::end_message(Incoming& message) {
  GANTRY_ASSERT(received_ == length_, "a message ends before its last byte");
  if (end_ - begin_ < tag_bytes()) return refill();
  receives_wait_for_tag_ = threads_ != nullptr && !threads_->incoming.has_added(incoming_aside_);
  if (receives_wait_for_tag_) return Outcome::blocked;
  if (tags_ && !tags_->incoming.accept(take(tag_bytes()))) return Outcome::forged;
  message.bytes = length_;
  awaited_.erase(awaited_.begin());
  received_ = 0;
  has_length_ = false;
  return Outcome::moved;
}

}  // namespace gantry
