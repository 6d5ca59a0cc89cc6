// SPDX-License-Identifier: Apache-2.0
#include "common/text/stop_string_matcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/unicode.h"

namespace baton {

absl::StatusOr<StopStringMatcher> StopStringMatcher::Create(std::vector<std::string> stops, bool include_stop) {
  if (stops.size() > kMaxStopStrings) {
    return absl::InvalidArgumentError(absl::StrCat("stop: ", stops.size(), " strings, at most ", kMaxStopStrings));
  }
  StopStringMatcher matcher;
  matcher.include_stop_ = include_stop;
  for (size_t i = 0; i < stops.size(); ++i) {
    const std::string name = absl::StrCat("stop[", i, "]");
    if (stops[i].empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": empty"));
    if (stops[i].size() > kMaxStopBytes) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", stops[i].size(), " bytes, at most ", kMaxStopBytes));
    }
    BATON_RETURN_IF_ERROR(ValidateUtf8(stops[i], name));
    Stop stop;
    stop.text = std::move(stops[i]);
    stop.border.assign(stop.text.size() + 1, 0);
    for (size_t size = 1, border = 0; size < stop.text.size(); ++size) {
      while (border > 0 && stop.text[size] != stop.text[border]) border = stop.border[border];
      if (stop.text[size] == stop.text[border]) ++border;
      stop.border[size + 1] = border;
    }
    matcher.stops_.push_back(std::move(stop));
  }
  return matcher;
}

StopStringMatcher::Result StopStringMatcher::Push(absl::string_view text) {
  if (stops_.empty()) return {std::string(text), std::nullopt};
  const size_t previously_held = held_.size();
  held_.append(text.data(), text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    std::optional<size_t> complete;
    for (size_t s = 0; s < stops_.size(); ++s) {
      Stop& stop = stops_[s];
      while (stop.matched > 0 && stop.text[stop.matched] != text[i]) stop.matched = stop.border[stop.matched];
      if (stop.text[stop.matched] == text[i]) ++stop.matched;
      if (stop.matched < stop.text.size()) continue;
      stop.matched = 0;
      if (!complete || stop.text.size() > stops_[*complete].text.size()) complete = s;
    }
    if (!complete) continue;
    const size_t end = previously_held + i + 1;
    const size_t keep = include_stop_ ? end : end - stops_[*complete].text.size();
    Result result = {held_.substr(0, keep), complete};
    held_.clear();
    return result;
  }
  size_t hold = 0;
  for (const Stop& stop : stops_) hold = std::max(hold, stop.matched);
  Result result = {held_.substr(0, held_.size() - hold), std::nullopt};
  held_.erase(0, held_.size() - hold);
  return result;
}

std::string StopStringMatcher::Finish() { return std::exchange(held_, std::string()); }

}  // namespace baton
