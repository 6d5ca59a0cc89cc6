// SPDX-License-Identifier: Apache-2.0
// Holds the source tree to its rules: who may include whom, the licence line, include guards and sizes. Reads the files
// of the checkout, so it needs no build of what it checks.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "tests/support/paths.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

// Folder -> the folders it may include beside itself. "proto" stands for the generated protocol headers ("baton/..."). A
// folder belongs to the longest name here that its path begins with.
const std::map<std::string, std::set<std::string>>& Permissions() {
  static const auto* const table = [] {
    const std::set<std::string> transport = {"common/base", "common/backend", "common/kv", "common/kv_transfer", "common/rpc",
                                             "proto"};
    const std::set<std::string> worker = {"common/base",   "common/format", "common/backend",     "common/kv",
                                          "common/model",  "common/engine", "common/rpc",         "common/http",  "common/tls",
                                          "common/worker", "proto",         "common/kv_transfer", "common/kv_transfer/grpc",
                                          "common/kv_transfer/transports", "common/grammar", "common/trace"};
    std::set<std::string> worker_base = worker;
    worker_base.insert("common/text");  // The tokenizer's fingerprint, which the router compares.
    std::set<std::string> tool = worker;
    tool.insert({"common/text", "deploy", "common/kv_transfer/tcp"});
    return new std::map<std::string, std::set<std::string>>{
        {"common/base", {}},
        {"common/format", {"common/base"}},
        {"common/grammar", {"common/base"}},
        {"common/text", {"common/base", "common/format"}},
        {"common/backend", {"common/base", "common/format"}},
        {"common/kv", {"common/base", "common/backend"}},
        {"common/model", {"common/base", "common/format", "common/backend", "common/kv"}},
        {"common/engine", {"common/base", "common/format", "common/grammar", "common/backend", "common/kv", "common/model"}},
        {"common/tls", {"common/base"}},
        {"common/rpc", {"common/base", "common/tls", "common/trace", "proto"}},
        {"common/http", {"common/base", "common/tls"}},
        {"common/trace", {"common/base", "common/http"}},
        {"common/kv_transfer", {"common/base", "common/backend", "common/kv"}},
        {"common/kv_transfer/grpc", transport},
        {"common/kv_transfer/inproc", transport},
        {"common/kv_transfer/shm", transport},
        {"common/kv_transfer/tcp", transport},
        {"common/kv_transfer/cuda_ipc", transport},
        {"common/kv_transfer/nccl", transport},
        {"common/kv_transfer/transports",
         {"common/base", "common/backend", "common/kv", "common/kv_transfer", "common/kv_transfer/cuda_ipc", "common/kv_transfer/grpc",
          "common/kv_transfer/inproc", "common/kv_transfer/nccl", "common/kv_transfer/shm", "common/kv_transfer/tcp"}},
        {"common/worker", worker_base},
        {"router", {"common/base", "common/format", "common/grammar", "common/text", "common/tls", "common/trace", "common/rpc", "common/http", "proto"}},
        {"prefill_worker", worker},
        {"decode_worker", worker},
        {"deploy", tool},
    };
  }();
  return *table;
}

struct File {
  std::string path;  // Relative to the source folder.
  std::vector<std::string> lines;

  std::string name() const { return fs::path(path).filename(); }
  bool EndsWith(std::initializer_list<const char*> endings) const {
    return std::any_of(endings.begin(), endings.end(), [&](const char* ending) { return absl::EndsWith(path, ending); });
  }
  bool IsCpp() const { return EndsWith({".h", ".cc", ".inc", ".cu"}); }
};

bool IsSource(const fs::path& path) {
  static const std::set<std::string> endings = {".h", ".cc", ".inc", ".cu", ".cuh", ".proto", ".py", ".sh", ".cmake"};
  if (endings.count(path.extension())) return true;
  if (path.filename() == "CMakeLists.txt") return true;
  // Scripts have no ending; what is data has.
  return path.extension().empty() && (fs::status(path).permissions() & fs::perms::owner_exec) != fs::perms::none;
}

