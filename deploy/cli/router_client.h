// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_ROUTER_CLIENT_H_
#define BATON_DEPLOY_CLI_ROUTER_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/generation.pb.h"

namespace baton {
class RpcTls;
}

namespace baton::cli {

// What a router wants of its clients.
struct RouterAccess {
  std::string api_key;                // Empty: none.
  std::shared_ptr<const RpcTls> tls;  // Null: in the clear.
};

// A client of one router. Calls block; Cancel may come from any thread.
class RouterClient {
 public:
  // Connects at the first call. `address` is HOST:PORT.
  explicit RouterClient(std::string address, RouterAccess access = {});
  ~RouterClient();

  // Calls `on_message` for each message as it comes. Once at a time.
  //   The router's codes; a payload "retry-after-ms" where the router says when to try again.
  //   UNAVAILABLE        no router there; names the address.
  //   DEADLINE_EXCEEDED  not done within `timeout`.
  //   CANCELLED          by Cancel.
  absl::Status Generate(const v1::GenerateRequest& request, absl::Duration timeout,
                        const std::function<void(const v1::GenerateResponse&)>& on_message);
  // Ends a running Generate.
  void Cancel();

  absl::StatusOr<v1::GetClusterResponse> GetCluster(absl::Duration timeout);
  absl::Status DrainWorker(const std::string& worker, absl::Duration timeout);

 private:
  struct State;
  const std::string address_;
  const RouterAccess access_;
  const std::unique_ptr<State> state_;
};

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_ROUTER_CLIENT_H_
