// SPDX-License-Identifier: Apache-2.0
#include "common/tls/tls_session.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_certificates.h"

namespace baton {
namespace {

using ::baton::testing::CertificateSpec;
using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::baton::testing::TestCa;
using ::testing::HasSubstr;

TlsMaterial Material(const TestCa& issuer, const std::string& trusted, const CertificateSpec& spec = {}) {
  const auto issued = issuer.Issue(spec);
  return {.identity = issued.cert + issued.key, .ca = trusted};
}

// Both ends of one connection, and a wire that cuts what is sent anywhere.
struct Pair {
  Pair(const TlsMaterial& server_material, const TlsMaterial& client_material, const std::string& host = "localhost")
      : server(*TlsContext::Server(server_material), TlsSession::Role::kServer),
        client(*TlsContext::Client(client_material), TlsSession::Role::kClient, host) {
    client.Begin();
  }

  // Until nobody has anything to say.
  void Run(std::mt19937* random = nullptr) {
    bool moved = true;
    while (moved) {
      moved = Carry(&client, &server, &server_status, &to_server, random);
      moved = Carry(&server, &client, &client_status, &to_client, random) || moved;
    }
  }
  static bool Carry(TlsSession* from, TlsSession* to, absl::Status* status, std::string* plain, std::mt19937* random) {
    const std::string bytes = from->TakeOutput();
    for (size_t at = 0; at < bytes.size() && status->ok();) {
      const size_t size = random == nullptr ? bytes.size() : 1 + (*random)() % 3000;
      const std::string piece = bytes.substr(at, size);
      *status = to->Receive(piece, plain);
      at += piece.size();
    }
    return !bytes.empty();
  }

  TlsSession server, client;
  absl::Status server_status, client_status;
  std::string to_server, to_client;
};

TEST(TlsSession, CarriesBytesBothWaysHoweverTheyAreCut) {
  const TestCa ca;
  for (const unsigned seed : {1u, 2u, 3u, 4u, 5u}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Pair pair(Material(ca, ca.pem()), Material(ca, ca.pem()));
    pair.client.Send("before the handshake");
    pair.Run(&random);
    ASSERT_TRUE(pair.server.established() && pair.client.established()) << pair.server_status << pair.client_status;
    EXPECT_EQ(pair.to_server, "before the handshake");
    std::string sent;
    for (int i = 0; i < 20; ++i) {
      const std::string piece(random() % 40000, static_cast<char>('a' + i));
      pair.server.Send(piece);
      pair.client.Send(absl::StrCat(i, ";"));
      sent += piece;
      if (random() % 2) pair.Run(&random);
    }
    pair.Run(&random);
    EXPECT_EQ(pair.to_client, sent);
    EXPECT_THAT(pair.to_server, ::testing::EndsWith(";18;19;"));
    EXPECT_FALSE(pair.client.peer_closed());
    pair.server.Close();
    pair.server.Send("not any more");
    pair.Run(&random);
    EXPECT_TRUE(pair.client.peer_closed());
    EXPECT_EQ(pair.to_client, sent);
    EXPECT_THAT(pair.client_status, IsOk());
  }
}

TEST(TlsSession, WhoIsTrusted) {
  const TestCa ca, stranger("another CA");
  const TlsMaterial nobody = {.identity = "", .ca = ca.pem()};
  const CertificateSpec expired = {.begins = -absl::Hours(3), .ends = -absl::Hours(1)};
  const struct {
    const char* what;
    TlsMaterial server, client;
    std::string host, server_says, client_says;  // Empty: content.
  } cases[] = {
      {"no client certificate asked for", Material(ca, ""), nobody, "localhost", "", ""},
      {"both from the CA", Material(ca, ca.pem()), Material(ca, ca.pem()), "localhost", "", ""},
      {"by address", Material(ca, ca.pem()), Material(ca, ca.pem()), "127.0.0.1", "", ""},
      {"another server", Material(ca, ""), nobody, "example.com", "", "hostname mismatch"},
      {"another address", Material(ca, ""), nobody, "10.0.0.9", "", "IP address mismatch"},
      {"server of another CA", Material(stranger, ""), nobody, "localhost", "", "unable to get local issuer certificate"},
      {"server expired", Material(ca, "", expired), nobody, "localhost", "", "certificate has expired"},
      {"client without certificate", Material(ca, ca.pem()), nobody, "localhost", "peer did not return a certificate", ""},
      {"client of another CA", Material(ca, ca.pem()), Material(stranger, ca.pem()), "localhost", "unable to get local issuer certificate", ""},
      {"client expired", Material(ca, ca.pem()), Material(ca, ca.pem(), expired), "localhost", "certificate has expired", ""},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    Pair pair(c.server, c.client, c.host);
    pair.Run();
    const bool welcome = c.server_says.empty() && c.client_says.empty();
    EXPECT_EQ(pair.server.established(), welcome) << pair.server_status;
    EXPECT_THAT(std::string(pair.server_status.message()), HasSubstr(c.server_says));
    EXPECT_THAT(std::string(pair.client_status.message()), HasSubstr(c.client_says));
    // The alert tells the other end that it is over, and why.
    EXPECT_EQ(pair.client_status.ok(), welcome) << pair.client_status;
    EXPECT_EQ(pair.server_status.ok(), welcome) << pair.server_status;
  }
}

TEST(TlsSession, RubbishEndsIt) {
  const TestCa ca;
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    TlsSession server(*TlsContext::Server(Material(ca, "")), TlsSession::Role::kServer);
    std::string bytes = "\x16\x03\x01";
    for (int n = static_cast<int>(random() % 600); n > 0; --n) bytes += static_cast<char>(random());
    std::string plain;
    const absl::Status status = server.Receive(bytes, &plain);
    EXPECT_FALSE(server.established());
    EXPECT_EQ(plain, "");
    if (status.ok()) continue;  // It waits for the rest of a record.
    EXPECT_THAT(server.Receive("x", &plain), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("over")));
  }
}

TEST(TlsSession, KnowsWhatIsNoTls) {
  EXPECT_FALSE(TlsSession::LooksLikeTls("GET / HTTP/1.1\r\n"));
  EXPECT_FALSE(TlsSession::LooksLikeTls("PRI * HTTP/2.0"));
  EXPECT_FALSE(TlsSession::LooksLikeTls(""));
  EXPECT_TRUE(TlsSession::LooksLikeTls("\x16\x03\x01"));
}

TEST(TlsContext, AServerNeedsACertificate) {
  EXPECT_THAT(TlsContext::Server({}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("certificate")));
}

}  // namespace
}  // namespace baton
