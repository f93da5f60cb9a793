// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/crypto/gcm.h"

#include <array>
#include <cstring>
#include <dlfcn.h>
#include <sodium.h>

#include "src/base/crypto/library.h"

// Two libraries of AES-GCM behind one face.
namespace weft {

namespace {

using GcmNonce = std::array<unsigned char, 12>;
static_assert(sizeof(GcmNonce) == crypto_aead_aes256gcm_NPUBBYTES);

GcmNonce nonceOf(uint64_t number) {
  GcmNonce nonce{};
  std::memcpy(nonce.data() + nonce.size() - sizeof number, &number, sizeof number);
  return nonce;
}

// The functions of libcrypto.so.3 that are used, declared here as OpenSSL's manual has them: the library is
// opened when the first lane wants it, and stays open as its own exit handlers need it.
struct Crypto {
  void* (*contextNew)() = nullptr;
  void (*contextFree)(void*) = nullptr;
  const void* (*aes256Gcm)() = nullptr;
  int (*encryptInit)(void*, const void*, void*, const unsigned char*, const unsigned char*) = nullptr;
  int (*encryptUpdate)(void*, unsigned char*, int*, const unsigned char*, int) = nullptr;
  int (*encryptFinal)(void*, unsigned char*, int*) = nullptr;
  int (*decryptInit)(void*, const void*, void*, const unsigned char*, const unsigned char*) = nullptr;
  int (*decryptUpdate)(void*, unsigned char*, int*, const unsigned char*, int) = nullptr;
  int (*decryptFinal)(void*, unsigned char*, int*) = nullptr;
  int (*control)(void*, int, int, void*) = nullptr;
};
constexpr int kGetTag = 0x10, kSetTag = 0x11;  // EVP_CTRL_AEAD_GET_TAG, EVP_CTRL_AEAD_SET_TAG

template <class Function>
bool find(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(library, name));
  return *out != nullptr;
}

// Null: this host has no libcrypto of version 3.
const Crypto* crypto() {
  static const auto opened = []() -> std::unique_ptr<const Crypto> {
    void* library = ::dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return nullptr;
    auto out = std::make_unique<Crypto>();
    const bool all = find(library, "EVP_CIPHER_CTX_new", &out->contextNew) &&
                     find(library, "EVP_CIPHER_CTX_free", &out->contextFree) &&
                     find(library, "EVP_aes_256_gcm", &out->aes256Gcm) &&
                     find(library, "EVP_EncryptInit_ex", &out->encryptInit) &&
                     find(library, "EVP_EncryptUpdate", &out->encryptUpdate) &&
                     find(library, "EVP_EncryptFinal_ex", &out->encryptFinal) &&
                     find(library, "EVP_DecryptInit_ex", &out->decryptInit) &&
                     find(library, "EVP_DecryptUpdate", &out->decryptUpdate) &&
                     find(library, "EVP_DecryptFinal_ex", &out->decryptFinal) &&
                     find(library, "EVP_CIPHER_CTX_ctrl", &out->control);
    return all ? std::move(out) : nullptr;
  }();
  return opened.get();
}

class OpenSslGcm : public GcmSeal {
 public:
  explicit OpenSslGcm(const Crypto& library) : crypto_(library), context_(library.contextNew()) {}
  ~OpenSslGcm() override { crypto_.contextFree(context_); }
  OpenSslGcm(const OpenSslGcm&) = delete;
  OpenSslGcm& operator=(const OpenSslGcm&) = delete;

  // Once, before the first record. The same expanded key serves both directions of the call.
  bool start(const Key256& key) {
    return context_ &&
           crypto_.encryptInit(context_, crypto_.aes256Gcm(), nullptr, sodiumBytes(key.data()), nullptr) == 1;
  }
  bool close(std::span<const std::byte> from, std::byte* to, std::span<std::byte, kSealBytes> tag) override {
    const GcmNonce nonce = nonceOf(next_++);
    int length = 0, rest = 0;
    return crypto_.encryptInit(context_, nullptr, nullptr, nullptr, nonce.data()) == 1 &&
           crypto_.encryptUpdate(context_, sodiumBytes(to), &length, sodiumBytes(from.data()),
                                 static_cast<int>(from.size())) == 1 &&
           crypto_.encryptFinal(context_, sodiumBytes(to) + length, &rest) == 1 &&
           crypto_.control(context_, kGetTag, kSealBytes, tag.data()) == 1;
  }
  bool open(std::span<const std::byte> from, std::byte* to,
            std::span<const std::byte, kSealBytes> tag) override {
    const GcmNonce nonce = nonceOf(next_++);
    Tag128 copy{};
    std::memcpy(copy.data(), tag.data(), tag.size());
    int length = 0, rest = 0;
    return crypto_.decryptInit(context_, nullptr, nullptr, nullptr, nonce.data()) == 1 &&
           crypto_.decryptUpdate(context_, sodiumBytes(to), &length, sodiumBytes(from.data()),
                                 static_cast<int>(from.size())) == 1 &&
           crypto_.control(context_, kSetTag, kSealBytes, copy.data()) == 1 &&
           crypto_.decryptFinal(context_, sodiumBytes(to) + length, &rest) == 1;
  }

 private:
  const Crypto& crypto_;
  void* const context_;
  uint64_t next_ = 0;
};

class SodiumGcm : public GcmSeal {
 public:
  explicit SodiumGcm(const Key256& key) {
    (void)crypto_aead_aes256gcm_beforenm(&state_, sodiumBytes(key.data()));
  }
  ~SodiumGcm() override { sodium_memzero(&state_, sizeof state_); }
  SodiumGcm(const SodiumGcm&) = delete;
  SodiumGcm& operator=(const SodiumGcm&) = delete;

  bool close(std::span<const std::byte> from, std::byte* to, std::span<std::byte, kSealBytes> tag) override {
    const GcmNonce nonce = nonceOf(next_++);
    return crypto_aead_aes256gcm_encrypt_detached_afternm(sodiumBytes(to), sodiumBytes(tag.data()), nullptr,
                                                          sodiumBytes(from.data()), from.size(), nullptr, 0,
                                                          nullptr, nonce.data(), &state_) == 0;
  }
  bool open(std::span<const std::byte> from, std::byte* to,
            std::span<const std::byte, kSealBytes> tag) override {
    const GcmNonce nonce = nonceOf(next_++);
    return crypto_aead_aes256gcm_decrypt_detached_afternm(sodiumBytes(to), nullptr, sodiumBytes(from.data()),
                                                          from.size(), sodiumBytes(tag.data()), nullptr, 0,
                                                          nonce.data(), &state_) == 0;
  }

 private:
  crypto_aead_aes256gcm_state state_;
  uint64_t next_ = 0;
};

}  // namespace

std::unique_ptr<GcmSeal> makeSodiumGcmSeal(const Key256& key) {
  startSodium();
  if (crypto_aead_aes256gcm_is_available() == 0) return nullptr;
  return std::make_unique<SodiumGcm>(key);
}

Result<std::unique_ptr<GcmSeal>> makeGcmSeal(const Key256& key) {
  if (const Crypto* library = crypto()) {
    auto seal = std::make_unique<OpenSslGcm>(*library);
    if (seal->start(key)) return std::unique_ptr<GcmSeal>(std::move(seal));
  }
  if (auto seal = makeSodiumGcmSeal(key)) return seal;
  return Error(Code::unavailable, "encrypting lanes (WEFT_ENCRYPT=all)",
               "this host has no AES-GCM: install OpenSSL 3 (libcrypto.so.3), or use a processor with "
               "instructions for AES");
}

}  // namespace weft
