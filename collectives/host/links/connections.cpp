#include "collectives/host/links/connections.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include <gantry/core/error.hpp>

#include "collectives/host/links/links.hpp"
#include "core/processes/background_thread.hpp"
#include "core/processes/descriptor_limit.hpp"

namespace gantry {

namespace {

constexpr auto kHelloTimeout = std::chrono::seconds(2);
constexpr auto kRetry = std::chrono::milliseconds(10);
// For an unreachable machine; a machine that answers late is watched by its control connection.
constexpr auto kDialTimeout = std::chrono::seconds(4);
// For a rank that has no descriptor for the connections of other ranks; the program may close some.
constexpr auto kDeafTimeout = std::chrono::seconds(30);
// Accepted connections without a greeting, beside two for each rank.
constexpr std::size_t kSpareGuests = 64;
constexpr int kMostAccepts = 256;  // in one turn
// In groups of this size all ranks are neighbours.
constexpr int kSmallGroup = 16;

std::vector<int> neighbours_of(int rank, int size) {
  std::set<int> ranks;
  if (size <= kSmallGroup) {
    for (int other = 0; other < size; ++other) ranks.insert(other);
  }
  for (int distance = 1; distance < size; distance *= 4) {
    ranks.insert((rank + distance) % size);
    ranks.insert((rank + size - distance) % size);
  }
  ranks.erase(rank);
  return {ranks.begin(), ranks.end()};
}

Socket make_eventfd() {
  Socket result(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!result) throw Error(fmt::format("host links: no eventfd: {}", std::strerror(errno)));
  return result;
}

void signal(const Socket& event) noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(event.get(), &one, sizeof one);
}

void clear(const Socket& event) noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = read(event.get(), &count, sizeof count);
}

}  // namespace

LinkDescriptors open_descriptors(RankAddress& address, Neighbourhood where) {
  LinkDescriptors result;
  result.wake = make_eventfd();
  result.news = make_eventfd();
  result.listeners = listen_for_ranks(address, where);
  return result;
}

Connections::Connections(const LinkGroup& group, std::vector<std::string> addresses,
                         LinkDescriptors descriptors)
    : group_(group),
      addresses_(std::move(addresses)),
      key_(group_key(group.key, addresses_)),
      machine_(RankAddress::parse(addresses_[static_cast<std::size_t>(group.rank)]).machine),
      is_unix_(group.where == Neighbourhood::one_user),
      neighbours_(neighbours_of(group.rank, group.size)),
      descriptors_(std::move(descriptors)),
      owner_(getpid()),
      pairs_(static_cast<std::size_t>(group.size)) {
  thread_ = start_background_thread("gantry-links", [this] { run(); });
}

Connections::~Connections() {
  if (getpid() != owner_) {  // a child of a fork: all of this is the parent's
    abandon_after_fork(std::move(thread_));
    return;
  }
  notify({ControlMessage::Kind::left, group_.rank});
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  signal(descriptors_.wake);
  thread_.join();
}

void Connections::connect_neighbours(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  for (const int rank : neighbours_) {
    if (rank < group_.rank) dial(rank, Purpose::control, deadline);
  }
  signal(descriptors_.wake);
  const auto is_connected = [&] {
    return std::all_of(neighbours_.begin(), neighbours_.end(),
                       [&](int rank) { return end_of(pair(rank), Purpose::control).is_made; });
  };
  const bool is_over =
      changed_.wait_until(lock, deadline, [&] { return failure_ || is_connected(); });
  if (is_over && is_connected()) return;
  throw Error(failure_ && !failure_->text.empty() ? failure_->text : missing_text());
}

std::string Connections::missing_text() const {
  std::vector<int> missing;
  for (const int rank : neighbours_) {
    if (!pairs_[static_cast<std::size_t>(rank)].ends[0].is_made) missing.push_back(rank);
  }
  return fmt::format("rank(s) {} did not connect{}", fmt::join(missing, ", "),
                     trouble_.empty() ? "" : fmt::format(" ({})", trouble_));
}

void Connections::post_news() noexcept { signal(descriptors_.news); }

void Connections::clear_news() noexcept { clear(descriptors_.news); }

void Connections::request(int rank) {
  const std::lock_guard lock(mutex_);
  if (pair(rank).is_wanted) return;
  pair(rank).is_wanted = true;
  connect_pair(rank);
  signal(descriptors_.wake);
}

std::vector<NewData> Connections::take_data() {
  const std::lock_guard lock(mutex_);
  std::vector<NewData> taken;
  for (const int rank : std::exchange(new_data_, {})) {
    End& end = end_of(pair(rank), Purpose::data);
    NewData& made = taken.emplace_back(NewData{rank, std::move(end.socket), std::nullopt});
    if (!is_unix_) {
      made.tags = end.key.data_tags(end.side(), end.acceptor_nonce, secrecy_to(rank));
    }
  }
  return taken;
}

