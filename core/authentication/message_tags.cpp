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

struct Crypto : LibraryFunctions {
  using LibraryFunctions::LibraryFunctions;
  decltype(&::OPENSSL_init_crypto) init = bind("OPENSSL_init_crypto");
  decltype(&::OSSL_LIB_CTX_new) new_library = bind("OSSL_LIB_CTX_new");
  decltype(&::EVP_CIPHER_fetch) fetch = bind("EVP_CIPHER_fetch");
  decltype(&::EVP_CIPHER_CTX_new) new_context = bind("EVP_CIPHER_CTX_new");
  decltype(&::EVP_CIPHER_CTX_free) free_context = bind("EVP_CIPHER_CTX_free");
  decltype(&::EVP_EncryptInit_ex2) begin = bind("EVP_EncryptInit_ex2");
  decltype(&::EVP_EncryptUpdate) update = bind("EVP_EncryptUpdate");
  decltype(&::EVP_EncryptFinal_ex) finish = bind("EVP_EncryptFinal_ex");
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
  explicit Context(const Key& key) : native(crypto().new_context()) {
    if (native == nullptr) throw Error("message tag: libcrypto failed to allocate");
    if (crypto().begin(native, cipher(), key.data(), nullptr, nullptr) != 1) {
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

MessageTags::MessageTags(const Key& key) {
  require_message_tags("message tag");
  context_ = std::make_unique<Context>(key);
}

MessageTags::~MessageTags() = default;
MessageTags::MessageTags(MessageTags&&) noexcept = default;
MessageTags& MessageTags::operator=(MessageTags&&) noexcept = default;

void MessageTags::begin() {
  std::array<unsigned char, kNonceBytes> nonce{};
  for (std::size_t i = 0; i < sizeof number_; ++i) {
    nonce[kNonceBytes - sizeof number_ + i] = static_cast<unsigned char>(number_ >> (8 * i) & 0xff);
  }
  require(crypto().begin(context_->native, nullptr, nullptr, nonce.data(), nullptr),
          "begin a message");
  has_begun_ = true;
}

void MessageTags::add(std::span<const std::byte> bytes) {
  if (!has_begun_) begin();
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kLargestUpdate));
    int written = 0;
    require(crypto().update(context_->native, nullptr, &written,
                            reinterpret_cast<const unsigned char*>(part.data()),
                            static_cast<int>(part.size())),
            "add to a message");
    bytes = bytes.subspan(part.size());
  }
}

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

bool MessageTags::accept(std::span<const std::byte> tag) {
  const MessageTag wanted = finish();
  return equal_secrets({reinterpret_cast<const char*>(wanted.data()), wanted.size()},
                       {reinterpret_cast<const char*>(tag.data()), tag.size()});
}

}  // namespace gantry
