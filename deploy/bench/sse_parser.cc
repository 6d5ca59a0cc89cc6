// SPDX-License-Identifier: Apache-2.0
#include "deploy/bench/sse_parser.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace baton::bench {

void SseParser::Feed(absl::string_view bytes, std::vector<std::string>* events) {
  for (const char c : bytes) {
    if (std::exchange(after_return_, false) && c == '\n') continue;
    if (c == '\n' || c == '\r') {
      after_return_ = c == '\r';
      EndLine(events);
    } else {
      line_.push_back(c);
    }
  }
}

void SseParser::EndLine(std::vector<std::string>* events) {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    if (has_data_) events->push_back(std::exchange(data_, {}));
    has_data_ = false;
    return;
  }
  absl::string_view value = line;
  if (!absl::ConsumePrefix(&value, "data") || !(value.empty() || absl::ConsumePrefix(&value, ":"))) return;
  absl::ConsumePrefix(&value, " ");
  if (has_data_) data_.push_back('\n');
  data_.append(value.data(), value.size());
  has_data_ = true;
}

}  // namespace baton::bench