// Both ranks have the addresses of both.
Secrecy Connections::secrecy_to(int rank) const {
  const auto wants = [&](int other) {
    return RankAddress::parse(addresses_[static_cast<std::size_t>(other)]).encrypts;
  };
  return wants(rank) || wants(group_.rank) ? Secrecy::encrypted : Secrecy::open;
}

std::optional<LinkFailure> Connections::why_broken() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool Connections::await_end(int rank, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return failure_ || last_ || pair(rank).has_left; });
  return pair(rank).has_left;
}

void Connections::notify(const ControlMessage& message) noexcept {
  const std::lock_guard lock(mutex_);
  send_last(message);
  changed_.notify_all();
}

void Connections::send_last(const ControlMessage& message) noexcept {
  if (last_) return;
  last_ = message;
  for (Pair& other : pairs_) {
    if (const End& control = end_of(other, Purpose::control); control.socket) {
      const LastWord word = control.key.last_word(control.side(), message);
      [[maybe_unused]] const auto sent =
          send(control.socket.get(), &word, sizeof word, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    // A rank that waits for data detects it now rather than when this process ends.
    if (const Socket& data = end_of(other, Purpose::data).socket) shutdown(data.get(), SHUT_WR);
  }
  // A rank that accepts this rank's connection only now would take its end for a death.
  for (const Dial& dial : dials_) dial.send_last(message);
  // So would one that is welcome here.
  for (const Guest& guest : guests_) {
    if (!guest.hello) continue;
    if (guest.hello->purpose == Purpose::data) {
      shutdown(guest.socket.get(), SHUT_WR);
      continue;
    }
    const LastWord word = guest.key.last_word(LinkSide::acceptor, message);
    [[maybe_unused]] const auto sent =
        send(guest.socket.get(), &word, sizeof word, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

void Connections::fail(const ControlMessage& message, std::string text, int from) noexcept {
  if (failure_) return;
  failure_ = LinkFailure{message, std::move(text), from};
  has_caused_it_ = last_.has_value();
  send_last(message);
  publish();
}

void Connections::publish() noexcept {
  changed_.notify_all();
  signal(descriptors_.news);
}

void Connections::run() {
  std::unique_lock lock(mutex_);
  while (!stops_) {
    const int timeout_ms = prepare_poll();
    lock.unlock();
    (void)poll(polled_.data(), polled_.size(), timeout_ms);
    lock.lock();
    handle_events();
    report_failure(lock);
  }
}

// The list: the fixed descriptors, control connections, guests, dials. Only this thread changes the
// last three.
int Connections::prepare_poll() {
  polled_.clear();
  polled_ranks_.clear();
  polled_.push_back({descriptors_.wake.get(), POLLIN, 0});
  for (const Socket& listener : descriptors_.listeners) {
    polled_.push_back({is_deaf_ ? -1 : listener.get(), POLLIN, 0});
  }
  Clock::time_point next = Clock::time_point::max();
  if (is_deaf_) next = Clock::now() + kRetry;
  // Not all ranks: a rank of a large group has a control connection to few of them.
  std::erase_if(watched_, [&](int rank) { return !end_of(pair(rank), Purpose::control).socket; });
  for (const int rank : watched_) {
    polled_.push_back({end_of(pair(rank), Purpose::control).socket.get(), POLLIN, 0});
    polled_ranks_.push_back(rank);
  }
  for (const Guest& guest : guests_) {
    polled_.push_back({guest.socket.get(), POLLIN, 0});
    next = std::min(next, guest.deadline);
  }
  for (const Dial& dial : dials_) {
    polled_.push_back({dial.descriptor(), dial.events(), 0});
    next = std::min(next, dial.next_step());
  }
  if (next == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 10'000));
}

void Connections::handle_events() {
  if (polled_[0].revents != 0) clear(descriptors_.wake);
  for (std::size_t i = 0; i < polled_ranks_.size(); ++i) {
    if (polled_[fixed_descriptors() + i].revents != 0) read_control(polled_ranks_[i]);
  }
  std::erase_if(guests_, [&](Guest& guest) { return !greet(guest); });
  std::erase_if(dials_, [&](Dial& dial) { return !advance(dial); });
  const auto first = polled_.begin() + 1;
  const auto last = first + static_cast<std::ptrdiff_t>(descriptors_.listeners.size());
  const auto is_ready = [](const pollfd& entry) { return entry.revents != 0; };
  if (is_deaf_ || std::any_of(first, last, is_ready)) accept_guests();
}

std::size_t Connections::most_guests() const { return 2 * pairs_.size() + kSpareGuests; }

bool Connections::drop_oldest_guest() {
  const auto oldest =
      std::ranges::find_if(guests_, [](const Guest& guest) { return !guest.hello.has_value(); });
  if (oldest == guests_.end()) return false;
  if (greet(*oldest) && oldest->hello) return false;  // its greeting lay there
  const bool is_dropped = bool{oldest->socket};
  guests_.erase(oldest);
  return is_dropped;
}

void Connections::accept_guests() {
  is_deaf_ = false;
  std::size_t at = 0;
  for (int accepts = 0; accepts < kMostAccepts;) {
    Socket socket(
        accept4(descriptors_.listeners[at].get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      const int error = errno;
      const bool lacks_descriptors = error == EMFILE || error == ENFILE;
      if (lacks_descriptors && make_room_for_descriptors(1)) continue;
      if (lacks_descriptors && drop_oldest_guest()) continue;
      // The connection stays in the queue while this process has no descriptor for it.
      is_deaf_ = lacks_descriptors || error == ENOBUFS || error == ENOMEM;
      if (!is_deaf_) {
        if (++at < descriptors_.listeners.size()) continue;
        return;
      }
      trouble_ = fmt::format("cannot accept a connection: {}", std::strerror(error));
      if (!deaf_since_) deaf_since_ = Clock::now();
      // The rank at the other end waits without a deadline.
      if (lacks_descriptors && Clock::now() - *deaf_since_ > kDeafTimeout) {
        fail_without_descriptors("no descriptor for the connection of another rank");
      }
      return;
    }
    deaf_since_.reset();
    ++accepts;
    if (is_unix_ && !unix_peer_is_trusted(socket.get())) continue;
    Guest guest;
    guest.socket = std::move(socket);
    guest.deadline = Clock::now() + kHelloTimeout;
    if (greet(guest)) guests_.push_back(std::move(guest));
    if (guests_.size() > most_guests()) (void)drop_oldest_guest();
  }
}

bool Connections::greet(Guest& guest) {
  if (guest.hello) return await_confirmation(guest);
  bool ended = false;
  const std::optional<Hello> hello = guest.reading.read(guest.socket, ended);
  if (!hello) return !ended && Clock::now() < guest.deadline;
  const ConnectionKey key(key_, *hello);
  const std::optional<Answer> answer = answer_to(*hello, key);
  if (!answer) return false;
  const bool is_sent = send(guest.socket.get(), &*answer, sizeof *answer,
                            MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof *answer);
  if (!is_sent || answer->kind != Answer::Kind::welcome) return false;
  guest.hello = hello;
  guest.key = key;
  guest.own_nonce = answer->nonce;
  guest.deadline = Clock::time_point::max();
  return await_confirmation(guest);
}

bool Connections::is_expected(int rank, Purpose purpose) const {
  return std::ranges::any_of(guests_, [&](const Guest& guest) {
    return guest.hello && guest.hello->from == rank && guest.hello->purpose == purpose;
  });
}

bool Connections::await_confirmation(Guest& guest) {
  const int rank = guest.hello->from;
  const Purpose purpose = guest.hello->purpose;
  bool ended = false;
  const std::optional<LastWord> word = guest.confirming.read(guest.socket, ended);
  if (!word && !ended) return true;
  guest.hello.reset();
  if (!word) {  // the rank has given this connection up, and makes another one, or waits for one
    if (pair(rank).is_wanted) connect_pair(rank);
  } else if (!is_authentic(guest.key, LinkSide::dialler, *word)) {
    fail({ControlMessage::Kind::aborted, group_.rank}, forgery_text(rank), -1);
  } else if (word->message.kind == ControlMessage::Kind::confirmed) {
    install(rank, purpose, {std::move(guest.socket), true, false, guest.key, guest.own_nonce});
  } else {
    take_last(rank, word->message);
  }
  return false;
}

// Nothing if the connection is unauthenticated.
std::optional<Answer> Connections::answer_to(const Hello& hello, const ConnectionKey& key) {
  const Hello wanted;
  const bool is_known = hello.magic == wanted.magic && hello.to == group_.rank && hello.from >= 0 &&
                        hello.from < group_.size && hello.from != group_.rank &&
                        (hello.purpose == Purpose::data || hello.purpose == Purpose::control);
  if (!is_known || !is_proof(key.proof_of(hello), hello.proof)) return std::nullopt;
  if (!nonces_.insert(hello.nonce).second) return std::nullopt;  // it was recorded
  Answer answer;
  const End& end = end_of(pair(hello.from), hello.purpose);
  const bool dials_itself = dial_of(hello.from, hello.purpose) != dials_.end();
  const bool counts =
      end.is_made ? end.is_own || !end.socket : dials_itself && group_.rank < hello.from;
  if (last_) {
    answer.kind = Answer::Kind::ended;
    answer.message = *last_;
  } else if (counts) {
    answer.kind = Answer::Kind::crossed;
  }
  answer.nonce = random_key();
  answer.proof = key.proof_of(answer);
  return answer;
}

std::list<Dial>::iterator Connections::dial_of(int rank, Purpose purpose) {
  return std::find_if(dials_.begin(), dials_.end(), [&](const Dial& dial) {
    return dial.rank() == rank && dial.purpose() == purpose;
  });
}

void Connections::dial(int rank, Purpose purpose, Clock::time_point give_up) {
  Hello hello;
  hello.from = group_.rank;
  hello.to = rank;
  hello.purpose = purpose;
  dials_.emplace_back(hello, key_, RankAddress::parse(addresses_[static_cast<std::size_t>(rank)]),
                      machine_, give_up);
}

bool Connections::advance(Dial& dial) {
  const int rank = dial.rank();
  // The other rank's own connection has come meanwhile.
  if (end_of(pair(rank), dial.purpose()).is_made) return false;
  if (last_) return false;
  switch (dial.step()) {
    case Dial::Outcome::pending:
    case Dial::Outcome::crossed:
      return true;
    case Dial::Outcome::connected:
      install(rank, dial.purpose(), {dial.take(), true, true, dial.key(), dial.acceptor_nonce()});
      return false;
    case Dial::Outcome::ended:
      pair(rank).has_left = dial.message().kind == ControlMessage::Kind::left;
      fail(dial.message(), {}, rank);
      return false;
    case Dial::Outcome::failed:
      break;
  }
  if (dial.lacks_descriptors()) {
    fail_without_descriptors(fmt::format("no descriptor for a connection to rank {}", rank));
  } else {
    fail({pair(rank).has_left ? ControlMessage::Kind::left : ControlMessage::Kind::lost, rank},
         pair(rank).has_left ? std::string() : dial.problem(), -1);
  }
  return false;
}

// This rank fails, not the one at the other end.
void Connections::fail_without_descriptors(const std::string& what) noexcept {
  fail({ControlMessage::Kind::aborted, group_.rank},
       fmt::format("{}: {}", what, descriptor_limit_text()), -1);
}

void Connections::install(int rank, Purpose purpose, End made) {
  Pair& other = pair(rank);
  purpose == Purpose::data ? wait_patiently(made.socket) : watch_closely(made.socket);
  const bool is_watched = std::find(watched_.begin(), watched_.end(), rank) != watched_.end();
  if (purpose == Purpose::control && !is_watched) watched_.push_back(rank);
  end_of(other, purpose) = std::move(made);
  if (purpose == Purpose::data) new_data_.push_back(rank);
  if (other.is_wanted) connect_pair(rank);
  publish();
}

void Connections::connect_pair(int rank) {
  Pair& other = pair(rank);
  for (const Purpose purpose : {Purpose::control, Purpose::data}) {
    if (end_of(other, purpose).is_made) continue;
    if (is_expected(rank, purpose)) return;
    if (dial_of(rank, purpose) == dials_.end()) dial(rank, purpose, Clock::now() + kDialTimeout);
    return;  // Data come after a control connection, which watches the rank.
  }
}

void Connections::read_control(int rank) {
  End& end = end_of(pair(rank), Purpose::control);
  if (!end.socket) return;
  LastWord word;
  const ssize_t got = recv(end.socket.get(), &word, sizeof word, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const LinkSide sender = end.is_own ? LinkSide::acceptor : LinkSide::dialler;
  const bool is_whole = got == sizeof word;
  const bool is_genuine = is_whole && is_authentic(end.key, sender, word);
  if (is_genuine && take_passing(end, rank, word.message)) return;
  end.socket.reset();
  if (!is_whole) {
    return fail({ControlMessage::Kind::lost, rank}, {}, -1);
  }
  if (!is_genuine) {
    return fail({ControlMessage::Kind::aborted, group_.rank}, forgery_text(rank), -1);
  }
  take_last(rank, word.message);
}

void Connections::take_last(int rank, const ControlMessage& message) {
  if (message.kind != ControlMessage::Kind::left || message.failed_rank != rank) {
    return fail(message, {}, rank);
  }
  // The rank is done, but data that it sent before may still arrive.
  pair(rank).has_left = true;
  publish();
}

}  // namespace gantry