const std::vector<File>& Sources() {
  static const auto* const files = [] {
    auto* found = new std::vector<File>;
    const fs::path root = testing::SourcePath("");
    for (const char* folder : {"common", "router", "prefill_worker", "decode_worker", "deploy", "proto", "tests", "cmake", ".ci"}) {
      if (!fs::exists(root / folder)) continue;
      for (fs::recursive_directory_iterator it(root / folder), end; it != end; ++it) {
        if (it->path().filename() == "golden" || it->path().filename() == "__pycache__") {
          it.disable_recursion_pending();
          continue;
        }
        if (!it->is_regular_file() || !IsSource(it->path())) continue;
        File file{.path = fs::relative(it->path(), root).string()};
        std::ifstream in(it->path());
        for (std::string line; std::getline(in, line);) file.lines.push_back(line);
        found->push_back(std::move(file));
      }
    }
    std::sort(found->begin(), found->end(), [](const File& a, const File& b) { return a.path < b.path; });
    return found;
  }();
  return *files;
}

// The table's folder that `path` lies in.
std::optional<std::string> FolderOf(const std::string& path) {
  std::optional<std::string> best;
  for (const auto& entry : Permissions()) {
    if (absl::StartsWith(path, entry.first + "/") && (!best || entry.first.size() > best->size())) best = entry.first;
  }
  return best;
}

struct Include {
  std::string name;
  size_t line;
};

std::vector<Include> IncludesOf(const File& file) {
  std::vector<Include> includes;
  for (size_t i = 0; i < file.lines.size(); ++i) {
    absl::string_view line = absl::StripLeadingAsciiWhitespace(file.lines[i]);
    if (!absl::ConsumePrefix(&line, "#")) continue;
    line = absl::StripLeadingAsciiWhitespace(line);
    if (!absl::ConsumePrefix(&line, "include")) continue;
    line = absl::StripLeadingAsciiWhitespace(line);
    if (line.empty() || (line[0] != '"' && line[0] != '<')) continue;
    const size_t end = line.find_first_of("\">", 1);
    if (end != absl::string_view::npos) includes.push_back({std::string(line.substr(1, end - 1)), i + 1});
  }
  return includes;
}

// Whether code of `folder` may include `name`; else why not.
std::optional<std::string> Objection(const std::string& folder, const std::string& name) {
  const std::set<std::string>& permitted = Permissions().at(folder);
  std::string target;
  if (absl::StartsWith(name, "baton/")) {
    target = "proto";
  } else if (absl::StartsWith(name, "tests/")) {
    return "only tests include tests";
  } else if (const std::optional<std::string> found = FolderOf(name)) {
    target = *found;
  } else if (absl::StartsWith(name, "common/")) {
    return "that folder is not in the table of layering_test.cc";
  } else {
    return std::nullopt;  // The standard library or a package.
  }
  if (target == folder || permitted.count(target)) return std::nullopt;
  return absl::StrCat(folder, " may not include ", target);
}

bool MayUseGrpc(const File& file) {
  if (absl::StartsWith(file.path, "common/rpc/") || absl::StartsWith(file.path, "common/kv_transfer/grpc")) return true;
  const std::string stem = fs::path(file.path).stem();
  return absl::EndsWith(stem, "_service") || absl::EndsWith(stem, "_client") || absl::EndsWith(stem, "_clients");
}

bool IsGrpcHeader(const std::string& name) {
  return absl::StartsWith(name, "grpcpp/") || absl::StartsWith(name, "grpc/") || absl::EndsWith(name, ".grpc.pb.h");
}

// Packages that stay behind one folder. The load generator is a client of thousands of streams: it needs what the HTTP server
// is made of, and must not share its code.
const std::map<std::string, std::vector<std::string>> kPrivatePackages = {
    {"boost/", {"common/http/", "deploy/bench/"}}, {"yaml-cpp/", {"common/base/"}}, {"oneapi/", {"common/backend/"}},
    {"dnnl", {"common/backend/"}},                 {"openssl/", {"common/tls/"}},  {"pcre2", {"common/text/"}},     {"utf8proc", {"common/text/"}},
};

