#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gantry/core/export.hpp>

namespace gantry {

/// Largest key of a Store, in bytes.
inline constexpr std::size_t kStoreMaxKeyBytes = 1024;
/// Largest value of a Store, in bytes.
inline constexpr std::size_t kStoreMaxValueBytes = std::size_t{16} << 20;
/// Shortest token of a Store at a TCP address, in bytes.
inline constexpr std::size_t kStoreMinTokenBytes = 16;
/// Longest token of a Store, in bytes.
inline constexpr std::size_t kStoreMaxTokenBytes = 1024;

/// A key/value store that the processes of one job share, for their rendezvous.
///
/// Keys are 1…1024 bytes, values at most 16 MiB of any bytes. A written value stays until it is
/// overwritten or erased, so a late rank reads earlier values.
/// Thread safety: every member may be called from any thread; a blocked call does not block others.
/// Throws: InvalidArgument for a bad key or value; TimeoutError when the deadline passes;
/// PeerLostError when the server is lost (rank() is -1) or a rank has left the job.
class GANTRY_API Store {
 public:
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Writes `value` under `key`, in place of an old value. Wakes all callers that wait for the key.
  virtual void set(std::string_view key, std::string_view value) = 0;
  /// Value of `key`; waits up to `timeout` until it is written.
  ///
  /// Throws PeerLostError as soon as the key is missing and a rank is lost. That rank may be the
  /// one that would write it.
  [[nodiscard]] virtual std::string get(std::string_view key,
                                        std::chrono::milliseconds timeout) = 0;
  /// Value of `key` if it is written now, else nullopt. Never waits for a writer.
  [[nodiscard]] virtual std::optional<std::string> try_get(std::string_view key) = 0;
  /// Adds `delta` to the decimal number under `key` (0 if missing) and returns the sum.
  /// Throws: InvalidArgument if the value is not a number.
  virtual std::int64_t add(std::string_view key, std::int64_t delta) = 0;
  /// Writes `desired` if the value equals `expected`, and returns the value afterwards. A missing
  /// key equals the empty value.
  virtual std::string compare_and_set(std::string_view key, std::string_view expected,
                                      std::string_view desired) = 0;
  /// Removes `key`; true if it was there.
  virtual bool erase(std::string_view key) = 0;
  /// Waits up to `timeout` until every one of `keys` is written. Throws as get().
  virtual void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) = 0;

  /// Waits until `count` callers have reached the barrier `name`. Each name can be used once.
  void barrier(std::string_view name, int count, std::chrono::milliseconds timeout);

 protected:
  Store() = default;
};

/// The address of a store and the secret of its clients.
struct StoreServerOptions {
  /// "unix:@name" (abstract), "unix:/path", or "tcp:host:port"; port 0 picks a free one.
  std::string address;
  /// Secret of the clients. A TCP address needs one of at least 16 bytes and 128 random bits,
  /// because any process that reaches the port can connect. Both sides prove that they have it,
  /// without sending it. It authenticates all messages and encrypts none. On a unix socket it may
  /// be empty: the server accepts only processes of the same user and of root.
  std::string token{};
};

