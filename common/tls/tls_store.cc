// SPDX-License-Identifier: Apache-2.0
#include "common/tls/tls_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton {

absl::StatusOr<std::shared_ptr<TlsStore>> TlsStore::Open(const TlsFiles& files) {
  BATON_ASSIGN_OR_RETURN(TlsMaterial material, LoadTlsMaterial(files));
  auto store = std::shared_ptr<TlsStore>(new TlsStore(files));
  {
    MutexLock lock(&store->reload_mutex_);
    BATON_RETURN_IF_ERROR(store->Take(std::move(material)));
  }
  store->thread_ = Thread("tls-files", [self = store.get()] { self->Watch(); });
  return store;
}

TlsStore::~TlsStore() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    wake_.NotifyAll();
  }
  thread_.Join();
}

void TlsStore::Watch() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      const MonotonicTime next = Clock::Real()->Now() + kRefresh;
      while (!stop_ && Clock::Real()->Now() < next) wake_.WaitFor(&mutex_, next - Clock::Real()->Now());
      if (stop_) return;
    }
    Reload();
  }
}

absl::Status TlsStore::Take(TlsMaterial material) {
  std::shared_ptr<const TlsContext> context;
  if (!material.identity.empty()) {
    BATON_ASSIGN_OR_RETURN(context, TlsContext::Server(material));
  }
  MutexLock lock(&mutex_);
  material_ = std::make_shared<const TlsMaterial>(std::move(material));
  server_context_ = std::move(context);
  return absl::OkStatus();
}

void TlsStore::Reload() {
  MutexLock lock(&reload_mutex_);
  absl::StatusOr<TlsMaterial> material = LoadTlsMaterial(files_);
  if (material.ok() && *material == *this->material()) {
    refused_.clear();
    return;
  }
  const absl::Status status = material.ok() ? Take(*material) : material.status();
  if (!status.ok()) {
    if (refused_ != status.message()) BATON_LOG(WARNING) << status.message() << "; the certificates stay as they were";
    refused_ = std::string(status.message());
    return;
  }
  refused_.clear();
  BATON_LOG(INFO) << (files_.cert.empty() ? absl::StrCat(files_.ca_flag, " ", files_.ca) : absl::StrCat(files_.cert_flag, " ", files_.cert))
                  << ": read again";
  for (const auto& callback : callbacks_) callback(*material);
}

void TlsStore::OnChange(std::function<void(const TlsMaterial&)> callback) {
  MutexLock lock(&reload_mutex_);
  callback(*material());
  callbacks_.push_back(std::move(callback));
}

std::shared_ptr<const TlsMaterial> TlsStore::material() const {
  MutexLock lock(&mutex_);
  return material_;
}

std::shared_ptr<const TlsContext> TlsStore::server_context() const {
  MutexLock lock(&mutex_);
  return server_context_;
}

std::shared_ptr<MetricRegistry::Callback> ExportExpiry(std::shared_ptr<const TlsStore> store, MetricRegistry* metrics) {
  if (store->material()->identity.empty()) return nullptr;
  const std::string flag = store->cert_flag();
  return metrics->AddCallback(MetricKind::kGauge, "baton_tls_certificate_expiry_timestamp_seconds",
                              "When the certificate of this flag, as it is in use, goes out of its time (Unix time).", {{"certificate", flag}},
                              [store = std::move(store)] { return absl::ToDoubleSeconds(store->material()->not_after - absl::UnixEpoch()); });
}

}  // namespace baton
