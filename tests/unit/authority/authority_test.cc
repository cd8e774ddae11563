// SPDX-License-Identifier: Apache-2.0
// The authority of a head node through a rotation. Time is an argument; whoever dies between two
// steps is one who does not call again.
#include "common/authority/authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/net/x509.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using ::testing::HasSubstr;
using Wait = AuthorityDirectory::Wait;

constexpr int64_t kNow = 1'800'000'000;
constexpr int64_t kYear = 365 * kDaySeconds;
constexpr int64_t kSpread = 7 * kDaySeconds;
constexpr int64_t kSigns = kNow + kSpread;
constexpr int64_t kLeaves = kSigns + kLeafSeconds + kSlackSeconds;

// X509_V_OK, or why `bundle` does not prove `leaf` at that time.
long verdict_on(const std::string& leaf, const std::string& bundle, int64_t at_s) {
  const std::unique_ptr<X509_STORE, decltype(&X509_STORE_free)> store(X509_STORE_new(),
                                                                      X509_STORE_free);
  for (const auto& one : certificates_from_pem(bundle)) X509_STORE_add_cert(store.get(), one.get());
  const auto shown = certificates_from_pem(leaf);
  const std::unique_ptr<X509_STORE_CTX, decltype(&X509_STORE_CTX_free)> context(
      X509_STORE_CTX_new(), X509_STORE_CTX_free);
  EXPECT_EQ(X509_STORE_CTX_init(context.get(), store.get(), shown.at(0).get(), nullptr), 1);
  X509_STORE_CTX_set_time(context.get(), 0, at_s);
  X509_VERIFY_PARAM* const asked = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set1_host(asked, kClusterName, 0);
  X509_VERIFY_PARAM_set_purpose(asked, X509_PURPOSE_SSL_SERVER);
  X509_verify_cert(context.get());
  return X509_STORE_CTX_get_error(context.get());
}

mode_t mode_of(const std::string& path) {
  struct stat st {};
  EXPECT_EQ(::stat(path.c_str(), &st), 0) << path;
  return st.st_mode & 07777;
}

class AuthorityTest : public ::testing::Test {
 protected:
  std::string path() const { return root_ / "ca"; }
  AuthorityDirectory open() const {
    auto opened = AuthorityDirectory::open(path());
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return std::move(opened).value();
  }
  void make() const {
    EXPECT_TRUE(AuthorityDirectory::make(path(), "head", kNow, kYear).value());
    EXPECT_TRUE(open().advance(kNow, Wait::kForOthers).ok());
  }
  bool rotate(int64_t now_s) const {
    return open().begin_rotation("head", now_s, kYear, kSpread).value();
  }
  void advance(int64_t now_s) const {
    const auto done = open().advance(now_s, Wait::kForNobody);
    EXPECT_TRUE(done.ok()) << done.error().message;
  }
  AuthorityState state() const { return open().read().value(); }
  std::string bundle() const { return read_file(open().bundle_path()).value(); }
  std::string leaf_at(int64_t now_s) const {
    return issue_leaf(state().signer(now_s).identity, {{"head"}, {"10.0.0.1"}}, now_s)->certificate;
  }

  TemporaryDirectory root_;
};

TEST_F(AuthorityTest, IsMadeOnceAndOnlyTheBundleIsForOthers) {
  const mode_t before = ::umask(0);
  make();
  ::umask(before);
  EXPECT_EQ(mode_of(path()), 0711U);
  EXPECT_EQ(mode_of(path() + "/authority.json"), 0600U);
  EXPECT_EQ(mode_of(path() + "/bundle.pem"), 0644U);
  EXPECT_THAT(bundle(), Not(HasSubstr("PRIVATE KEY")));
  const std::string first = bundle();
  EXPECT_FALSE(AuthorityDirectory::make(path(), "head", kNow, kYear).value());
  advance(kNow + 1);
  EXPECT_EQ(bundle(), first);

  const CertificateFacts facts = state().newest().facts;
  EXPECT_THAT(facts.name, HasSubstr("hpctl CA of head "));
  EXPECT_EQ(facts.ends_s, kNow + kYear);
  EXPECT_TRUE(facts.is_authority);
  EXPECT_EQ(facts.fingerprint.size(), 32U * 3 - 1);
}