TEST(Layering, IncludesFollowTheTable) {
  int checked = 0;
  for (const File& file : Sources()) {
    if (!file.IsCpp() || absl::StartsWith(file.path, "tests/")) continue;
    const std::optional<std::string> folder = FolderOf(file.path);
    if (!folder) {
      ADD_FAILURE() << file.path << " lies in no folder of the table";
      continue;
    }
    for (const Include& include : IncludesOf(file)) {
      const std::optional<std::string> objection = Objection(*folder, include.name);
      EXPECT_FALSE(objection.has_value()) << file.path << ":" << include.line << ": " << include.name << ": " << *objection;
      ++checked;
    }
  }
  EXPECT_GT(checked, 100);
}

TEST(Layering, GrpcStaysInServicesAndClients) {
  for (const File& file : Sources()) {
    if (!file.IsCpp() || absl::StartsWith(file.path, "tests/") || MayUseGrpc(file)) continue;
    for (const Include& include : IncludesOf(file)) {
      EXPECT_FALSE(IsGrpcHeader(include.name))
          << file.path << ":" << include.line << ": " << include.name
          << ": only common/rpc, the grpc transport and *_service and *_client files include gRPC";
    }
  }
}

TEST(Layering, PackagesStayBehindTheirFolder) {
  for (const File& file : Sources()) {
    if (!file.IsCpp() || absl::StartsWith(file.path, "tests/")) continue;
    for (const Include& include : IncludesOf(file)) {
      for (const auto& [prefix, homes] : kPrivatePackages) {
        const bool at_home = std::ranges::any_of(homes, [&](const std::string& home) { return absl::StartsWith(file.path, home); });
        EXPECT_FALSE(absl::StartsWith(include.name, prefix) && !at_home)
            << file.path << ":" << include.line << ": " << include.name << " belongs behind " << absl::StrJoin(homes, " or ");
      }
      if (file.EndsWith({".cu"})) {
        EXPECT_FALSE(absl::StartsWith(include.name, "absl/")) << file.path << ":" << include.line << ": nvcc reads no Abseil";
      }
    }
  }
}

// The test itself: it must object where it should.
TEST(Layering, TheTableObjects) {
  EXPECT_EQ(Objection("router", "common/text/tokenizer.h"), std::nullopt);
  EXPECT_EQ(Objection("router", "baton/v1/generation.pb.h"), std::nullopt);
  EXPECT_EQ(Objection("common/kv_transfer/grpc", "common/kv_transfer/transfer.h"), std::nullopt);
  EXPECT_NE(Objection("router", "common/engine/engine.h"), std::nullopt);
  EXPECT_NE(Objection("router", "decode_worker/decode_service.h"), std::nullopt);
  EXPECT_NE(Objection("common/base", "common/http/http_server.h"), std::nullopt);
  EXPECT_NE(Objection("common/kv_transfer", "common/kv_transfer/grpc/wire.h"), std::nullopt);
  EXPECT_NE(Objection("common/engine", "baton/internal/decode.pb.h"), std::nullopt);
  EXPECT_NE(Objection("decode_worker", "common/text/tokenizer.h"), std::nullopt);
  EXPECT_NE(Objection("common/base", "common/unheard_of/x.h"), std::nullopt);
}

// Nobody reaches itself through what it may include.
TEST(Layering, TheTableHasNoCycles) {
  for (const auto& entry : Permissions()) {
    std::vector<std::string> open(entry.second.begin(), entry.second.end());
    std::set<std::string> reached;
    while (!open.empty()) {
      const std::string folder = open.back();
      open.pop_back();
      if (folder == "proto" || folder == entry.first || !reached.insert(folder).second) continue;
      const std::set<std::string>& next = Permissions().at(folder);
      EXPECT_EQ(next.count(entry.first), 0u) << entry.first << " and " << folder << " include each other";
      open.insert(open.end(), next.begin(), next.end());
    }
  }
}

TEST(SourceStyle, EveryFileNamesItsLicence) {
  int checked = 0;
  for (const File& file : Sources()) {
    bool found = false;
    for (size_t i = 0; i < std::min<size_t>(2, file.lines.size()); ++i) {
      found = found || absl::StrContains(file.lines[i], "SPDX-License-Identifier: Apache-2.0");
    }
    EXPECT_TRUE(found) << file.path << ": no line 'SPDX-License-Identifier: Apache-2.0' at the top";
    ++checked;
  }
  EXPECT_GT(checked, 50);
}

