// SPDX-License-Identifier: Apache-2.0
#include "router/model_seeker.h"

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr absl::Duration kReadTimeout = absl::Seconds(60);
constexpr absl::Duration kAskAgain = absl::Seconds(5);

// A folder of our own for as long as this lives. In memory where there is a file system for that: a container's root is often
// read-only.
class ScratchFolder {
 public:
  ScratchFolder() {
    const char* const wanted = std::getenv("TMPDIR");
    for (const std::string base : {wanted == nullptr ? "" : wanted, "/dev/shm", "/tmp"}) {
      if (base.empty()) continue;
      std::string pattern = absl::StrCat(base, "/baton-text-XXXXXX");
      if (::mkdtemp(pattern.data()) == nullptr) continue;
      path_ = pattern;
      return;
    }
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }  // Empty: there is none.

 private:
  std::string path_;
};

}  // namespace

ModelSeeker::ModelSeeker(std::shared_ptr<const RpcTls> tls, Load load, Found found)
    : client_(std::move(tls)), load_(std::move(load)), found_(std::move(found)), thread_("model", [this] { Run(); }) {}

void ModelSeeker::Stop() {
  client_.Stop();
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  thread_.Join();
}

void ModelSeeker::SetView(std::shared_ptr<const ClusterView> view) {
  MutexLock lock(&mutex_);
  view_ = std::move(view);
  changed_.NotifyAll();
}

std::string ModelSeeker::reason() const {
  MutexLock lock(&mutex_);
  return reason_;
}

const WorkerInfo* ModelSeeker::NextLocked() const {
  if (view_ == nullptr) return nullptr;
  const MonotonicTime now = Clock::Real()->Now();
  const WorkerInfo* next = nullptr;
  for (const auto& worker : view_->workers) {
    const auto failed = failed_.find(worker->ref);
    if (worker->silent || (failed != failed_.end() && now - failed->second < kAskAgain)) continue;
    // The one that would serve decides which model it is, where there are several.
    if (next == nullptr || (!next->ready() && worker->ready())) next = worker.get();
  }
  return next;
}

void ModelSeeker::Run() {
  while (true) {
    std::shared_ptr<const ClusterView> view;  // Keeps the worker.
    const WorkerInfo* worker = nullptr;
    {
      MutexLock lock(&mutex_);
      while (!stop_ && (worker = NextLocked()) == nullptr) changed_.WaitFor(&mutex_, absl::Seconds(1));
      if (stop_) return;
      view = view_;
    }
    absl::StatusOr<ServedModel> model = Ask(*worker);
    if (model.ok()) {
      BATON_LOG(INFO) << "model " << model->name << ": tokenizer and chat template are those of worker " << worker->ref.id;
      return found_(*std::move(model));
    }
    MutexLock lock(&mutex_);
    if (stop_) return;
    reason_ = absl::StrCat("worker ", worker->ref.id, ": ", model.status().message());
    if (!failed_.contains(worker->ref)) BATON_LOG(WARNING) << "no tokenizer from " << reason_;
    for (auto it = failed_.begin(); it != failed_.end();) it = view->Find(it->first) == nullptr ? failed_.erase(it) : std::next(it);
    failed_[worker->ref] = Clock::Real()->Now();
  }
}

absl::StatusOr<ServedModel> ModelSeeker::Ask(const WorkerInfo& worker) {
  const absl::StatusOr<std::vector<TextFile>> files = client_.Read(worker.identity.address(), kReadTimeout);
  if (absl::IsUnimplemented(files.status())) return absl::UnimplementedError("its release does not tell a model's tokenizer; give --model");
  if (!files.ok()) return files.status();
  const ScratchFolder folder;
  if (folder.path().empty()) return absl::UnavailableError("no folder can be made in TMPDIR, /dev/shm or /tmp for its tokenizer");
  BATON_ASSIGN_OR_RETURN(const std::string path, WriteTextFiles(*files, folder.path()));
  BATON_ASSIGN_OR_RETURN(ServedModel model, load_(path, worker.identity.model()));
  const std::string& registered = worker.identity.tokenizer_fingerprint();
  if (model.tokenizer->fingerprint() != registered) {
    return absl::FailedPreconditionError(absl::StrCat("tokenizer mismatch: it registered with '", registered, "' and sent ",
                                                      model.tokenizer->fingerprint()));
  }
  return model;
}

}  // namespace baton
