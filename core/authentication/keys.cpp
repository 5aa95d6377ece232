#include "core/authentication/keys.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include <gantry/core/error.hpp>

#include "core/bytes.hpp"
#include "core/text/sha256.hpp"

namespace gantry {
namespace {

constexpr std::size_t kBlockBytes = 64;  // of SHA-256
// Random text of 128 bits has more different characters: one of 10¹² secrets of 32 hexadecimal
// digits has fewer than these.
constexpr std::size_t kFewCharacters = 6;
// So long a text of digits is taken for hexadecimal ones, of which none is a letter by chance.
constexpr std::size_t kHexadecimalLength = 30;

bool is_in(unsigned char c, unsigned char first, unsigned char last) {
  return c >= first && c <= last;
}

bool is_hexadecimal(std::string_view text) {
  const auto all_of = [&](unsigned char first_letter) {
    return std::all_of(text.begin(), text.end(), [&](unsigned char c) {
      return c == '-' || is_in(c, '0', '9') ||
             is_in(c, first_letter, static_cast<unsigned char>(first_letter + 5));
    });
  };
  return all_of('a') || all_of('A');
}

// Characters of the smallest usual alphabet that has all of `text`.
std::size_t alphabet_of(std::string_view text) {
  bool digits = false, lower = false, upper = false, signs = false, others = false;
  for (const char character : text) {
    const auto c = static_cast<unsigned char>(character);
    if (is_in(c, '0', '9')) {
      digits = true;
    } else if (is_in(c, 'a', 'z')) {
      lower = true;
    } else if (is_in(c, 'A', 'Z')) {
      upper = true;
    } else if (is_in(c, ' ', '~')) {
      signs = true;
    } else {
      others = true;
    }
  }
  if (others) return 256;
  if ((lower || upper || text.size() > kHexadecimalLength) && is_hexadecimal(text)) return 16;
  return (digits ? 10u : 0u) + (lower ? 26u : 0u) + (upper ? 26u : 0u) + (signs ? 33u : 0u);
}

}  // namespace

void fill_with_random_bytes(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw Error(
          fmt::format("authentication: failed to get random numbers: {}", std::strerror(errno)));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

Key random_key() {
  Key key{};
  fill_with_random_bytes(std::as_writable_bytes(std::span(key)));
  return key;
}

Key hmac_sha256(std::string_view secret, std::string_view message) {
  std::string block(secret);
  if (block.size() > kBlockBytes) block = text_of(sha256(block));
  block.resize(kBlockBytes, '\0');
  std::string inner = block;
  for (char& byte : inner) byte = static_cast<char>(byte ^ 0x36);
  std::string outer = block;
  for (char& byte : outer) byte = static_cast<char>(byte ^ 0x5c);
  inner.append(message);
  outer.append(text_of(sha256(inner)));
  return sha256(outer);
}

Key derive_key(std::string_view secret, std::string_view purpose,
               std::initializer_list<std::string_view> context) {
  // Lengths keep fields apart.
  ByteWriter<std::string> message;
  message.text(purpose);
  for (const std::string_view part : context) message.text(part);
  return hmac_sha256(secret, message.bytes());
}

bool equal_secrets(std::string_view secret, std::string_view given) noexcept {
  // No branch depends on the secret; volatile keeps the compiler from leaving the loop early.
  volatile unsigned char difference = secret.size() == given.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char expected = secret.empty() ? '\0' : secret[i % secret.size()];
    difference = static_cast<unsigned char>(difference | (expected ^ given[i]));
  }
  return difference == 0;
}

double guessing_bits(std::string_view given) {
  std::string secret(given);
  // The dashes of a UUID are no part of its secret.
  if (is_hexadecimal(secret)) std::erase(secret, '-');
  const std::size_t different = std::set<char>(secret.begin(), secret.end()).size();
  if (different == 0) return 0;
  const std::size_t choices = different < kFewCharacters ? different : alphabet_of(secret);
  return static_cast<double>(secret.size()) * std::log2(static_cast<double>(choices));
}

}  // namespace gantry