TEST(SourceStyle, HeadersHaveTheirGuard) {
  for (const File& file : Sources()) {
    if (!file.EndsWith({".h"})) continue;
    const std::string guard =
        absl::StrCat("BATON_", absl::AsciiStrToUpper(absl::StrReplaceAll(file.path, {{"/", "_"}, {".", "_"}, {"-", "_"}})), "_");
    const bool found = std::find(file.lines.begin(), file.lines.end(), "#define " + guard) != file.lines.end();
    // Kernel bodies are compiled once per instruction set, each time into an unnamed namespace.
    const bool guarded = std::any_of(file.lines.begin(), file.lines.end(),
                                     [](const std::string& line) { return absl::StartsWith(line, "#ifndef BATON_"); });
    if (!guarded && absl::StartsWith(file.path, "common/backend/cpu/")) continue;
    EXPECT_TRUE(found) << file.path << ": expected the include guard " << guard;
  }
}

// Durations and deadlines are of the monotonic clock (common/base/clock.h): the wall clock may be set while a program runs. Who asks it
// does so for a date that somebody reads.
TEST(SourceStyle, TheWallClockDecidesNothing) {
  const std::vector<std::string> wall = {"absl::Now(",      "system_clock",  "CLOCK_REALTIME", "gettimeofday(", "std::time(", "time(nullptr)",
                                         "time(NULL)",      "system_timer",  "deadline_timer", "time.time()",   "datetime.now(", "pthread_cond_timedwait(",
                                         "sem_timedwait(",  "timespec_get(", "utcnow("};
  const std::map<std::string, std::string> readers = {
      {"common/base/logging.cc", "the time of a line"},
      {"common/http/connection_write.cc", "the header Date"},
      {"common/rpc/monotonic_waits.cc", "what gRPC waits for is taken off it at once"},
      {"common/tls/tls_files.cc", "whether a certificate is valid"},
      {"common/trace/tracer.cc", "when the process began, for spans that others read"},
      {"common/text/renderer/renderer.py", "the date that templates print"},
      {"deploy/cli/doctor.cc", "the date of a report"},
      {"router/http_generation.cc", "the member created"},
      {"router/text_loader.cc", "the member created"},
  };
  std::set<std::string> seen;
  int checked = 0;
  for (const File& file : Sources()) {
    if (absl::StartsWith(file.path, "tests/") || !file.EndsWith({".h", ".cc", ".inc", ".cu", ".py"})) continue;
    ++checked;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      for (const std::string& word : wall) {
        if (!absl::StrContains(file.lines[i], word)) continue;
        seen.insert(file.path);
        EXPECT_TRUE(readers.count(file.path)) << file.path << ":" << i + 1 << ": " << word << " is of the wall clock, which may jump: " << file.lines[i];
      }
    }
  }
  EXPECT_GT(checked, 100);
  for (const auto& [path, why] : readers) EXPECT_TRUE(seen.count(path)) << path << " does not ask the wall clock any more (" << why << ")";
}

// At 400 lines one asks which second job moved in; these are the sizes at which it has.
TEST(SourceStyle, FilesStaySmall) {
  for (const File& file : Sources()) {
    if (!file.IsCpp()) continue;
    const size_t bound = absl::StartsWith(file.path, "tests/") ? 700 : 500;
    EXPECT_LE(file.lines.size(), bound) << file.path << ": split it";
  }
}

TEST(SourceStyle, EveryFolderHasItsContract) {
  for (const auto& entry : Permissions()) {
    const fs::path folder = fs::path(testing::SourcePath(entry.first));
    if (!fs::exists(folder)) continue;
    // A transport of a file or two is described by its parent.
    const bool described = fs::exists(folder / "README.md") || fs::exists(folder.parent_path() / "README.md");
    EXPECT_TRUE(described && (absl::StrContains(entry.first, "kv_transfer/") || fs::exists(folder / "README.md")))
        << entry.first << ": no README.md";
  }
}

}  // namespace
}  // namespace baton