/// Serves a Store from a background thread, from construction to destruction.
///
/// A client that gives a rank deregisters when it leaves. A rank whose connection ends before that
/// is lost. Every wait for a missing key, now or later, then throws PeerLostError with that rank.
/// The server closes a connection that sends malformed, oversized or unauthenticated messages;
/// other connections are not affected. It refuses a client with another token, and a rank that is
/// already connected. Thread safety: every member may be called from any thread.
class GANTRY_API StoreServer {
 public:
  /// Listens on options.address; when the constructor returns, clients can connect.
  /// Throws: InvalidArgument for a malformed address, or a TCP address without a token or with one
  /// that can be guessed; Error if the socket cannot be opened, or one of the addresses of a TCP
  /// host is in use; NotSupported for a TCP address without libcrypto.
  explicit StoreServer(const StoreServerOptions& options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// Address for clients, with the port that was picked.
  [[nodiscard]] const std::string& address() const;
  /// Declares that `rank` has left the job, as if its connection had dropped.
  void mark_lost(int rank);
  /// Declares that the process of `rank` ended with code 0. The rank is lost unless it deregistered
  /// before.
  void mark_ended(int rank);
  /// Number of requests of all clients so far.
  [[nodiscard]] std::uint64_t request_count() const;
  /// Ranks that are lost, in the order of their losses.
  [[nodiscard]] std::vector<int> lost_ranks() const;
  /// Ranks that are connected now, in increasing order.
  [[nodiscard]] std::vector<int> connected_ranks() const;

 private:
  class GANTRY_LOCAL Impl;
  std::unique_ptr<Impl> impl_;
};

/// The address of a store, the identity of the client, and its timeouts.
struct StoreClientOptions {
  /// Address of the server, as StoreServer::address() gives it.
  std::string address;
  /// Rank of this process; a rank has one connection at a time. -1: an observer, whose end is no
  /// loss.
  int rank = -1;
  /// The server's secret, if it has one.
  std::string token{};
  /// How long to wait for the server to come up; it may start later than its clients.
  std::chrono::milliseconds connect_timeout{60'000};
  /// Deadline of the calls that do not wait for a writer (set, add, …).
  std::chrono::milliseconds call_timeout{60'000};
};

/// A connection to a StoreServer. Its destructor deregisters the rank.
///
/// It belongs to the process that made it. In a forked child its calls throw ForkError, and the
/// destructor sends nothing.
class GANTRY_API StoreClient final : public Store {
 public:
  /// Connects, retrying until the deadline. A TCP server must prove that it has the token; one that
  /// does not is passed over.
  /// Throws: InvalidArgument for a malformed address; TimeoutError if no server answers, or none
  /// that has the token; PeerLostError if the server refuses this client.
  explicit StoreClient(const StoreClientOptions& options);
  /// Connects to `address` as `rank`, without a token.
  StoreClient(std::string_view address, int rank,
              std::chrono::milliseconds connect_timeout = std::chrono::milliseconds(60'000))
      : StoreClient(StoreClientOptions{
            .address = std::string(address), .rank = rank, .connect_timeout = connect_timeout}) {}
  ~StoreClient() override;

  void set(std::string_view key, std::string_view value) override;
  [[nodiscard]] std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  [[nodiscard]] std::optional<std::string> try_get(std::string_view key) override;
  std::int64_t add(std::string_view key, std::int64_t delta) override;
  std::string compare_and_set(std::string_view key, std::string_view expected,
                              std::string_view desired) override;
  bool erase(std::string_view key) override;
  void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) override;

  /// Values of the keys "prefix/0" … "prefix/count-1" in one request. Waits up to `timeout` until
  /// all are written. nullopt if the values exceed one message of 16 MiB: then call get() for each.
  /// With `ends` it waits only while exactly that many ranks have ended in order (mark_ended()). A
  /// rank that ends without its value is thus noticed at once.
  /// Throws: as get(); TimeoutError also if another number of ranks has ended.
  [[nodiscard]] std::optional<std::vector<std::string>> gather(
      std::string_view prefix, int count, std::chrono::milliseconds timeout,
      std::optional<std::uint32_t> ends = {});
  /// Writes `value` under "prefix/number" and gathers the values of all `count` members, in one
  /// request. The value stays written if the wait fails; gather() can then repeat the wait. First
  /// removes the key `outdated`, unless that is empty. Throws: as set() and gather();
  /// InvalidArgument for a number that is not below `count`.
  [[nodiscard]] std::optional<std::vector<std::string>> exchange(
      std::string_view prefix, int count, int number, std::string_view value,
      std::chrono::milliseconds timeout, std::optional<std::uint32_t> ends = {},
      std::string_view outdated = {});

  /// First rank that is lost; -1 if there is none. Sends no message: the server reports each loss
  /// within milliseconds.
  [[nodiscard]] int lost_rank() const noexcept;
  /// All ranks that are lost, in the order of their losses.
  [[nodiscard]] std::vector<int> lost_ranks() const;
  /// False once the connection to the server is gone.
  [[nodiscard]] bool connected() const noexcept;
  /// True once a message came that the server did not send. The connection is gone then.
  [[nodiscard]] bool is_forged() const noexcept;
  /// Closes the connection without deregistering, as a crash would.
  void abandon() noexcept;

 private:
  class GANTRY_LOCAL Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gantry
