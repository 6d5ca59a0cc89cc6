// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_SECRETS_H_
#define BATON_DEPLOY_CLI_SECRETS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace baton::cli {

// The text with what looks like a secret replaced by "[removed]": values behind names that mean one (`api-key: x`,
// `BATON_API_KEY=x`, `--password x`, `"secret": "x"`, an Authorization header), bearer tokens, passwords in URLs, keys that
// begin with "sk-", and private keys as PEM. Too much rather than too little: names like max_tokens are known not to be one,
// a name that ends in "key" is one.
std::string RemoveSecrets(absl::string_view text);

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_SECRETS_H_
