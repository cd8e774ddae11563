// SPDX-License-Identifier: Apache-2.0
#include "common/net/hmac.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace hpctl {
namespace {

TEST(Hmac, IsThatOfLibcrypto) {
  EXPECT_EQ(hmac_sha256("key", "The quick brown fox jumps over the lazy dog").substr(0, 4),
            "\xf7\xbc\x83\xf4");
  std::string key;
  for (size_t size = 0; size < 300; size += 7) {
    const std::string text(size, static_cast<char>(size));
    key.append(3, static_cast<char>(size));
    unsigned char tag[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    ASSERT_NE(
        ::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
               reinterpret_cast<const unsigned char*>(text.data()), text.size(), tag, &length),
        nullptr);
    const std::string expected(reinterpret_cast<const char*>(tag), length);
    EXPECT_EQ(hmac_sha256(key, text), expected) << size;
    EXPECT_TRUE(same_bytes(hmac_sha256(key, text), expected));
    EXPECT_FALSE(same_bytes(expected, expected.substr(1)));
  }
}

}  // namespace
}  // namespace hpctl
