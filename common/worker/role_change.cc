// SPDX-License-Identifier: Apache-2.0
#include "common/worker/role_change.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

absl::StatusOr<std::vector<std::string>> OwnArguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.empty() || text.back() != '\0') return absl::UnavailableError("/proc/self/cmdline cannot be read");
  text.pop_back();
  return std::vector<std::string>(absl::StrSplit(text, '\0'));
}

}  // namespace

absl::StatusOr<std::string> WorkerProgram(internal::WorkerRole role) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::NotFoundError(absl::StrCat("/proc/self/exe: ", error.message()));
  const std::string program = self.parent_path() / (role == internal::PREFILL ? "baton_prefill_worker" : "baton_decode_worker");
  if (access(program.c_str(), X_OK) != 0) return absl::NotFoundError(absl::StrCat(program, ": ", std::strerror(errno)));
  return program;
}

std::vector<std::string> WorkerArguments(const std::string& program, std::vector<std::string> arguments, const std::string& id) {
  const std::string flag = absl::StrCat("--id=", id);
  bool has_id = false;
  for (size_t i = 1; i < arguments.size(); ++i) {
    has_id = has_id || arguments[i] == flag || (arguments[i] == "--id" && i + 1 < arguments.size() && arguments[i + 1] == id);
  }
  arguments[0] = program;
  if (!has_id) arguments.push_back(flag);
  return arguments;
}

absl::Status BecomeWorker(internal::WorkerRole role, const std::string& id) {
  BATON_ASSIGN_OR_RETURN(const std::string program, WorkerProgram(role));
  BATON_ASSIGN_OR_RETURN(std::vector<std::string> own, OwnArguments());
  std::vector<std::string> arguments = WorkerArguments(program, std::move(own), id);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  // Whatever a library has left open: the next program needs the ports.
  (void)close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  execv(program.c_str(), argv.data());
  return absl::UnavailableError(absl::StrCat(program, ": ", std::strerror(errno)));
}

}  // namespace baton
