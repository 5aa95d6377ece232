#include "core/authentication/message_tags.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include <gantry/core/error.hpp>

#include "core/files/loaded_library.hpp"

namespace gantry {
namespace {

constexpr std::size_t kNonceBytes = 12;
constexpr std::size_t kLargestUpdate = std::size_t{1} << 30;  // libcrypto counts in int
constexpr int kUnchanged = -1;  // the direction of a context that is begun again

struct Crypto : LibraryFunctions {
  using LibraryFunctions::LibraryFunctions;
  decltype(&::OPENSSL_init_crypto) init = bind("OPENSSL_init_crypto");
  decltype(&::OSSL_LIB_CTX_new) new_library = bind("OSSL_LIB_CTX_new");
  decltype(&::EVP_CIPHER_fetch) fetch = bind("EVP_CIPHER_fetch");
  decltype(&::EVP_CIPHER_CTX_new) new_context = bind("EVP_CIPHER_CTX_new");
  decltype(&::EVP_CIPHER_CTX_free) free_context = bind("EVP_CIPHER_CTX_free");
  decltype(&::EVP_CipherInit_ex2) begin = bind("EVP_CipherInit_ex2");
  decltype(&::EVP_CipherUpdate) update = bind("EVP_CipherUpdate");
  decltype(&::EVP_CipherFinal_ex) finish = bind("EVP_CipherFinal_ex");
  decltype(&::EVP_CIPHER_CTX_ctrl) control = bind("EVP_CIPHER_CTX_ctrl");
};

const LoadedLibrary<Crypto>& library() {
  static const auto& loaded = *new LoadedLibrary<Crypto>(SharedLibrary(
      {fmt::format("libcrypto.so.{}", OPENSSL_SHLIB_VERSION)}, "install OpenSSL 3 (libssl3)"));
  return loaded;
}

const Crypto& crypto() { return library().functions(); }

// A library context of gantry's own: the program's configuration of OpenSSL stays as it is.
const EVP_CIPHER* cipher() {
  static const EVP_CIPHER* const fetched = [] {
    // Threads may still send while the process ends.
    (void)crypto().init(OPENSSL_INIT_NO_ATEXIT, nullptr);
    OSSL_LIB_CTX* const own = crypto().new_library();
    return own == nullptr ? nullptr : crypto().fetch(own, "ChaCha20-Poly1305", nullptr);
  }();
  return fetched;
}

void require(int code, const char* what) {
  if (code != 1) throw Error(fmt::format("message tag: libcrypto failed to {}", what));
}

}  // namespace

struct MessageTags::Context {
  Context(const Key& key, End end) : native(crypto().new_context()) {
    if (native == nullptr) throw Error("message tag: libcrypto failed to allocate");
    const int encrypts = end == End::sender ? 1 : 0;
    if (crypto().begin(native, cipher(), key.data(), nullptr, encrypts, nullptr) != 1) {
      crypto().free_context(native);
      throw Error("message tag: libcrypto failed to set a key");
    }
  }
  ~Context() { crypto().free_context(native); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  EVP_CIPHER_CTX* const native;
};

void require_message_tags(std::string_view operation) {
  (void)library().require(operation);
  if (cipher() != nullptr) return;
  throw NotSupported(fmt::format(
      "{}: expected ChaCha20-Poly1305 in libcrypto, but got a build without it", operation));
}

MessageTags::MessageTags(const Key& key, End end) {
  require_message_tags("message tag");
  context_ = std::make_unique<Context>(key, end);
}

MessageTags::~MessageTags() = default;
MessageTags::MessageTags(MessageTags&&) noexcept = default;
MessageTags& MessageTags::operator=(MessageTags&&) noexcept = default;

void MessageTags::begin() {
  std::array<unsigned char, kNonceBytes> nonce{};
  for (std::size_t i = 0; i < sizeof number_; ++i) {
    nonce[kNonceBytes - sizeof number_ + i] = static_cast<unsigned char>(number_ >> (8 * i) & 0xff);
  }
  require(crypto().begin(context_->native, nullptr, nullptr, nonce.data(), kUnchanged, nullptr),
          "begin a message");
  has_begun_ = true;
}

void MessageTags::update(std::span<const std::byte> bytes, std::byte* output) {
  if (!has_begun_) begin();
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kLargestUpdate));
    int written = 0;
    require(crypto().update(context_->native, reinterpret_cast<unsigned char*>(output), &written,
                            reinterpret_cast<const unsigned char*>(part.data()),
                            static_cast<int>(part.size())),
            "add to a message");
    bytes = bytes.subspan(part.size());
    if (output != nullptr) output += part.size();
  }
}

void MessageTags::add(std::span<const std::byte> bytes) { update(bytes, nullptr); }

void MessageTags::encrypt(std::span<const std::byte> bytes, std::byte* encrypted) {
  update(bytes, encrypted);
}

void MessageTags::decrypt(std::span<std::byte> bytes) { update(bytes, bytes.data()); }

MessageTag MessageTags::finish() {
  if (!has_begun_) begin();
  MessageTag tag{};
  int written = 0;
  require(crypto().finish(context_->native, tag.data(), &written), "end a message");
  require(crypto().control(context_->native, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()),
                           tag.data()),
          "get a tag");
  ++number_;
  has_begun_ = false;
  return tag;
}

// libcrypto compares in constant time.
bool MessageTags::accept(std::span<const std::byte> tag) {
  if (!has_begun_) begin();
  ++number_;
  has_begun_ = false;
  MessageTag given{};
  if (tag.size() != given.size()) return false;
  std::ranges::copy(std::as_bytes(tag), std::as_writable_bytes(std::span(given)).begin());
  require(crypto().control(context_->native, EVP_CTRL_AEAD_SET_TAG, static_cast<int>(given.size()),
                           given.data()),
          "set a tag");
  unsigned char rest = 0;  // a stream cipher keeps none
  int written = 0;
  return crypto().finish(context_->native, &rest, &written) == 1;
}

}  // namespace gantry
