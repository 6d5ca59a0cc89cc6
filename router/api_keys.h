// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_API_KEYS_H_
#define BATON_ROUTER_API_KEYS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "common/base/mutex.h"
#include "router/key_account.h"

namespace baton {

// What the holder of a key may do.
enum class KeyRole {
  kClient,  // Use the client APIs.
  kWorker,  // Register as a worker, and so see prompts.
  kAdmin,   // All of it, and change the cluster.
};

struct ApiKey {
  std::string name;  // For logs; the key itself is in none.
  std::string key;
  KeyRole role = KeyRole::kClient;
  KeyLimits limits;
};

// The lines of a key file: `NAME KEY [client|worker|admin] [LIMIT=VALUE ...]`, with the limits max-concurrent, requests-per-minute,
// tokens-per-minute, weight and priority; empty lines and those that begin with # are left out.
//   INVALID_ARGUMENT  names the line, never the key: no two words, a role or limit that is none, a value out of its bounds, a name,
//                     key or limit twice, a key of under kMinKeyBytes or of other characters than visible ASCII; no key at all.
inline constexpr size_t kMinKeyBytes = 16;
absl::StatusOr<std::vector<ApiKey>> ParseApiKeys(absl::string_view text);

// The keys of a file, which is read again when it has changed. Thread-safe.
class ApiKeys {
 public:
  // `clock` outlives it.
  //   Codes of reading the file and of ParseApiKeys; names the file.
  static absl::StatusOr<std::unique_ptr<ApiKeys>> Load(const std::string& path, const Clock* clock = Clock::Real());
  // Where refusals are counted; it outlives this.
  void ExportTo(MetricRegistry* metrics);

  // The account of the key in an `Authorization` header ("Bearer KEY"; empty: there is none). It lives on by its holders when the
  // key is revoked; a key of the same name has the same account.
  //   UNAUTHENTICATED    no key, or one that is not known.
  //   PERMISSION_DENIED  a key of a role that may not.
  absl::StatusOr<std::shared_ptr<KeyAccount>> Find(absl::string_view authorization, KeyRole needed) const;
  // Its name.
  absl::StatusOr<std::string> Check(absl::string_view authorization, KeyRole needed) const;

  // Reads the file. One that cannot be read or is malformed changes nothing (logged once).
  void Reload();

 private:
  struct Known {
    ApiKey key;
    std::shared_ptr<KeyAccount> account;
  };
  ApiKeys(std::string path, const Clock* clock) : path_(std::move(path)), clock_(clock) {}
  void Set(std::vector<ApiKey> keys) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const Clock* const clock_;
  mutable Mutex mutex_;
  MetricRegistry* metrics_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<Known> keys_ ABSL_GUARDED_BY(mutex_);
  std::string text_ ABSL_GUARDED_BY(mutex_);     // That they were read from,
  std::string refused_ ABSL_GUARDED_BY(mutex_);  // and what was last wrong with a newer one.
};

}  // namespace baton

#endif  // BATON_ROUTER_API_KEYS_H_
