// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SUPPORT_TEST_CERTIFICATES_H_
#define BATON_TESTS_SUPPORT_TEST_CERTIFICATES_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/tls/tls_files.h"

namespace baton::testing {

struct CertificateSpec {
  std::string name = "test";                                // Common name.
  std::string hosts = "DNS:localhost,IP:127.0.0.1,IP:::1";  // Subject alternative names, as OpenSSL writes them; empty: none.
  absl::Duration begins = -absl::Hours(1), ends = absl::Hours(24);  // From now.
};

struct IssuedCertificate {
  std::string cert, key;  // PEM.
};

// A certificate authority with keys of its own, made with the object. Real certificates, P-256 and SHA-256.
class TestCa {
 public:
  explicit TestCa(const std::string& name = "test CA");
  ~TestCa();

  const std::string& pem() const { return pem_; }
  IssuedCertificate Issue(const CertificateSpec& spec = {}) const;
  // One written to files, with this CA's own certificate as the CA to trust.
  TlsFiles WriteFiles(const CertificateSpec& spec = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::string pem_;
};

// Gives the file another text. Not at once, as an operator's `cp` does not.
void Overwrite(const std::string& path, const std::string& text);

// `key` under the passphrase "secret".
std::string WithPassphrase(const std::string& key);

}  // namespace baton::testing

#endif  // BATON_TESTS_SUPPORT_TEST_CERTIFICATES_H_
