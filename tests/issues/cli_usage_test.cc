// SPDX-License-Identifier: Apache-2.0
// Wrong arguments of `baton` are exit code 2 with the flag and its value, whoever finds them: `baton` or a program it starts.
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/tiny_model.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CliUsage, WrongValuesAreExitCodeTwo) {
  const std::string model = WriteTempFile("tiny.gguf", TinyModel().Build());
  const std::string junk = WriteTempFile("junk.pem", "junk\n");
  const std::vector<std::string> serve = {"serve", "--model=" + model, "--grpc=127.0.0.1:0", "--http=", "--kv-memory=4MiB"};
  const struct {
    std::vector<std::string> args;
    std::string message;
    bool serves = false;
  } cases[] = {
      {{"status", "--router=127.0.0.1:99999"}, "--router: address '127.0.0.1:99999'"},
      {{"generate", "--prompt=x", "--router=127.0.0.1:99999"}, "the port must be a number from 0 to 65535"},
      {{"chat", "--router=nowhere"}, "expected HOST:PORT"},
      {{"generate", "--prompt=x", "--stop=", "--router=127.0.0.1:1"}, "--stop: the text is empty"},
      {{"generate", "--prompt=x", "--stop=a", "--stop=", "--router=127.0.0.1:1"}, "--stop: the text is empty"},
      {{"generate", "--prompt=\xC3", "--router=127.0.0.1:1"}, "text of the request is not valid UTF-8 at byte 0"},
      {{"bench", "serve", "--url=foo"}, "--url foo does not begin with http"},
      {{"bench"}, "bench serve"},
      {{"logits", "--model=" + model, "--prompt-ids=1", "--top=-1"}, "--top -1 is under 0"},
      {{"logits", "--model=" + model, "--prompt-ids=1", "--threads=-1"}, "--threads -1 is under 0"},
      {{"--prefill=65"}, "--prefill 65 is outside 0 to 64", true},
      {{"--disaggregate=sometimes"}, "--disaggregate sometimes is none of", true},
      {{"--grace=-1s"}, "--grace -1s is negative", true},
      {{"--kv-dtype=f8"}, "--kv-dtype f8 is none of", true},
      {{"--threads=-1"}, "--threads -1 is outside", true},
      {{"--log-level=loud"}, "--log-level loud", true},
      {{"--router-flags=--policy=best"}, "--policy: route policy best is unknown", true},
      {{"--router-flags=--recovery-share=0"}, "--recovery-share 0 is outside (0, 1]", true},
      {{"--router-flags=--heartbeat=1ms"}, "--heartbeat 1ms is below 10ms", true},
      {{"--router-flags=--queue-timeout=-1s"}, "--queue-timeout -1s is negative", true},
      {{"--router-flags=--handoff-time=-4ms"}, "--handoff-time -4ms is negative", true},
      {{"--http=0.0.0.0:0"}, "can be reached from other machines", true},
      {{"--grpc=0.0.0.0:0"}, "give --api-keys FILE, or --tls-client-ca FILE", true},
      {{"--api-keys=/nowhere/keys"}, "--api-keys /nowhere/keys: cannot be read", true},
      {{"--api-key-file=/nowhere/key"}, "--api-key-file /nowhere/key: cannot be read", true},
      {{"status", "--api-key-file=/nowhere/key"}, "--api-key-file /nowhere/key: cannot be read"},
      {{"--tls-cert=/nowhere/c.pem", "--tls-key=/nowhere/k.pem"}, "--tls-cert /nowhere/c.pem: cannot be read", true},
      {{"--tls-cert=" + junk, "--tls-key=" + junk}, "--tls-cert " + junk + ": holds no PEM certificate", true},
      {{"--tls-cert=" + junk}, "is given without --tls-key", true},
      {{"--tls-client-ca=" + junk}, "--tls-client-ca needs --tls-cert", true},
      {{"--cluster-tls-cert=" + junk}, "--cluster-tls-key is missing", true},
      {{"--cluster-tls-cert=/nowhere/c.pem", "--cluster-tls-key=x", "--cluster-tls-ca=x"}, "--cluster-tls-cert /nowhere/c.pem: cannot be read", true},
      {{"--router-flags=--status-tls"}, "--status-tls needs --tls-cert", true},
      {{"--router-flags=--registry=0.0.0.0:0"}, "--registry 0.0.0.0:0 can be reached from other machines", true},
      {{"--decode-flags=--listen=0.0.0.0:0"}, "give --cluster-tls-cert, -key and -ca, or --insecure", true},
      {{"status", "--ca=/nowhere/ca.pem"}, "--ca /nowhere/ca.pem: cannot be read"},
      {{"generate", "--prompt=x", "--cert=/nowhere/c.pem"}, "--cert /nowhere/c.pem is given without --key"},
      {{"--router-flags=--max-preparing-bytes=1KiB"}, "--max-preparing-bytes 1024 is below --max-request-bytes 67108864", true},
      {{"--router-flags=--template-processes=0"}, "--template-processes 0 is below 1", true},
      {{"--prefill-flags=--advertise=here:99999"}, "--advertise: address 'here:99999'", true},
  };
  for (const auto& c : cases) {
    std::vector<std::string> args = c.serves ? serve : std::vector<std::string>();
    args.insert(args.end(), c.args.begin(), c.args.end());
    SCOPED_TRACE(absl::StrJoin(args, " "));
    const Finished finished = RunBaton(args);
    EXPECT_EQ(finished.exit.code, 2) << finished.output;
    EXPECT_THAT(finished.output, HasSubstr(c.message));
  }
}

TEST(CliUsage, HelpOffersWhatIsAccepted) {
  const std::string help = RunBaton({"serve", "--help"}).output;
  ASSERT_THAT(help, HasSubstr("--disaggregate"));
  // Either both or neither.
  const Finished adaptive = RunBaton({"serve", "--model=/no/such/model", "--disaggregate=adaptive", "--grpc=127.0.0.1:0", "--http="});
  const bool refused = adaptive.output.find("--disaggregate adaptive") != std::string::npos;
  if (refused) EXPECT_THAT(help, Not(HasSubstr("adaptive")));
}

}  // namespace
}  // namespace baton::testing
