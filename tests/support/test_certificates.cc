// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_certificates.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <fstream>

#include "common/base/logging.h"
#include "tests/support/temp_files.h"

namespace baton::testing {
namespace {

std::string Text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

std::string Pem(X509* certificate) {
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, certificate);
  return Text(bio);
}

std::string Pem(EVP_PKEY* key) {
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PKCS8PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  return Text(bio);
}

void Extend(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  BATON_CHECK(extension != nullptr) << value;
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Without a signature.
X509* Draft(EVP_PKEY* key, const std::string& name, absl::Duration begins, absl::Duration ends) {
  X509* certificate = X509_new();
  X509_set_version(certificate, X509_VERSION_3);
  uint32_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), absl::ToInt64Seconds(begins));
  X509_gmtime_adj(X509_getm_notAfter(certificate), absl::ToInt64Seconds(ends));
  X509_set_pubkey(certificate, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

}  // namespace

struct TestCa::State {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = nullptr;
};

TestCa::TestCa(const std::string& name) : state_(std::make_unique<State>()) {
  state_->certificate = Draft(state_->key, name, -absl::Hours(48), absl::Hours(48));
  X509_set_issuer_name(state_->certificate, X509_get_subject_name(state_->certificate));
  Extend(state_->certificate, state_->certificate, NID_basic_constraints, "critical,CA:TRUE");
  Extend(state_->certificate, state_->certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
  BATON_CHECK(X509_sign(state_->certificate, state_->key, EVP_sha256()) > 0);
  pem_ = Pem(state_->certificate);
}

TestCa::~TestCa() {
  X509_free(state_->certificate);
  EVP_PKEY_free(state_->key);
}

IssuedCertificate TestCa::Issue(const CertificateSpec& spec) const {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = Draft(key, spec.name, spec.begins, spec.ends);
  X509_set_issuer_name(certificate, X509_get_subject_name(state_->certificate));
  if (!spec.hosts.empty()) Extend(certificate, state_->certificate, NID_subject_alt_name, spec.hosts);
  BATON_CHECK(X509_sign(certificate, state_->key, EVP_sha256()) > 0);
  IssuedCertificate issued{.cert = Pem(certificate), .key = Pem(key)};
  X509_free(certificate);
  EVP_PKEY_free(key);
  return issued;
}

TlsFiles TestCa::WriteFiles(const CertificateSpec& spec) const {
  const IssuedCertificate issued = Issue(spec);
  return {.cert = WriteTempFile("cert.pem", issued.cert), .key = WriteTempFile("key.pem", issued.key), .ca = WriteTempFile("ca.pem", pem_)};
}

void Overwrite(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  BATON_CHECK(out.good()) << path;
}

std::string WithPassphrase(const std::string& key) {
  BIO* in = BIO_new_mem_buf(key.data(), static_cast<int>(key.size()));
  EVP_PKEY* read = PEM_read_bio_PrivateKey(in, nullptr, nullptr, nullptr);
  BIO_free(in);
  BIO* out = BIO_new(BIO_s_mem());
  PEM_write_bio_PKCS8PrivateKey(out, read, EVP_aes_256_cbc(), "secret", 6, nullptr, nullptr);
  EVP_PKEY_free(read);
  return Text(out);
}

}  // namespace baton::testing
