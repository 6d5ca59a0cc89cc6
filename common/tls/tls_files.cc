// SPDX-License-Identifier: Apache-2.0
#include "common/tls/tls_files.h"

#include <ctime>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tls/openssl.h"

namespace baton {
namespace tls_internal {

Bio ReadFrom(absl::string_view text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

std::vector<Certificate> ReadCertificates(absl::string_view pem) {
  const Bio bio = ReadFrom(pem);
  std::vector<Certificate> certificates;
  while (Certificate certificate{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)}) {
    certificates.push_back(std::move(certificate));
  }
  ERR_clear_error();  // The end of the text is an error there.
  return certificates;
}

PrivateKey ReadPrivateKey(absl::string_view pem) {
  const Bio bio = ReadFrom(pem);
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  PrivateKey key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  return key;
}

std::string LastError() {
  std::string reason;
  while (const unsigned long code = ERR_get_error()) {
    const char* text = ERR_reason_error_string(code);
    if (text != nullptr) reason = text;  // The last one is the most particular.
  }
  return reason.empty() ? "no reason given" : reason;
}

}  // namespace tls_internal

namespace {

using tls_internal::Certificate;

constexpr size_t kMaxFileBytes = 1 << 20;

absl::Status Refuse(const std::string& flag, const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", path, ": ", why));
}

absl::StatusOr<std::string> ReadPem(const std::string& flag, const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad()) return Refuse(flag, path, "cannot be read");
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.empty()) return Refuse(flag, path, "is empty, or cannot be read");
  if (text.size() > kMaxFileBytes) return Refuse(flag, path, "is over 1 MiB");
  if (!absl::EndsWith(text, "\n")) text += '\n';
  return text;
}

absl::StatusOr<absl::Time> TimeOf(const ASN1_TIME* time) {
  tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InvalidArgumentError("has a malformed time");
  return absl::FromTimeT(timegm(&parts));
}

// Within its time now; returns its end.
absl::StatusOr<absl::Time> CheckTime(const X509* certificate) {
  BATON_ASSIGN_OR_RETURN(const absl::Time begin, TimeOf(X509_get0_notBefore(certificate)));
  BATON_ASSIGN_OR_RETURN(const absl::Time end, TimeOf(X509_get0_notAfter(certificate)));
  const absl::Time now = absl::Now();
  const auto text = [](absl::Time time) { return absl::FormatTime(absl::RFC3339_sec, time, absl::UTCTimeZone()); };
  if (now > end) return absl::InvalidArgumentError(absl::StrCat("the certificate expired at ", text(end)));
  if (now < begin) return absl::InvalidArgumentError(absl::StrCat("the certificate is not valid before ", text(begin)));
  return end;
}

absl::Status LoadIdentity(const TlsFiles& files, TlsMaterial* material) {
  BATON_ASSIGN_OR_RETURN(const std::string chain, ReadPem(files.cert_flag, files.cert));
  BATON_ASSIGN_OR_RETURN(const std::string key_text, ReadPem(files.key_flag, files.key));
  const std::vector<Certificate> certificates = tls_internal::ReadCertificates(chain);
  if (certificates.empty()) return Refuse(files.cert_flag, files.cert, "holds no PEM certificate");
  const tls_internal::PrivateKey key = tls_internal::ReadPrivateKey(key_text);
  if (key == nullptr) {
    const bool locked = absl::StrContains(key_text, "ENCRYPTED");
    return Refuse(files.key_flag, files.key, locked ? "the key has a passphrase; one without is needed" : "holds no PEM private key");
  }
  if (X509_check_private_key(certificates[0].get(), key.get()) != 1) {
    ERR_clear_error();
    return Refuse(files.key_flag, files.key, absl::StrCat("is not the key of the first certificate in ", files.cert));
  }
  const absl::StatusOr<absl::Time> end = CheckTime(certificates[0].get());
  if (!end.ok()) return Refuse(files.cert_flag, files.cert, end.status().message());
  material->not_after = *end;
  material->identity = chain + key_text;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsMaterial> LoadTlsMaterial(const TlsFiles& files) {
  if (files.cert.empty() != files.key.empty()) {
    const bool no_key = files.key.empty();
    return absl::InvalidArgumentError(absl::StrCat(no_key ? files.cert_flag : files.key_flag, " ", no_key ? files.cert : files.key,
                                                   " is given without ", no_key ? files.key_flag : files.cert_flag));
  }
  TlsMaterial material;
  if (!files.cert.empty()) BATON_RETURN_IF_ERROR(LoadIdentity(files, &material));
  if (files.ca.empty()) return material;
  BATON_ASSIGN_OR_RETURN(material.ca, ReadPem(files.ca_flag, files.ca));
  if (tls_internal::ReadCertificates(material.ca).empty()) return Refuse(files.ca_flag, files.ca, "holds no PEM certificate");
  return material;
}

}  // namespace baton
