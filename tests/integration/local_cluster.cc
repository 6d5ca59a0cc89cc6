// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/local_cluster.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/http/http_client.h"
#include "gtest/gtest.h"
#include "tests/support/paths.h"
#include "tests/support/sanitizers.h"

namespace baton::testing {
namespace {

const std::string kBaton = BuildPath("bin/baton");
// Of the machine that runs the tests, not of the clusters under test.
const std::vector<std::string> kHiddenEnvironment = {"BATON_MODEL", "BATON_CACHE_DIR", "BATON_CONFIG", "BATON_ROUTER", "BATON_THREADS"};

// The value after `key` in "ready: ..., grpc A, http B, status C".
std::string AddressAfter(absl::string_view line, absl::string_view key) {
  const size_t at = line.find(key);
  if (at == absl::string_view::npos) return "";
  absl::string_view rest = line.substr(at + key.size());
  return std::string(rest.substr(0, rest.find_first_of(", ")));
}

void Pause() { poll(nullptr, 0, 5); }

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace

bool Eventually(const std::function<bool()>& done, absl::Duration limit) {
  const MonotonicTime deadline = Clock::Real()->Now() + limit;
  while (!done()) {
    if (Clock::Real()->Now() > deadline) return false;
    Pause();
  }
  return true;
}

Finished RunBaton(const std::vector<std::string>& args) {
  Finished finished;
  std::vector<std::string> argv = {kBaton};
  argv.insert(argv.end(), args.begin(), args.end());
  auto child = cli::ChildProcess::Start(argv, kHiddenEnvironment, [&finished](absl::string_view line) {
    absl::StrAppend(&finished.output, line, "\n");
  });
  if (!child.ok()) return {.exit = {.code = -1}, .output = child.status().ToString()};
  const bool ended = Eventually([&] {
    (*child)->ReadOutput();
    const auto exit = (*child)->Reap();
    if (exit) finished.exit = *exit;
    return exit.has_value();
  });
  if (!ended) finished.exit = {.signal = SIGALRM};
  EXPECT_FALSE(HasSanitizerReport(finished.output)) << finished.output;
  return finished;
}

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(const std::string& model, const std::vector<std::string>& flags,
                                                                   cli::RouterAccess access) {
  std::vector<std::string> argv = {kBaton,    "serve",       "--model=" + model, "--grpc=127.0.0.1:0", "--http=127.0.0.1:0",
                                   "--threads=2", "--kv-memory=64MiB", absl::StrCat("--start-timeout=", absl::FormatDuration(kPatience)),
                                   // A slow worker is not a lost one.
                                   absl::StrCat("--router-flags=--heartbeat=", 500 * kSlowness, "ms")};
  const auto says = [&flags](absl::string_view flag) {
    return std::any_of(flags.begin(), flags.end(), [flag](const std::string& text) { return absl::StartsWith(text, flag); });
  };
  // Tests are about the handoff: it is to happen, however short the prompts are.
  if (!says("--disaggregate") && !says("--local-prefill")) argv.push_back("--disaggregate=always");
  argv.insert(argv.end(), flags.begin(), flags.end());
  auto cluster = std::unique_ptr<LocalCluster>(new LocalCluster);
  cluster->access_ = std::move(access);
  LocalCluster* const self = cluster.get();
  self->thread_ = Thread("cluster", [self, argv] { self->Run(argv); });
  const bool ready = Eventually([self] {
    MutexLock lock(&self->mutex_);
    return !self->ready_line_.empty() || self->exit_.has_value();
  });
  if (!ready || !self->ReadAddresses()) return absl::UnavailableError("the cluster is not ready:\n" + cluster->log());
  return cluster;
}

LocalCluster::~LocalCluster() {
  bool running;
  {
    MutexLock lock(&mutex_);
    running = pid_ > 0;
  }
  if (running) {
    Signal(SIGTERM);
    const auto exit = WaitForExit();
    EXPECT_TRUE(exit && exit->clean()) << "baton serve " << (exit ? "ended with " + cli::Describe(*exit) : "did not end") << "\n"
                                       << log();
  }
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.Join();
  EXPECT_FALSE(HasSanitizerReport(log())) << log();
}

void LocalCluster::Run(const std::vector<std::string>& argv) {
  auto child = cli::ChildProcess::Start(argv, kHiddenEnvironment, [this](absl::string_view line) {
    MutexLock lock(&mutex_);
    absl::StrAppend(&log_, line, "\n");
    if (absl::StartsWith(line, "ready")) ready_line_ = std::string(line);
  });
  if (!child.ok()) {
    MutexLock lock(&mutex_);
    absl::StrAppend(&log_, child.status().ToString());
    exit_ = cli::ChildExit{.code = -1};
    return;
  }
  {
    MutexLock lock(&mutex_);
    pid_ = (*child)->pid();
  }
  while (true) {
    pollfd fd = {.fd = (*child)->output_fd(), .events = POLLIN};
    poll(&fd, 1, 20);
    (*child)->ReadOutput();
    const auto exit = (*child)->Reap();
    MutexLock lock(&mutex_);
    if (exit) {
      exit_ = exit;
      pid_ = -1;
    }
    if (exit || stop_) return;
  }
}

bool LocalCluster::ReadAddresses() {
  MutexLock lock(&mutex_);
  grpc_ = AddressAfter(ready_line_, "grpc ");
  http_ = AddressAfter(ready_line_, "http ");
  status_ = AddressAfter(ready_line_, "status ");
  return !grpc_.empty() && !status_.empty();
}

absl::StatusOr<cli::Answer> LocalCluster::Generate(const v1::GenerateRequest& request) const {
  cli::RouterClient client(grpc_, access_);
  cli::Answer answer;
  BATON_RETURN_IF_ERROR(
      client.Generate(request, kPatience, [&answer](const v1::GenerateResponse& response) { answer.Add(response); }));
  return answer;
}

absl::StatusOr<v1::Worker> LocalCluster::Worker(const std::string& id) const {
  cli::RouterClient client(grpc_, access_);
  BATON_ASSIGN_OR_RETURN(const v1::GetClusterResponse cluster, client.GetCluster(absl::Seconds(5)));
  for (const v1::Worker& worker : cluster.workers()) {
    if (worker.id() == id) return worker;
  }
  return absl::NotFoundError(absl::StrCat("no worker ", id));
}

bool LocalCluster::Idle() const {
  cli::RouterClient client(grpc_, access_);
  const auto cluster = client.GetCluster(absl::Seconds(5));
  if (!cluster.ok() || cluster->workers().empty()) return false;
  for (const v1::Worker& worker : cluster->workers()) {
    // What the router shows is as old as a heartbeat; the worker's own gauges say how it is now.
    for (const char* state : {"used", "quarantined"}) {
      const auto blocks = Metric(worker.status(), "baton_kv_blocks", absl::StrCat("state=\"", state, "\""));
      if (!blocks.ok() || *blocks != 0) return false;
    }
    const auto requests = Metric(worker.status(), "baton_requests");
    if (!requests.ok() || *requests != 0) return false;
  }
  return true;
}

absl::StatusOr<double> LocalCluster::Metric(const std::string& status_address, const std::string& name,
                                            const std::string& labels) const {
  BATON_ASSIGN_OR_RETURN(const HttpResponse response, HttpGet(status_address, "/metrics"));
  if (response.status != 200) return absl::UnavailableError(absl::StrCat("/metrics answered ", response.status));
  double sum = 0;
  bool found = false;
  for (absl::string_view line : absl::StrSplit(response.body, '\n')) {
    if (!absl::StartsWith(line, name) || line.size() <= name.size()) continue;
    if (line[name.size()] != '{' && line[name.size()] != ' ') continue;
    if (!absl::StrContains(line, labels)) continue;
    double value = 0;
    if (!absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value)) return absl::DataLossError(std::string(line));
    sum += value;
    found = true;
  }
  if (!found) return absl::NotFoundError(absl::StrCat("no series ", name, "{", labels, "}"));
  return sum;
}

pid_t LocalCluster::PidOf(const std::string& id) const {
  pid_t parent;
  {
    MutexLock lock(&mutex_);
    parent = pid_;
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    const std::string stat = ReadFile(entry.path() / "stat");
    const size_t end = stat.rfind(')');
    if (end == std::string::npos) continue;
    const std::vector<std::string> fields = absl::StrSplit(stat.substr(end + 1), ' ', absl::SkipEmpty());
    if (fields.size() < 2 || fields[1] != absl::StrCat(parent) || fields[0] == "Z") continue;
    const std::string arguments = ReadFile(entry.path() / "cmdline");
    if (id == "router" ? absl::StrContains(arguments, "baton_router") : absl::StrContains(arguments, "--id=" + id)) return pid;
  }
  return -1;
}

void LocalCluster::Signal(int signal_number) {
  MutexLock lock(&mutex_);
  if (pid_ > 0) kill(pid_, signal_number);
}

std::optional<cli::ChildExit> LocalCluster::WaitForExit() {
  Eventually([this] {
    MutexLock lock(&mutex_);
    return exit_.has_value();
  });
  MutexLock lock(&mutex_);
  return exit_;
}

std::string LocalCluster::log() const {
  MutexLock lock(&mutex_);
  return log_;
}

v1::GenerateRequest GreedyRequest(const std::vector<int>& prompt, int num_tokens) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Assign(prompt.begin(), prompt.end());
  request.mutable_sampling()->set_temperature(0);
  request.set_max_tokens(num_tokens);
  request.set_ignore_eos(true);
  return request;
}

}  // namespace baton::testing
