#include "collectives/host/stream.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace gantry {

namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr std::size_t kBufferBytes = std::size_t{64} << 10;

HostStream::Outcome outcome_of(ssize_t moved) {
  if (moved > 0) return HostStream::Outcome::moved;
  const bool waits = moved < 0 && (errno == EAGAIN || errno == EINTR);
  return waits ? HostStream::Outcome::blocked : HostStream::Outcome::ended;
}

}  // namespace

short HostStream::wanted() const {
  return static_cast<short>((outgoing_.empty() ? 0 : POLLOUT) | (awaited_.empty() ? 0 : POLLIN));
}

HostStream::Outcome HostStream::progress() {
  Outcome result = Outcome::blocked;
  const auto run = [&](auto step) {
    const Outcome outcome = step();
    if (outcome == Outcome::blocked) return false;
    result = outcome;
    return outcome == Outcome::moved;
  };
  // Receive first: a rank that sent its last message and left accepts no more data.
  while (!awaited_.empty() && run([&] { return receive_some(); })) {
  }
  if (result == Outcome::ended || result == Outcome::too_long) return result;
  while (!outgoing_.empty() && run([&] { return send_some(); })) {
  }
  return result;
}

HostStream::Outcome HostStream::send_some() {
  const Outgoing& message = outgoing_.front();
  const std::uint64_t length = message.head.size() + message.body.size();
  const std::array<std::span<const std::byte>, 3> segments{std::as_bytes(std::span(&length, 1)),
                                                           message.head, message.body};
  std::array<iovec, 3> parts{};
  std::size_t count = 0;
  std::size_t skip = sent_;
  for (const auto& segment : segments) {
    const std::size_t skipped = std::min(skip, segment.size());
    skip -= skipped;
    if (skipped == segment.size()) continue;
    parts[count++] = {const_cast<std::byte*>(segment.data() + skipped), segment.size() - skipped};
  }
  msghdr header{};
  header.msg_iov = parts.data();
  header.msg_iovlen = count;
  const ssize_t moved = sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  const Outcome outcome = outcome_of(moved);
  if (outcome != Outcome::moved) return outcome;
  sent_ += static_cast<std::size_t>(moved);
  if (sent_ == kLengthBytes + length) {
    outgoing_.erase(outgoing_.begin());
    sent_ = 0;
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

HostStream::Outcome HostStream::receive_some() {
  Incoming& message = *awaited_.front();
  if (!has_length_) {
    if (end_ - begin_ < kLengthBytes) return refill();
    std::memcpy(&length_, buffer_.data() + begin_, kLengthBytes);
    begin_ += kLengthBytes;
    has_length_ = true;
    if (length_ > message.buffer.size()) return Outcome::too_long;
  }
  const std::size_t buffered = std::min<std::size_t>(end_ - begin_, length_ - received_);
  if (buffered > 0)
    std::memcpy(message.buffer.data() + received_, buffer_.data() + begin_, buffered);
  begin_ += buffered;
  received_ += buffered;
  if (received_ < length_) {
    if (length_ - received_ < kBufferBytes / 4) return refill();
    // Receive long messages directly into their buffer.
    const ssize_t got =
        recv(socket_.get(), message.buffer.data() + received_, length_ - received_, MSG_DONTWAIT);
    const Outcome outcome = outcome_of(got);
    if (outcome != Outcome::moved) return outcome;
    received_ += static_cast<std::size_t>(got);
  }
  if (received_ == length_) {
    message.bytes = length_;
    awaited_.erase(awaited_.begin());
    received_ = 0;
    has_length_ = false;
  }
  return Outcome::moved;
}

}  // namespace gantry
