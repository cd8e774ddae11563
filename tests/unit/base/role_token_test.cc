// SPDX-License-Identifier: Apache-2.0
// Whose a token is, and that nobody makes one of another.
#include "common/net/role_token.h"

#include <gtest/gtest.h>

#include <set>

namespace hpctl {
namespace {

const std::string kSecret(64, 'a');
constexpr int64_t kNowSeconds = 1'800'000'000;

TEST(RoleToken, IsReadAsWhatItWasMadeFor) {
  const auto owner = read_role_token(kSecret, kSecret, kNowSeconds);
  ASSERT_TRUE(owner);
  EXPECT_EQ(owner->role, TokenRole::kOwner);
  EXPECT_FALSE(owner->uid);
  const auto agent = read_role_token(kSecret, agent_token(kSecret), kNowSeconds);
  ASSERT_TRUE(agent);
  EXPECT_EQ(agent->role, TokenRole::kAgent);
  for (const TokenRole role : {TokenRole::kReader, TokenRole::kOperator, TokenRole::kOwner}) {
    for (const int64_t until : {int64_t{0}, kNowSeconds + 1}) {
      const auto person =
          read_role_token(kSecret, person_token(kSecret, role, 4'294'967'294, until), kNowSeconds);
      ASSERT_TRUE(person) << to_word(role) << " " << until;
      EXPECT_EQ(person->role, role);
      EXPECT_EQ(person->uid, 4'294'967'294U);
    }
  }
}

TEST(RoleToken, ItsTimeIsOver) {
  const std::string token = person_token(kSecret, TokenRole::kOperator, 1000, kNowSeconds);
  EXPECT_TRUE(read_role_token(kSecret, token, kNowSeconds - 1));
  EXPECT_FALSE(read_role_token(kSecret, token, kNowSeconds));
  EXPECT_FALSE(read_role_token(kSecret, token, kNowSeconds + 1));
}

TEST(RoleToken, OfAnotherSecretIsNobodys) {
  const std::string other(64, 'b');
  EXPECT_FALSE(read_role_token(other, kSecret, kNowSeconds));
  EXPECT_FALSE(read_role_token(other, agent_token(kSecret), kNowSeconds));
  EXPECT_FALSE(
      read_role_token(other, person_token(kSecret, TokenRole::kReader, 0, 0), kNowSeconds));
}

// Each byte of it counts, whatever it says.
TEST(RoleToken, NothingInItCanBeChanged) {
  for (const std::string& token :
       {kSecret, agent_token(kSecret),
        person_token(kSecret, TokenRole::kReader, 1000, kNowSeconds + 9)}) {
    for (size_t i = 0; i < token.size(); ++i) {
      for (const char c : {'0', 'f', '.', 'o', '\0'}) {
        std::string changed = token;
        changed[i] = c;
        if (changed == token) continue;
        EXPECT_FALSE(read_role_token(kSecret, changed, kNowSeconds)) << changed;
      }
      EXPECT_FALSE(read_role_token(kSecret, token.substr(0, i), kNowSeconds));
      EXPECT_FALSE(read_role_token(kSecret, token.substr(i + 1), kNowSeconds));
    }
    EXPECT_FALSE(read_role_token(kSecret, token + "0", kNowSeconds));
  }
  // One role's MAC behind another's words.
  const std::string reader = person_token(kSecret, TokenRole::kReader, 1000, 0);
  EXPECT_FALSE(read_role_token(kSecret, "operator" + reader.substr(6), kNowSeconds));
  EXPECT_FALSE(read_role_token(kSecret, "owner" + reader.substr(6), kNowSeconds));
  EXPECT_FALSE(read_role_token(kSecret, std::string(1U << 20, '.'), kNowSeconds));
  EXPECT_FALSE(read_role_token(kSecret, "", kNowSeconds));
}

TEST(RoleToken, TellsNothingOfTheSecret) {
  const std::set<std::string> all = {agent_token(kSecret),
                                     person_token(kSecret, TokenRole::kReader, 1000, 0),
                                     person_token(kSecret, TokenRole::kReader, 1001, 0),
                                     person_token(kSecret, TokenRole::kReader, 1000, 1),
                                     person_token(kSecret, TokenRole::kOperator, 1000, 0)};
  EXPECT_EQ(all.size(), 5U);
  for (const std::string& token : all) EXPECT_EQ(token.find(kSecret), std::string::npos);
}

}  // namespace
}  // namespace hpctl
