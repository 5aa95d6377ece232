// Secrets that processes share, and the keys and proofs that are derived from them.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>

namespace gantry {

/// A key, a nonce, or a proof that a process knows a key.
using Key = std::array<unsigned char, 32>;

/// The bytes of a key.
[[nodiscard]] inline std::string_view text_of(const Key& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

/// Fills `bytes` with random numbers of the system. Throws: Error without any.
void fill_with_random_bytes(std::span<std::byte> bytes);
/// A random key. Throws as fill_with_random_bytes().
[[nodiscard]] Key random_key();

/// HMAC-SHA256 of `purpose` and `context` under `secret`. Other purposes and other contexts give
/// unrelated keys, and a key does not tell the secret. Sources: RFC 2104, FIPS 180-4.
[[nodiscard]] Key derive_key(std::string_view secret, std::string_view purpose,
                             std::initializer_list<std::string_view> context);
/// HMAC-SHA256 of `message` under `secret`.
[[nodiscard]] Key hmac_sha256(std::string_view secret, std::string_view message);

/// True if the two are equal. The time it takes depends on the length of `given` alone.
[[nodiscard]] bool equal_secrets(std::string_view secret, std::string_view given) noexcept;

/// The bits that a guesser of `secret` must try at most, from its length, its alphabet and the
/// number of its different characters: 128 for 32 random hexadecimal digits, 0 for one repeated
/// character.
[[nodiscard]] double guessing_bits(std::string_view secret);

}  // namespace gantry