TEST_F(AuthorityTest, ALeafCountsForADayAndForTheClusterControllerAlone) {
  make();
  const std::string leaf = leaf_at(kNow);
  EXPECT_EQ(verdict_on(leaf, bundle(), kNow), X509_V_OK);
  EXPECT_EQ(verdict_on(leaf, bundle(), kNow + kLeafSeconds - 1), X509_V_OK);
  EXPECT_EQ(verdict_on(leaf, bundle(), kNow - kBackdatedSeconds + 1), X509_V_OK);
  EXPECT_EQ(verdict_on(leaf, bundle(), kNow + kLeafSeconds + 1), X509_V_ERR_CERT_HAS_EXPIRED);
  EXPECT_EQ(verdict_on(leaf, bundle(), kNow - kBackdatedSeconds - 1),
            X509_V_ERR_CERT_NOT_YET_VALID);
  const auto facts = read_certificates(leaf, "leaf").value();
  EXPECT_EQ(facts.at(0).name, kClusterName);
  EXPECT_FALSE(facts.at(0).is_authority);
  // Not by its key, either: a leaf signs nothing that counts.
  const TlsIdentity with_key = issue_leaf(state().newest().identity, {}, kNow).value();
  const auto signer = certificates_from_pem(with_key.certificate);
  const X509Key key = make_key();
  const X509Certificate forged = make_certificate(key.get(), kClusterName, kNow, kNow + 60);
  X509_set_issuer_name(forged.get(), X509_get_subject_name(signer.at(0).get()));
  ASSERT_TRUE(sign_certificate(forged.get(), key_from_pem(with_key.private_key).get()));
  EXPECT_NE(verdict_on(to_pem(forged.get()), bundle() + with_key.certificate, kNow), X509_V_OK);

  const std::string last = leaf_at(kNow + kYear - 60);
  EXPECT_EQ(read_certificates(last, "leaf")->at(0).ends_s, kNow + kYear) << "not for longer";
}

