// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/sim_prefill.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/sim_decode.h"

namespace baton::testing {
namespace {

constexpr int kPoolBlocks = 14;

}  // namespace

SimPrefill::SimPrefill(SimWorld* world, SimDirectory* directory, const std::string& name, uint64_t incarnation,
                       TransportKind kind, OnAnswer on_answer)
    : world_(world),
      peer_{name, incarnation, kind},
      on_answer_(std::move(on_answer)),
      pool_(MakeSimPool(kPoolBlocks)),
      allocator_(kPoolBlocks, SimLayout().block_size, /*enable_prefix_cache=*/false),
      directory_(directory) {
  LinkSenderOptions options;
  options.self = peer_;
  options.compatibility = {"model", SimLayout().fingerprint(), ""};
  options.address = "d-1";
  options.max_frame_bytes = SimLayout().block_layer_bytes() * static_cast<size_t>(1 + world->Pick(3));
  options.clock = &world->clock;
  options.own_thread = false;
  const auto ended = [this](const TransferId& transfer, int attempt) {
    return !dead_ && std::none_of(jobs_.begin(), jobs_.end(), [&](const auto& job) {
      return !job->done && job->prefill.transfer == transfer && job->prefill.attempt == attempt;
    });
  };
  sender_ = std::make_unique<LinkSender>(options, pool_.get(), [=](KvLink::Events events) {
    return std::make_unique<SimKvLink>(world, directory, kind, std::move(events), ended);
  });
}

SimPrefill::~SimPrefill() {
  dead_ = true;
  for (const auto& connection : directory_->connections) {
    if (connection->peer == peer_) connection->broken = true;
  }
  sender_.reset();
}

void SimPrefill::CutLink() {
  for (const auto& connection : directory_->connections) {
    if (connection->peer == peer_) (world_->Pick(2) == 0 ? connection->broken : connection->cut) = true;
  }
}

void SimPrefill::Start(const Prefill& prefill) {
  world_->Note(absl::StrCat(peer_.worker, "/", peer_.incarnation, " starts ", prefill.transfer.stream, " attempt ", prefill.attempt));
  auto owned = std::make_unique<Job>();
  Job& job = *owned;
  job.prefill = prefill;
  job.chain = TokenChain(prefill.tokens);
  const int num_tokens = static_cast<int>(prefill.tokens.size()) - 1;
  const int block_size = SimLayout().block_size;
  const auto blocks = allocator_.Allocate((num_tokens + block_size - 1) / block_size);
  if (!blocks.ok()) return Answer(prefill, blocks.status());
  job.blocks = *blocks;
  jobs_.push_back(std::move(owned));
  SendJob send;
  send.transfer = prefill.transfer;
  send.attempt = prefill.attempt;
  send.peer_incarnation = prefill.decode_incarnation;
  send.first_token = prefill.first_missing;
  send.num_tokens = num_tokens;
  send.token = prefill.token;
  const bool forgotten = world_->fault == Fault::kForgottenJob && world_->Pick(8) == 0;
  send.on_done = [this, &job, forgotten](const absl::Status& status, const SendStats&) {
    if (!forgotten) OnDone(job, status);
  };
  job.transfer = sender_->Begin(std::move(send));
}

void SimPrefill::OnDone(Job& job, const absl::Status& status) {
  if (dead_) return;
  world_->Note(absl::StrCat(peer_.worker, "/", peer_.incarnation, " done with ", job.prefill.transfer.stream, " attempt ",
                            job.prefill.attempt, ": ", status.ToString()));
  if (std::exchange(job.done, true)) return world_->Violate("a job ended twice");
  for (const BlockId block : job.blocks) {
    Scribble(pool_.get(), block);
    allocator_.Unref(block);
  }
  Answer(job.prefill, status);
}

void SimPrefill::Cancel(const TransferId& transfer, int attempt) {
  for (const auto& job : jobs_) {
    if (!job->done && job->prefill.transfer == transfer && job->prefill.attempt == attempt) sender_->Cancel(job->transfer);
  }
}

bool SimPrefill::Compute() {
  std::vector<Job*> ready;
  for (const auto& job : jobs_) {
    if (!job->done && !job->finished) ready.push_back(job.get());
  }
  if (ready.empty()) return false;
  Job& job = *ready[static_cast<size_t>(world_->Pick(static_cast<int>(ready.size())))];
  const int num_tokens = static_cast<int>(job.prefill.tokens.size()) - 1;
  if (!std::exchange(job.started, true)) sender_->SetBlocks(job.transfer, job.blocks);
  if (job.token >= num_tokens) {
    Manifest manifest;
    manifest.model_fingerprint = "model";
    manifest.first_token = job.prefill.first_missing;
    manifest.num_tokens = num_tokens;
    manifest.token_hash = job.chain[static_cast<size_t>(num_tokens)];
    sender_->Finish(job.transfer, manifest);
    job.finished = true;
    return true;
  }
  if (job.layer == 0) job.chunk_end = std::min(num_tokens, job.token + 5 + world_->Pick(40));
  FillTokens(pool_.get(), job.blocks, job.chain, job.layer, job.token, job.chunk_end);
  const int begin = std::max(job.token, job.prefill.first_missing);
  if (begin < job.chunk_end) sender_->Push(job.transfer, job.layer, job.layer + 1, begin, job.chunk_end);
  if (++job.layer == SimLayout().num_layers) {
    job.layer = 0;
    job.token = job.chunk_end;
  }
  return true;
}

bool SimPrefill::TakeAnswer() {
  for (const auto& connection : directory_->connections) {
    if (!(connection->peer == peer_) || !connection->events.has_value()) continue;
    const KvLink::Events events = *connection->events;  // The link may go while it is told.
    if (!connection->to_writer.empty()) {
      const SimConnection::Answer answer = std::move(connection->to_writer.front());
      connection->to_writer.pop_front();
      answer(events);
      return true;
    }
    connection->broken = connection->broken || connection->cut;
    if (connection->broken && !std::exchange(connection->told_closed, true)) {
      events.on_closed();
      return true;
    }
  }
  return false;
}

std::string SimPrefill::Gauges() const {
  std::string held;
  const BlockCounts counts = allocator_.counts();
  if (counts.free != counts.total) absl::StrAppend(&held, " ", peer_.worker, " has ", counts.used, " blocks in use;");
  const auto open = std::count_if(jobs_.begin(), jobs_.end(), [](const auto& job) { return !job->done; });
  if (open > 0) absl::StrAppend(&held, " ", peer_.worker, " has ", open, " jobs that never ended;");
  if (sender_->num_open() > 0) absl::StrAppend(&held, " ", peer_.worker, "'s sender has ", sender_->num_open(), " jobs;");
  return held;
}

}  // namespace baton::testing
