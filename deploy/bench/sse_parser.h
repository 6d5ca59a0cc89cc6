// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_BENCH_SSE_PARSER_H_
#define BATON_DEPLOY_BENCH_SSE_PARSER_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton::bench {

// Server-sent events from bytes in pieces of any size (WHATWG HTML, "Server-sent events"): lines end with \n, \r or \r\n, an
// empty line ends an event, several data lines are joined by \n, comments are dropped. Fields other than data are ignored.
class SseParser {
 public:
  // Appends the data of the events that `bytes` complete.
  void Feed(absl::string_view bytes, std::vector<std::string>* events);

 private:
  void EndLine(std::vector<std::string>* events);

  std::string line_, data_;
  bool has_data_ = false;
  bool after_return_ = false;  // The last byte was \r: a \n now belongs to it.
};

}  // namespace baton::bench

#endif  // BATON_DEPLOY_BENCH_SSE_PARSER_H_
