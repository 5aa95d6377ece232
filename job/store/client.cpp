#include <gantry/extend/store.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "core/bytes.hpp"
#include "job/store/client_connection.hpp"
#include "job/store/messages.hpp"

namespace gantry {

using std::chrono::milliseconds;
using store::Message;
using store::Reader;
using store::Reply;
using store::Writer;

namespace {

void check_key(const char* op, std::string_view key) {
  if (key.empty() || key.size() > kStoreMaxKeyBytes) {
    throw InvalidArgument(fmt::format("Store::{}: expected a key of 1 to {} bytes, but got {}", op,
                                      kStoreMaxKeyBytes, key.size()));
  }
}

void check_value(const char* op, std::string_view value) {
  if (value.size() > kStoreMaxValueBytes) {
    throw InvalidArgument(fmt::format("Store::{}: expected a value of at most {} bytes, but got {}",
                                      op, kStoreMaxValueBytes, value.size()));
  }
}

void check_members(const char* op, std::string_view prefix, int count) {
  const std::string last = fmt::format("{}/{}", prefix, count);
  check_key(op, prefix.empty() ? prefix : std::string_view(last));
  if (count < 1) {
    throw InvalidArgument(
        fmt::format("Store::{}: expected a count of at least 1, but got {}", op, count));
  }
}

// The values in the answer to a gather or an exchange.
std::optional<std::vector<std::string>> values_of(const char* op, const Reply& reply, int count) {
  if (reply.kind == Message::missing) return std::nullopt;
  std::vector<std::string> values;
  values.reserve(static_cast<std::size_t>(count));
  Reader message(reply.body);
  ByteReader fields(message.text());
  for (int i = 0; i < count; ++i) values.emplace_back(fields.text());
  if (!fields.finished()) {
    throw Error(fmt::format("Store::{}: the store sent a malformed message", op));
  }
  return values;
}

// The fields that a gather and an exchange share.
Writer gather_request(Message kind, std::uint64_t id, std::string_view prefix, int count,
                      std::optional<std::uint32_t> ends) {
  Writer message(kind, id);
  message.text(prefix).u32(static_cast<std::uint32_t>(count)).i64(ends ? std::int64_t{*ends} : -1);
  return message;
}

}  // namespace

class StoreClient::Impl final : public store::ClientConnection {
 public:
  using ClientConnection::ClientConnection;
};

StoreClient::StoreClient(const StoreClientOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
StoreClient::~StoreClient() = default;

int StoreClient::lost_rank() const noexcept { return impl_->lost_rank(); }
std::vector<int> StoreClient::lost_ranks() const { return impl_->lost_ranks(); }
bool StoreClient::connected() const noexcept { return impl_->connected(); }
bool StoreClient::is_forged() const noexcept { return impl_->is_forged(); }
void StoreClient::abandon() noexcept { impl_->close(); }

void StoreClient::set(std::string_view key, std::string_view value) {
  check_key("set", key);
  check_value("set", value);
  const auto id = impl_->next_id();
  static_cast<void>(
      impl_->call({.op = "set",
                   .expectation = fmt::format("key '{}' to be written", key),
                   .message = std::move(Writer(Message::set, id).text(key).text(value)),
                   .id = id,
                   .timeout = impl_->call_timeout()}));
}

std::string StoreClient::get(std::string_view key, milliseconds timeout) {
  check_key("get", key);
  const auto id = impl_->next_id();
  const Reply reply = impl_->call({.op = "get",
                                   .expectation = fmt::format("key '{}'", key),
                                   .message = std::move(Writer(Message::get, id).text(key)),
                                   .id = id,
                                   .timeout = timeout,
                                   .waits = true});
  return std::string(Reader(reply.body).text());
}

std::optional<std::vector<std::string>> StoreClient::gather(std::string_view prefix, int count,
                                                            milliseconds timeout,
                                                            std::optional<std::uint32_t> ends) {
  check_members("gather", prefix, count);
  const auto id = impl_->next_id();
  const Reply reply =
      impl_->call({.op = "gather",
                   .expectation = fmt::format("{} keys of '{}'", count, prefix),
                   .message = gather_request(Message::gather, id, prefix, count, ends),
                   .id = id,
                   .timeout = timeout,
                   .waits = true});
  return values_of("gather", reply, count);
}

std::optional<std::vector<std::string>> StoreClient::exchange(std::string_view prefix, int count,
                                                              int number, std::string_view value,
                                                              milliseconds timeout,
                                                              std::optional<std::uint32_t> ends,
                                                              std::string_view outdated) {
  check_members("exchange", prefix, count);
  if (number < 0 || number >= count) {
    throw InvalidArgument(fmt::format("Store::exchange: expected a number from 0 to {}, but got {}",
                                      count - 1, number));
  }
  check_value("exchange", value);
  if (!outdated.empty()) check_key("exchange", outdated);
  const auto id = impl_->next_id();
  Writer message = gather_request(Message::exchange, id, prefix, count, ends);
  message.u32(static_cast<std::uint32_t>(number)).text(value).text(outdated);
  const Reply reply = impl_->call({.op = "exchange",
                                   .expectation = fmt::format("{} keys of '{}'", count, prefix),
                                   .message = std::move(message),
                                   .id = id,
                                   .timeout = timeout,
                                   .waits = true});
  return values_of("exchange", reply, count);
}

std::optional<std::string> StoreClient::try_get(std::string_view key) {
  check_key("try_get", key);
  const auto id = impl_->next_id();
  const Reply reply = impl_->call({.op = "try_get",
                                   .expectation = fmt::format("an answer about key '{}'", key),
                                   .message = std::move(Writer(Message::try_get, id).text(key)),
                                   .id = id,
                                   .timeout = impl_->call_timeout()});
  if (reply.kind == Message::missing) return std::nullopt;
  return std::string(Reader(reply.body).text());
}

std::int64_t StoreClient::add(std::string_view key, std::int64_t delta) {
  check_key("add", key);
  const auto id = impl_->next_id();
  const Reply reply =
      impl_->call({.op = "add",
                   .expectation = fmt::format("a number under key '{}'", key),
                   .message = std::move(Writer(Message::add, id).text(key).i64(delta)),
                   .id = id,
                   .timeout = impl_->call_timeout()});
  return Reader(reply.body).i64();
}

std::string StoreClient::compare_and_set(std::string_view key, std::string_view expected,
                                         std::string_view desired) {
  check_key("compare_and_set", key);
  check_value("compare_and_set", expected);
  check_value("compare_and_set", desired);
  const auto id = impl_->next_id();
  Writer message(Message::compare_and_set, id);
  message.text(key).text(expected).text(desired);
  const Reply reply = impl_->call({.op = "compare_and_set",
                                   .expectation = fmt::format("an answer about key '{}'", key),
                                   .message = std::move(message),
                                   .id = id,
                                   .timeout = impl_->call_timeout()});
  return std::string(Reader(reply.body).text());
}

bool StoreClient::erase(std::string_view key) {
  check_key("erase", key);
  const auto id = impl_->next_id();
  const Reply reply = impl_->call({.op = "erase",
                                   .expectation = fmt::format("key '{}' to be erased", key),
                                   .message = std::move(Writer(Message::erase, id).text(key)),
                                   .id = id,
                                   .timeout = impl_->call_timeout()});
  return reply.kind == Message::ok;
}

void StoreClient::wait(std::span<const std::string> keys, milliseconds timeout) {
  std::size_t bytes = 0;
  for (const std::string& key : keys) {
    check_key("wait", key);
    bytes += key.size() + 4;
  }
  if (bytes > kStoreMaxValueBytes) {
    throw InvalidArgument(fmt::format("Store::wait: expected at most {} bytes of keys, but got {}",
                                      kStoreMaxValueBytes, bytes));
  }
  if (keys.empty()) return;
  const auto id = impl_->next_id();
  Writer message(Message::wait, id);
  message.u32(static_cast<std::uint32_t>(keys.size()));
  for (const std::string& key : keys) message.text(key);
  static_cast<void>(
      impl_->call({.op = "wait",
                   .expectation = keys.size() == 1
                                      ? fmt::format("key '{}'", keys.front())
                                      : fmt::format("{} keys ('{}', …)", keys.size(), keys.front()),
                   .message = std::move(message),
                   .id = id,
                   .timeout = timeout,
                   .waits = true}));
}

}  // namespace gantry
