#include "collectives/host/links/handshake.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "core/bytes.hpp"
#include "core/processes/descriptor_limit.hpp"

namespace gantry {

namespace {

std::string text_of(const ControlMessage& message) {
  ByteWriter<std::string> writer;
  writer.number(static_cast<std::int32_t>(message.kind)).number(message.failed_rank);
  writer.number(message.author).number(static_cast<std::int32_t>(message.source));
  return writer.bytes();
}

std::string_view name_of(LinkSide side) {
  return side == LinkSide::dialler ? "dialler" : "acceptor";
}

std::string_view text_of(const MessageTag& tag) {
  return {reinterpret_cast<const char*>(tag.data()), tag.size()};
}

}  // namespace

Key group_key(const Key& job_key, const std::vector<std::string>& addresses) {
  ByteWriter<std::string> all;
  for (const std::string& address : addresses) all.text(address);
  return derive_key(gantry::text_of(job_key), "gantry group of ranks", {all.bytes()});
}

ConnectionKey::ConnectionKey(const Key& group, const Hello& hello) {
  ByteWriter<std::string> ends;
  ends.number(hello.from).number(hello.to).number(static_cast<std::int32_t>(hello.purpose));
  key_ = derive_key(gantry::text_of(group), "gantry link",
                    {std::string_view(hello.magic.data(), hello.magic.size()), ends.bytes(),
                     gantry::text_of(hello.nonce)});
}

Key ConnectionKey::proof_of(const Hello& /*hello*/) const {
  return derive_key(gantry::text_of(key_), "hello", {});
}

Key ConnectionKey::proof_of(const Answer& answer) const {
  ByteWriter<std::string> kind;
  kind.number(static_cast<std::int32_t>(answer.kind));
  return derive_key(gantry::text_of(key_), "answer",
                    {gantry::text_of(answer.nonce), kind.bytes(), text_of(answer.message)});
}

LastWord ConnectionKey::last_word(LinkSide side, const ControlMessage& message) const {
  LastWord word{message, {}};
  const Key whole =
      derive_key(gantry::text_of(key_), "last word", {name_of(side), text_of(message)});
  std::copy_n(whole.begin(), word.tag.size(), word.tag.begin());
  return word;
}

DataTags ConnectionKey::data_tags(LinkSide side, const Key& acceptor_nonce, Secrecy secrecy) const {
  const std::string_view purpose = secrecy == Secrecy::encrypted ? "encrypted data" : "data";
  const auto tags_of = [&](LinkSide sender) {
    return MessageTags(derive_key(gantry::text_of(key_), purpose,
                                  {name_of(sender), gantry::text_of(acceptor_nonce)}),
                       sender == side ? MessageTags::End::sender : MessageTags::End::receiver);
  };
  const LinkSide other = side == LinkSide::dialler ? LinkSide::acceptor : LinkSide::dialler;
  return {tags_of(side), tags_of(other), secrecy};
}

bool is_proof(const Key& proof, const Key& given) noexcept {
  return equal_secrets(gantry::text_of(proof), gantry::text_of(given));
}

bool is_authentic(const ConnectionKey& key, LinkSide side, const LastWord& word) noexcept {
  return equal_secrets(text_of(key.last_word(side, word.message).tag), text_of(word.tag));
}

namespace {

constexpr auto kConnectTimeout = std::chrono::seconds(1);
// For an answer, where the rank has other addresses. One of them may belong to another process.
constexpr auto kAnswerTimeout = std::chrono::seconds(2);
constexpr auto kPause = std::chrono::milliseconds(10);
// For the dial of the other rank, which counts.
constexpr auto kCrossedPause = std::chrono::milliseconds(100);
// Where every address refuses: time for the reports of other ranks, which know more.
constexpr auto kRefusedTimeout = std::chrono::milliseconds(500);

void set(const Socket& socket, int level, int option, int value) {
  setsockopt(socket.get(), level, option, &value, sizeof value);
}

}  // namespace

void watch_closely(const Socket& socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 4000);
}

void wait_patiently(const Socket& socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 0);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

template <class T>
std::optional<T> PartialRead<T>::read(const Socket& socket, bool& ended) {
  while (got_ < sizeof(T)) {
    const ssize_t got = recv(socket.get(), bytes_.data() + got_, sizeof(T) - got_, MSG_DONTWAIT);
    if (got <= 0) {
      ended = got == 0 || (errno != EAGAIN && errno != EINTR);
      return std::nullopt;
    }
    got_ += static_cast<std::size_t>(got);
  }
  T result;
  std::memcpy(&result, bytes_.data(), sizeof result);
  return result;
}
template class PartialRead<Hello>;
template class PartialRead<Answer>;
template class PartialRead<LastWord>;

Dial::Dial(const Hello& hello, const Key& group_key, const RankAddress& to,
           const std::string& own_machine, Clock::time_point give_up)
    : hello_(hello),
      group_key_(group_key),
      port_(to.port),
      hosts_(to.hosts_from(own_machine)),
      give_up_(give_up) {}

short Dial::events() const { return phase_ == Phase::connecting ? POLLOUT : POLLIN; }

