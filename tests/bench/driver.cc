// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/driver.h"

#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"

namespace baton::bench {

void ServeCases(const nlohmann::json& about,
                const std::function<absl::StatusOr<nlohmann::json>(const nlohmann::json&)>& measure) {
  std::cout << nlohmann::json{{"ready", about}}.dump() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    absl::StatusOr<nlohmann::json> answer = ParseJson(line);
    if (answer.ok()) answer = measure(*answer);
    if (!answer.ok()) answer = nlohmann::json{{"error", std::string(answer.status().message())}};
    std::cout << answer->dump() << std::endl;
  }
}

}  // namespace baton::bench
