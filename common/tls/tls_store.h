// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TLS_TLS_STORE_H_
#define BATON_COMMON_TLS_TLS_STORE_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/base/metrics.h"
#include "common/tls/tls_context.h"
#include "common/tls/tls_files.h"

namespace baton {

// The certificates of one end, read again every second: what changed in the files is in the next handshake, connections that
// are open keep theirs. A change that does not pass LoadTlsMaterial changes nothing and is logged once, so files may be
// replaced one after the other. Thread-safe; owns a thread.
class TlsStore {
 public:
  //   INVALID_ARGUMENT  as LoadTlsMaterial and, with a certificate, as TlsContext::Server.
  static absl::StatusOr<std::shared_ptr<TlsStore>> Open(const TlsFiles& files);
  ~TlsStore();

  std::shared_ptr<const TlsMaterial> material() const;
  // For a server's next connection; null without a certificate.
  std::shared_ptr<const TlsContext> server_context() const;
  // Called at once, then with every change on the store's thread; must not block. For the store's life.
  void OnChange(std::function<void(const TlsMaterial&)> callback);

  // The flag that named the certificate.
  const std::string& cert_flag() const { return files_.cert_flag; }

  // Looks at the files now. The thread does this every kRefresh.
  void Reload();
  static constexpr absl::Duration kRefresh = absl::Seconds(1);

 private:
  explicit TlsStore(TlsFiles files) : files_(std::move(files)) {}
  absl::Status Take(TlsMaterial material) ABSL_EXCLUSIVE_LOCKS_REQUIRED(reload_mutex_);
  void Watch();

  const TlsFiles files_;
  Mutex reload_mutex_;  // One reload at a time; before mutex_.
  std::string refused_ ABSL_GUARDED_BY(reload_mutex_);  // What was last wrong with newer files.
  std::vector<std::function<void(const TlsMaterial&)>> callbacks_ ABSL_GUARDED_BY(reload_mutex_);
  mutable Mutex mutex_;
  CondVar wake_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const TlsMaterial> material_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const TlsContext> server_context_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

// baton_tls_certificate_expiry_timestamp_seconds of the certificate that `store` shows, while the handle lives; null when it shows none.
[[nodiscard]] std::shared_ptr<MetricRegistry::Callback> ExportExpiry(std::shared_ptr<const TlsStore> store, MetricRegistry* metrics);

}  // namespace baton

#endif  // BATON_COMMON_TLS_TLS_STORE_H_