bool Dial::open_socket(int family) {
  const auto open = [&] {
    socket_ = Socket(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    code_ = socket_ ? 0 : errno;
    return bool{socket_};
  };
  return open() || (lacks_descriptors() && make_room_for_descriptors(1) && open());
}

bool Dial::begin_next() {
  const std::string& host = hosts_[next_host_++];
  sockaddr_storage address{};
  socklen_t length = 0;
  if (is_unix_socket(host)) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    // The null byte of an abstract name comes first.
    std::copy_n(host.begin() + 1, std::min(host.size() - 1, sizeof name.sun_path - 1),
                name.sun_path + 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + host.size());
    std::memcpy(&address, &name, sizeof name);
  } else {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo* list = nullptr;
    if (getaddrinfo(host.c_str(), std::to_string(port_).c_str(), &hints, &list) != 0) {
      code_ = EADDRNOTAVAIL;
      return false;
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
    length = list->ai_addrlen;
    std::memcpy(&address, list->ai_addr, length);
  }
  if (!open_socket(address.ss_family)) return false;
  watch_closely(socket_);
  if (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 &&
      errno != EINPROGRESS) {
    code_ = errno;
    return false;
  }
  if (is_unix_socket(host) && !unix_peer_is_trusted(socket_.get())) {
    code_ = EPERM;
    return false;
  }
  phase_ = Phase::connecting;
  next_step_ = Clock::now() + kConnectTimeout;
  return true;
}

bool Dial::has_connected() {
  socklen_t length = sizeof code_;
  pollfd entry{socket_.get(), POLLOUT, 0};
  code_ = ETIMEDOUT;
  if (poll(&entry, 1, 0) <= 0) return false;
  getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &code_, &length);
  return code_ == 0;
}

std::optional<Dial::Outcome> Dial::leave_address(int code) {
  code_ = code;
  refusals_ += code == ECONNREFUSED ? 1 : 0;
  socket_.reset();
  reading_ = {};
  phase_ = Phase::paused;
  const Clock::time_point now = Clock::now();
  next_step_ = now;
  if (next_host_ < hosts_.size()) return std::nullopt;
  const bool all_refuse = refusals_ == static_cast<int>(hosts_.size());
  // A rank that was stopped answers late, and is not lost.
  const bool may_answer = std::exchange(is_silent_, false);
  if ((now >= give_up_ && !may_answer) || (all_refuse && now - begin_ > kRefusedTimeout))
    return Outcome::failed;
  next_host_ = 0;
  refusals_ = 0;
  next_step_ = now + kPause;
  return std::nullopt;
}

Dial::Outcome Dial::step() {
  for (;;) {
    if (const std::optional<Outcome> outcome = advance()) return *outcome;
  }
}

std::optional<Dial::Outcome> Dial::advance() {
  const Clock::time_point now = Clock::now();
  switch (phase_) {
    case Phase::paused:
      if (now < next_step_) return Outcome::pending;
      if (hosts_.empty()) return Outcome::failed;
      if (!begin_next()) return leave_address(code_);
      return std::nullopt;
    case Phase::connecting:
      if (!has_connected()) {
        if (code_ == ETIMEDOUT && now < next_step_) return Outcome::pending;
        return leave_address(code_);
      }
      hello_.nonce = random_key();
      key_ = ConnectionKey(group_key_, hello_);
      hello_.proof = key_.proof_of(hello_);
      // A new connection has room for the whole of it.
      if (send(socket_.get(), &hello_, sizeof hello_, MSG_NOSIGNAL | MSG_DONTWAIT) !=
          static_cast<ssize_t>(sizeof hello_)) {
        return leave_address(errno);
      }
      phase_ = Phase::greeted;
      next_step_ = hosts_.size() > 1 ? now + kAnswerTimeout : Clock::time_point::max();
      return std::nullopt;
    case Phase::greeted:
      break;
  }
  bool ended = false;
  const std::optional<Answer> answer = reading_.read(socket_, ended);
  if (!answer && !ended) {
    if (now < next_step_) return Outcome::pending;
    is_silent_ = true;
    return leave_address(ETIMEDOUT);
  }
  // Another process listens there, or the rank is ending.
  if (!answer) return leave_address(ECONNREFUSED);
  answer_ = *answer;
  if (!is_proof(key_.proof_of(answer_), answer_.proof)) return leave_address(EKEYREJECTED);
  switch (answer->kind) {
    case Answer::Kind::welcome:
      if (!send_word({ControlMessage::Kind::confirmed, hello_.from})) {
        return leave_address(ECONNREFUSED);
      }
      if (hello_.purpose == Purpose::data) wait_patiently(socket_);
      return Outcome::connected;
    case Answer::Kind::crossed:
      (void)leave_address(0);
      next_host_ = 0;
      refusals_ = 0;
      next_step_ = Clock::now() + kCrossedPause;
      return Outcome::crossed;
    case Answer::Kind::ended:
      return Outcome::ended;
  }
  return leave_address(EPROTO);
}

void Dial::send_last(const ControlMessage& message) const noexcept {
  // A data connection ends instead. The control connection of the pair has the message.
  if (phase_ == Phase::greeted && hello_.purpose == Purpose::control) (void)send_word(message);
}

// The connection has room for the whole of it.
bool Dial::send_word(const ControlMessage& message) const noexcept {
  const LastWord word = key_.last_word(LinkSide::dialler, message);
  return send(socket_.get(), &word, sizeof word, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof word);
}

bool Dial::lacks_descriptors() const { return code_ == EMFILE || code_ == ENFILE; }

std::string Dial::problem() const {
  const bool is_unix = !hosts_.empty() && is_unix_socket(hosts_.front());
  return fmt::format("no way to rank {} at {}{}{}", hello_.to,
                     is_unix ? std::string() : fmt::format("port {} of ", port_),
                     hosts_.empty() ? "no address" : fmt::format("{}", fmt::join(hosts_, ", ")),
                     code_ == 0 ? "" : fmt::format(" ({})", std::strerror(code_)));
}

}  // namespace gantry
