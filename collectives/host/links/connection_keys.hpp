#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/host/links/control_message.hpp"
#include "core/authentication/keys.hpp"
#include "core/authentication/message_tags.hpp"

namespace gantry {

struct Hello;
struct Answer;

// Note [Authenticated links]
// Any process can connect to a rank's port, take the port of a rank that has ended, or stand
// between two ranks. So all ranks of a group derive a key from the job's secret and from the
// addresses that all ranks published, which contain random cookies. A rank that connects sends a
// nonce with a proof under this key, the other rank answers so, too, and both proofs name both
// ranks. The key never crosses the network. A rank accepts each nonce once, so a recorded greeting
// is worth nothing. Later messages have tags: see Note [Authenticated messages]. Without a secret,
// in jobs of one machine or of MPI, the cookies are one: they come by a unix socket, shared memory
// or MPI.

// The key of a group, from the job's secret and the texts of all ranks' addresses.
Key group_key(const Key& job_key, const std::vector<std::string>& addresses);

// The side of a connection between ranks.
enum class LinkSide : std::uint8_t { dialler, acceptor };

// Whether the messages of a data connection are encrypted.
enum class Secrecy : std::uint8_t { open, encrypted };

// The tags of a data connection's messages, of one side.
struct DataTags {
  MessageTags outgoing;
  MessageTags incoming;
  Secrecy secrecy = Secrecy::open;
};

// The confirmation of a connection, or the last message on a control connection.
struct LastWord {
  ControlMessage message;
  MessageTag tag{};
};

// The key of one connection: it depends on the group, both ranks, the purpose and the dialler's
// nonce.
class ConnectionKey {
 public:
  ConnectionKey() = default;
  ConnectionKey(const Key& group, const Hello& hello);

  // Proofs that the sender knows the key.
  Key proof_of(const Hello& hello) const;
  Key proof_of(const Answer& answer) const;
  // `side` sends the message.
  LastWord last_word(LinkSide side, const ControlMessage& message) const;
  // The tags of `side`, with the acceptor's nonce.
  DataTags data_tags(LinkSide side, const Key& acceptor_nonce, Secrecy secrecy) const;

 private:
  Key key_{};
};

// True if `given` is `proof`.
bool is_proof(const Key& proof, const Key& given) noexcept;
// True if the tag of `word` belongs to its message from `side`.
bool is_authentic(const ConnectionKey& key, LinkSide side, const LastWord& word) noexcept;

}  // namespace gantry
