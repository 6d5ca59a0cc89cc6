// SPDX-License-Identifier: Apache-2.0
#include "common/tls/tls_files.h"

#include <functional>

#include "absl/time/clock.h"
#include "common/tls/tls_store.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"
#include "tests/support/test_certificates.h"

namespace baton {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::IssuedCertificate;
using ::baton::testing::Overwrite;
using ::baton::testing::StatusIs;
using ::baton::testing::TestCa;
using ::baton::testing::WriteTempFile;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(TlsFiles, RightOnesAreTaken) {
  const TestCa ca;
  TlsFiles files = ca.WriteFiles();
  ASSERT_OK_AND_ASSIGN(const TlsMaterial material, LoadTlsMaterial(files));
  EXPECT_THAT(material.ca, HasSubstr(ca.pem()));
  EXPECT_GT(material.not_after, absl::Now());
  EXPECT_LT(material.not_after, absl::Now() + absl::Hours(25));
  files.cert.clear();
  files.key.clear();
  EXPECT_THAT(LoadTlsMaterial(files), IsOk());  // Whom to trust alone.
  EXPECT_THAT(LoadTlsMaterial({}), IsOk());
}

TEST(TlsFiles, WrongOnesAreRefusedWithFlagFileAndReason) {
  const TestCa ca;
  const TlsFiles right = ca.WriteFiles();
  const IssuedCertificate other = ca.Issue(), old = ca.Issue({.begins = -absl::Hours(3), .ends = -absl::Hours(1)}),
                          early = ca.Issue({.begins = absl::Hours(1)});
  const struct {
    const char* what;
    std::function<void(TlsFiles*)> change;
    std::string flag, reason;
  } cases[] = {
      {"no key", [](TlsFiles* f) { f->key.clear(); }, "--tls-cert", "is given without --tls-key"},
      {"no certificate", [](TlsFiles* f) { f->cert.clear(); }, "--tls-key", "is given without --tls-cert"},
      {"no file", [](TlsFiles* f) { f->cert = "/nowhere/c.pem"; }, "--tls-cert /nowhere/c.pem", "cannot be read"},
      {"no key file", [](TlsFiles* f) { f->key = "/nowhere/k.pem"; }, "--tls-key /nowhere/k.pem", "cannot be read"},
      {"no CA file", [](TlsFiles* f) { f->ca = "/nowhere/a.pem"; }, "--tls-client-ca /nowhere/a.pem", "cannot be read"},
      {"a folder", [](TlsFiles* f) { f->cert = "/tmp"; }, "--tls-cert /tmp", "cannot be read"},
      {"empty", [](TlsFiles* f) { f->cert = WriteTempFile("c", ""); }, "--tls-cert", "is empty"},
      {"large", [](TlsFiles* f) { f->cert = WriteTempFile("c", std::string((1 << 20) + 1, 'x')); }, "--tls-cert", "over 1 MiB"},
      {"no PEM", [](TlsFiles* f) { f->cert = WriteTempFile("c", "hello\n"); }, "--tls-cert", "holds no PEM certificate"},
      {"no PEM key", [](TlsFiles* f) { f->key = f->cert; }, "--tls-key", "holds no PEM private key"},
      {"no PEM CA", [](TlsFiles* f) { f->ca = f->key; }, "--tls-client-ca", "holds no PEM certificate"},
      {"another key", [&](TlsFiles* f) { f->key = WriteTempFile("k", other.key); }, "--tls-key", "is not the key of the first certificate in "},
      {"passphrase", [&](TlsFiles* f) { f->key = WriteTempFile("k", testing::WithPassphrase(other.key)); }, "--tls-key", "has a passphrase"},
      {"expired", [&](TlsFiles* f) { f->cert = WriteTempFile("c", old.cert), f->key = WriteTempFile("k", old.key); }, "--tls-cert",
       "the certificate expired at "},
      {"early", [&](TlsFiles* f) { f->cert = WriteTempFile("c", early.cert), f->key = WriteTempFile("k", early.key); }, "--tls-cert",
       "the certificate is not valid before "},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    TlsFiles files = right;
    c.change(&files);
    const auto loaded = LoadTlsMaterial(files);
    EXPECT_THAT(loaded, StatusIs(absl::StatusCode::kInvalidArgument, ::testing::StartsWith(c.flag)));
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(c.reason));
    EXPECT_THAT(std::string(loaded.status().message()), Not(HasSubstr("PRIVATE KEY")));
  }
}

TEST(TlsStore, ExportsWhenItsCertificateExpires) {
  const TestCa ca;
  const TlsFiles files = ca.WriteFiles();
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<TlsStore> store, TlsStore::Open(files));
  MetricRegistry metrics;
  const auto exported = ExportExpiry(store, &metrics);
  EXPECT_THAT(metrics.RenderPrometheus(),
              HasSubstr(absl::StrCat("baton_tls_certificate_expiry_timestamp_seconds{certificate=\"--tls-cert\"} ",
                                     absl::ToUnixSeconds(store->material()->not_after))));
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<TlsStore> shows_none, TlsStore::Open({.ca = files.ca}));
  EXPECT_EQ(ExportExpiry(shows_none, &metrics), nullptr);
}

TEST(TlsStore, TakesChangesThatAreWholeAndNoOthers) {
  const TestCa ca;
  const TlsFiles files = ca.WriteFiles();
  ASSERT_OK_AND_ASSIGN(const auto store, TlsStore::Open(files));
  const auto before = store->material();
  const auto context = store->server_context();
  int changes = 0;
  store->OnChange([&changes](const TlsMaterial&) { ++changes; });
  EXPECT_EQ(changes, 1);
  const IssuedCertificate next = ca.Issue();
  Overwrite(files.cert, next.cert);  // The key is still the old one.
  store->Reload();
  EXPECT_EQ(*store->material(), *before);
  EXPECT_EQ(store->server_context(), context);
  Overwrite(files.key, next.key.substr(0, 40));  // Half written.
  store->Reload();
  EXPECT_EQ(*store->material(), *before);
  Overwrite(files.key, next.key);
  store->Reload();
  EXPECT_THAT(store->material()->identity, HasSubstr(next.cert));
  EXPECT_NE(store->server_context(), context);
  EXPECT_EQ(changes, 2);
  EXPECT_EQ(remove(files.ca.c_str()), 0);
  store->Reload();
  EXPECT_THAT(store->material()->ca, HasSubstr(ca.pem()));
  EXPECT_EQ(changes, 2);
}

TEST(TlsStore, RefusesTheStart) {
  EXPECT_THAT(TlsStore::Open({.cert = "/nowhere/c", .key = "/nowhere/k"}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/nowhere/c")));
}

}  // namespace
}  // namespace baton