TEST_F(AuthorityTest, NamesThatAreNoneAreLeftOutOfALeaf) {
  make();
  const LeafNames odd{{"he,DNS:evil", "", "a b", "head"},
                      {"10.0.0.1", "x", "::1", "1.2.3.4,DNS:y"}};
  const auto leaf = issue_leaf(state().newest().identity, odd, kNow);
  ASSERT_TRUE(leaf.ok()) << leaf.error().message;
  const auto shown = certificates_from_pem(leaf->certificate);
  EXPECT_EQ(X509_check_host(shown.at(0).get(), "head", 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_ip_asc(shown.at(0).get(), "::1", 0), 1);
  EXPECT_EQ(X509_check_host(shown.at(0).get(), "evil", 0, 0, nullptr), 0);
  EXPECT_EQ(X509_check_host(shown.at(0).get(), "y", 0, 0, nullptr), 0);
}

TEST_F(AuthorityTest, AnotherOneFollowsWithoutLockingAnybodyOut) {
  make();
  const std::string old_bundle = bundle();
  ASSERT_TRUE(rotate(kNow));
  advance(kNow);
  const std::string both = bundle();
  EXPECT_EQ(read_certificates(both, "bundle")->size(), 2U);
  EXPECT_THAT(both, HasSubstr(old_bundle));
  EXPECT_FALSE(rotate(kNow + 1)) << "one follows already";

  // As long as the new bundle is on its way, who has the old one is served.
  EXPECT_EQ(verdict_on(leaf_at(kSigns - 1), old_bundle, kSigns - 1), X509_V_OK);
  EXPECT_EQ(verdict_on(leaf_at(kSigns - 1), both, kSigns - 1), X509_V_OK);
  const std::string last_of_old = leaf_at(kSigns - 1);
  const std::string first_of_new = leaf_at(kSigns);
  EXPECT_NE(verdict_on(first_of_new, old_bundle, kSigns), X509_V_OK);
  EXPECT_EQ(verdict_on(first_of_new, both, kSigns), X509_V_OK);

  advance(kLeaves - 1);
  EXPECT_EQ(bundle(), both);
  EXPECT_EQ(verdict_on(last_of_old, both, kLeaves), X509_V_ERR_CERT_HAS_EXPIRED)
      << "the old one leaves when nothing of it counts";
  advance(kLeaves);
  const std::string new_bundle = bundle();
  EXPECT_EQ(read_certificates(new_bundle, "bundle")->size(), 1U);
  EXPECT_EQ(verdict_on(leaf_at(kLeaves), new_bundle, kLeaves), X509_V_OK);
  EXPECT_NE(verdict_on(last_of_old, new_bundle, kSigns), X509_V_OK);
  EXPECT_THAT(read_file(path() + "/authority.json").value(), Not(HasSubstr(old_bundle)))
      << "with its key";
  EXPECT_TRUE(rotate(kLeaves)) << "and the next may follow";
}

TEST_F(AuthorityTest, WhoeverDiesBetweenTwoStepsHasDoneNoHarm) {
  constexpr int kEnough = 10;
  for (const int64_t then_s : {kNow, kSigns, kLeaves}) {
    for (int done = 0; done < kEnough; ++done) {
      SCOPED_TRACE(std::to_string(done) + " steps, then at " + std::to_string(then_s - kNow));
      ASSERT_TRUE(remove_tree(path()).ok());
      int left = done;
      const auto take = [&](int64_t now_s) {  // so many steps, and no more
        while (left > 0 && open().advance_once(now_s, Wait::kForOthers).value()) --left;
      };
      make();
      const std::string callers = bundle();
      ASSERT_TRUE(rotate(kNow));
      take(kNow);
      if (left > 0) take(kLeaves);  // it goes on after the pause of a rotation, and dies then

      // What is there is usable, and whoever signs is in what was published.
      const int64_t at_s = left < done && state().newest().published_s > 0 ? then_s : kNow;
      ASSERT_TRUE(open().read().ok());
      EXPECT_EQ(verdict_on(leaf_at(at_s), bundle(), at_s), X509_V_OK);
      if (at_s < kSigns && state().is_rotating()) {
        EXPECT_EQ(verdict_on(leaf_at(at_s), callers, at_s), X509_V_OK)
            << "nobody has the new bundle yet";
      }
      // Again: the same rotation goes on to its end, and is not another one.
      const std::string follows = state().newest().facts.fingerprint;
      if (state().is_rotating()) {
        EXPECT_FALSE(rotate(then_s));
      }
      advance(then_s);
      EXPECT_EQ(verdict_on(leaf_at(then_s), bundle(), then_s), X509_V_OK);
      EXPECT_EQ(bundle(), state().bundle());
      advance(then_s + kLeaves - kNow);
      EXPECT_FALSE(state().is_rotating());
      EXPECT_EQ(state().newest().facts.fingerprint, follows);
      EXPECT_EQ(bundle(), state().bundle());
    }
  }
}

TEST_F(AuthorityTest, WhoeverDiesWhileMakingItLeavesOneThatCanBeUsed) {
  EXPECT_TRUE(AuthorityDirectory::make(path(), "head", kNow, kYear).value());
  EXPECT_FALSE(is_accessible(path() + "/bundle.pem"));
  const std::string made = state().bundle();
  EXPECT_FALSE(AuthorityDirectory::make(path(), "head", kNow + 5, kYear).value());
  ASSERT_TRUE(write_file_atomic(path() + "/bundle.pem.tmp.torn", "-----BEGIN").ok());
  ASSERT_TRUE(write_file_atomic(path() + "/authority.json.tmp.torn", "{").ok());
  advance(kNow + 5);
  EXPECT_EQ(bundle(), made);
  EXPECT_EQ(verdict_on(leaf_at(kNow + 5), bundle(), kNow + 5), X509_V_OK);
}

TEST_F(AuthorityTest, TheTimeToSpreadBeginsWhenItWasPublished) {
  make();
  ASSERT_TRUE(rotate(kNow));
  const AuthorityState unpublished = state();
  EXPECT_EQ(&unpublished.signer(kNow + kYear), &unpublished.authorities.front());
  advance(kNow + 100);
  EXPECT_EQ(state().newest().signs_from_s, kNow + 100 + kSpread);
}

TEST_F(AuthorityTest, WhereTheOldOneCountsNoMoreTheNewOneSignsAtOnce) {
  make();
  const int64_t late_s = kNow + kYear + 1;
  ASSERT_TRUE(rotate(late_s));
  advance(late_s);
  EXPECT_EQ(verdict_on(leaf_at(late_s), bundle(), late_s), X509_V_OK);
}

TEST_F(AuthorityTest, WhatIsWrongIsSaidWithItsRemedy) {
  const auto none = AuthorityDirectory::open(path());
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(none.error().message, HasSubstr("hpctl ca make --dir " + path()));
  make();
  ASSERT_EQ(::chmod((path() + "/authority.json").c_str(), 0640), 0);
  const auto readable = AuthorityDirectory::open(path());
  EXPECT_EQ(readable.error().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(readable.error().message, HasSubstr("authority.json must belong to uid"));
  ASSERT_EQ(::chmod((path() + "/authority.json").c_str(), 0600), 0);
  ASSERT_EQ(::chmod(path().c_str(), 0777), 0);
  EXPECT_THAT(AuthorityDirectory::open(path()).error().message,
              HasSubstr("writable by its owner only"));
  ASSERT_EQ(::chmod(path().c_str(), 0711), 0);

  const std::string good = read_file(path() + "/authority.json").value();
  for (const std::string& bad : {std::string("{}"), good.substr(0, good.size() / 2), std::string(),
                                 std::string(R"({"authorities":[]})")}) {
    ASSERT_TRUE(write_file_atomic(path() + "/authority.json", bad).ok());
    ASSERT_EQ(::chmod((path() + "/authority.json").c_str(), 0600), 0);
    const auto read = open().read();
    EXPECT_EQ(read.error().code, ErrorCode::kDataLoss) << bad;
    EXPECT_THAT(read.error().message, HasSubstr("authority.json is damaged: "));
  }
}

TEST_F(AuthorityTest, OneAtATime) {
  make();
  const auto held = lock_file(path() + "/lock");
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(open().advance(kNow, Wait::kForNobody).error().code, ErrorCode::kAlreadyExists);
}

TEST(ReadCertificates, SaysWhatIsWrongWithABundle) {
  for (const std::string& text : {std::string(), std::string("no certificate"),
                                  std::string("-----BEGIN CERTIFICATE-----\nAAAA\n"
                                              "-----END CERTIFICATE-----\n")}) {
    const auto read = read_certificates(text, "/etc/hpctl/ca.pem");
    ASSERT_FALSE(read.ok());
    EXPECT_THAT(read.error().message, HasSubstr("/etc/hpctl/ca.pem: "));
  }
  const std::string good = make_authority("head", kNow, kYear)->certificate;
  EXPECT_FALSE(read_certificates(good + good.substr(0, good.size() / 2), "x").ok()) << "torn";
  EXPECT_EQ(read_certificates("# of head\n" + good + "# of head2\n" + good, "x")->size(), 2U);
}

}  // namespace
}  // namespace hpctl
