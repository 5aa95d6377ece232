#include "core/authentication/keys.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "core/text/sha256.hpp"

namespace gantry {
namespace {

std::string hexadecimal(const Key& key) {
  std::string text;
  for (const unsigned char byte : key) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 0xf];
  }
  return text;
}

// RFC 4231: a short key, one that is no block, one that is longer than a block.
TEST(KeysTest, KnownHmacs) {
  EXPECT_EQ(hexadecimal(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hexadecimal(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hexadecimal(hmac_sha256(std::string(131, '\xaa'),
                                    "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(KeysTest, EveryPartOfADerivationChangesTheKey) {
  const std::set<Key> keys{
      derive_key("secret", "purpose", {"a", "b"}),    derive_key("secreT", "purpose", {"a", "b"}),
      derive_key("secret", "purposE", {"a", "b"}),    derive_key("secret", "purpose", {"b", "a"}),
      derive_key("secret", "purpose", {"ab", ""}),    derive_key("secret", "purpose", {"", "ab"}),
      derive_key("secret", "purpose", {"ab"}),        derive_key("secret", "purposea", {"b"}),
      derive_key("secret", "purpose", {"a", "b", ""})};
  EXPECT_EQ(keys.size(), 9u);
  EXPECT_EQ(derive_key("secret", "purpose", {"a"}), derive_key("secret", "purpose", {"a"}));
}

TEST(KeysTest, RandomKeysDiffer) {
  std::set<Key> keys;
  for (int i = 0; i < 1000; ++i) keys.insert(random_key());
  EXPECT_EQ(keys.size(), 1000u);
}

TEST(KeysTest, EqualSecretsAreEqualStrings) {
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string a(random() % 5, '\0');
    std::string b(random() % 5, '\0');
    for (char& byte : a) byte = static_cast<char>(random() % 2);
    for (char& byte : b) byte = static_cast<char>(random() % 2);
    EXPECT_EQ(equal_secrets(a, b), a == b);
    EXPECT_TRUE(equal_secrets(a, a));
  }
}

TEST(KeysTest, RandomTextsOfAllUsualAlphabetsHaveTheirBits) {
  EXPECT_GE(guessing_bits("6c84fb90-12c4-11e1-840d-7b25c5ee775a"), 128);  // a UUID
  EXPECT_GE(guessing_bits("6C84FB90-12C4-11E1-840D-7B25C5EE775A"), 128);
  std::mt19937 random(1);
  const std::string characters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/";
  for (int i = 0; i < 2'000; ++i) {
    const auto text = [&](std::size_t alphabet, std::size_t length) {
      std::string made(length, ' ');
      for (char& c : made) c = characters[random() % alphabet];
      return made;
    };
    EXPECT_GE(guessing_bits(text(16, 32)), 128);
    EXPECT_GE(guessing_bits(text(10, 44)), 128);
    EXPECT_GE(guessing_bits(text(64, 24)), 128);
    EXPECT_LT(guessing_bits(text(10, 31)), 128);
    EXPECT_LT(guessing_bits(text(16, 31)), 128);
  }
}

// As glaunch and /proc/sys/kernel/random/uuid make them once in a million times.
TEST(KeysTest, HexadecimalDigitsWithoutALetterHaveTheirBits) {
  EXPECT_GE(guessing_bits("12345678901234567890123456789012"), 128);
  EXPECT_GE(guessing_bits("12345678-9012-4567-8901-234567890123"), 128);
}

TEST(KeysTest, WeakTextsHaveFewBits) {
  EXPECT_EQ(guessing_bits(""), 0);
  EXPECT_EQ(guessing_bits(std::string(1000, 'a')), 0);
  for (const char* weak :
       {"0123456789abcdef", "password12345678", "secretsecret1234",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", "1111-1111-1111-1111-1111-1111", "my cluster's job"}) {
    EXPECT_LT(guessing_bits(weak), 128) << weak;
  }
}

}  // namespace
}  // namespace gantry
