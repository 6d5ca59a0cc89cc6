// SPDX-License-Identifier: Apache-2.0
// What a bug report needs, in one text.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/build_info.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/memory.h"
#include "common/base/quantity.h"
#include "common/base/thread.h"
#include "deploy/cli/child_process.h"
#include "deploy/cli/cluster_text.h"
#include "deploy/cli/command.h"
#include "deploy/cli/flags.h"
#include "deploy/cli/router_client.h"
#include "deploy/cli/secrets.h"
#include "deploy/cli/tls.h"

extern char** environ;

namespace baton::cli {
namespace {

constexpr size_t kMaxFileBytes = 256 << 10;

void Section(absl::string_view title, absl::string_view body, std::string* report) {
  absl::StrAppend(report, "\n===== ", title, "\n", body, absl::EndsWith(body, "\n") || body.empty() ? "" : "\n");
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return "cannot be read\n";
  std::string text;
  char buffer[4096];
  while (text.size() < kMaxFileBytes && (in.read(buffer, sizeof buffer), in.gcount() > 0)) text.append(buffer, in.gcount());
  return text;
}

// The lines of `path` that begin with one of `names`, each once.
std::string LinesOf(const char* path, const std::vector<absl::string_view>& names) {
  std::set<std::string> seen;
  std::string out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const bool wanted = std::any_of(names.begin(), names.end(), [&](absl::string_view name) { return absl::StartsWith(line, name); });
    if (wanted && seen.insert(line).second) absl::StrAppend(&out, line, "\n");
  }
  return out;
}

std::string Machine() {
  std::string out;
  utsname name = {};
  if (uname(&name) == 0) absl::StrAppend(&out, name.sysname, " ", name.release, " ", name.machine, "\n");
  absl::StrAppend(&out, LinesOf("/etc/os-release", {"PRETTY_NAME"}), LinesOf("/proc/cpuinfo", {"model name", "flags"}),
                  "usable CPUs: ", NumUsableCpus(), "\n", LinesOf("/proc/meminfo", {"MemTotal", "MemAvailable", "SwapTotal", "HugePages_Total"}));
  if (const auto limits = ReadMemoryLimits(); limits.ok()) {
    absl::StrAppend(&out, "memory: limit ", FormatBytes(limits->limit_bytes), ", available ", FormatBytes(limits->available_bytes),
                    ", bound by ", limits->bound_by, "\n");
  }
  absl::StrAppend(&out, LinesOf("/proc/driver/nvidia/version", {"NVRM", "GCC"}));
  return out;
}

std::string Variables() {
  std::string out;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    if (absl::StartsWith(*variable, "BATON_")) absl::StrAppend(&out, *variable, "\n");
  }
  return out;
}

// What the programs of the cluster say of themselves: the router's list, then each worker's own pages.
void AddCluster(const std::string& router, absl::Duration timeout, std::string* report) {
  const auto access = AccessFromFlags();
  if (!access.ok()) Section("access", access.status().ToString(), report);
  RouterClient client(router, access.value_or(RouterAccess()));
  const auto cluster = client.GetCluster(timeout);
  if (!cluster.ok()) return Section(absl::StrCat("cluster at ", router), cluster.status().ToString(), report);
  Section(absl::StrCat("cluster at ", router), ClusterText(*cluster, false), report);
  Section("cluster as JSON", DumpJson(ClusterJson(*cluster)), report);
  std::vector<std::string> addresses = absl::StrSplit(absl::GetFlag(FLAGS_processes), ',', absl::SkipWhitespace());
  for (const auto& worker : cluster->workers()) {
    if (!worker.status().empty()) addresses.push_back(worker.status());
  }
  for (const std::string& address : addresses) {
    for (const char* page : {"/health", "/ready", "/metrics"}) {
      const auto response = GetStatusPage(address, page, timeout);
      Section(absl::StrCat(absl::StartsWith(address, "https://") ? "" : "http://", address, page), response.ok() ? response->body : response.status().ToString(), report);
    }
  }
}

void AddConfiguration(const std::string& folder, std::string* report) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string extension = entry.path().extension();
    if (extension == ".yaml" || extension == ".yml" || extension == ".env") files.push_back(entry.path());
  }
  if (error) return Section(folder, error.message(), report);
  std::sort(files.begin(), files.end());
  for (const auto& file : files) Section(file.string(), ReadFile(file), report);
}

// The journal of the services, where there is one; at most 10 s.
void AddJournal(int lines, std::string* report) {
  std::string journal;
  auto child = ChildProcess::Start({"/usr/bin/journalctl", "--no-pager", "-q", "-o", "short-iso-precise", "-n", absl::StrCat(lines), "-u",
                                    "baton-*", "-u", "baton.target"},
                                   {}, [&journal](absl::string_view line) { absl::StrAppend(&journal, line, "\n"); });
  if (!child.ok()) return Section("journal", "there is no journalctl", report);
  const MonotonicTime deadline = Clock::Real()->Now() + absl::Seconds(10);
  while (!(*child)->Reap() && Clock::Real()->Now() < deadline) {
    (*child)->ReadOutput();
    usleep(5000);
  }
  Section("journal", journal, report);
}

int RunDoctor(const ConfigResult&) {
  std::string report = absl::StrCat("baton doctor, ", absl::FormatTime(absl::Now(), absl::UTCTimeZone()), "\n", BuildDescription(), "\n");
  Section("machine", Machine(), &report);
  Section("environment", Variables(), &report);
  AddConfiguration(absl::GetFlag(FLAGS_config_folder), &report);
  AddCluster(absl::GetFlag(FLAGS_router), std::min(absl::GetFlag(FLAGS_timeout), absl::Seconds(5)), &report);
  AddJournal(absl::GetFlag(FLAGS_log_lines), &report);
  return Print(RemoveSecrets(report)) ? kExitOk : kExitFailure;
}

}  // namespace

Command DoctorCommand() {
  return {
      .name = "doctor",
      .summary = "collect what a bug report needs, without secrets",
      .spec = {.summary = "Prints what a bug report needs: releases, machine, configuration, the cluster's state, metrics and log. Keys, "
                          "passwords and tokens are removed; look it over all the same before you send it.",
               .examples = "  baton doctor > report.txt\n"
                           "  baton doctor --router 10.0.0.1:9000 --processes 10.0.0.1:9100 > report.txt\n",
               .groups = {{"Where to look", {"router", "api_key_file", "processes", "config_folder", "log_lines", "timeout"}},
                          {"TLS", ClientTlsFlags()}}},
      .run = RunDoctor,
  };
}

}  // namespace baton::cli
