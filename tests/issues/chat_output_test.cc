// SPDX-License-Identifier: Apache-2.0
// An answer that nobody can read is no success.
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/paths.h"
#include "tests/support/temp_files.h"
#include "tests/unit/router/service_fixture.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ChatOutputTest : public ServiceTest {
 protected:
  // The exit code of `baton chat` that reads `input`; `errors_` is what it said.
  int Chat(const std::string& input, const std::string& output) {
    const std::string errors = WriteTempFile("errors.txt", "");
    const int status = std::system(absl::StrCat("printf '", input, "' | '", BuildPath("bin/baton"), "' chat --router ",
                                                router_->grpc_address(), " >'", output, "' 2>'", errors, "'")
                                       .c_str());
    std::ifstream file(errors);
    errors_.assign(std::istreambuf_iterator<char>(file), {});
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string errors_;
};

TEST_F(ChatOutputTest, AFullDiskIsAFailure) {
  AddWorker("p-1", internal::PREFILL);
  AddWorker("d-1", internal::DECODE, {.tokens = Bytes("hello"), .finish = internal::COMPLETE});
  EXPECT_EQ(Chat("Hi\\n", "/dev/null"), 0) << errors_;
  EXPECT_EQ(Chat("Hi\\n", "/dev/full"), 1);
  EXPECT_THAT(errors_, HasSubstr("baton chat: standard output cannot be written"));
  EXPECT_EQ(Chat("a\\303\\n", "/dev/null"), 1);
  EXPECT_THAT(errors_, HasSubstr("is not valid UTF-8 at byte 1"));
  EXPECT_THAT(errors_, Not(HasSubstr("libprotobuf")));
}

}  // namespace
}  // namespace baton::testing
