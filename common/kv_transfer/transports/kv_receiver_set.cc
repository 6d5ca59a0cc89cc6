// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/transports/kv_receiver_set.h"

#include <algorithm>
#include <utility>

#include "common/base/host_port.h"
#include "common/base/logging.h"
#include "common/kv_transfer/cuda_ipc/cuda_ipc_transport.h"
#include "common/kv_transfer/grpc/grpc_kv_receiver.h"
#include "common/kv_transfer/inproc/inproc_transport.h"
#include "common/kv_transfer/nccl/nccl_transport.h"
#include "common/kv_transfer/shm/shm_transport.h"
#include "common/kv_transfer/tcp/tcp_transport.h"
#include "common/kv_transfer/transports/device_transports.h"

namespace baton {

KvReceiverSet::KvReceiverSet(const KvReceiverSetOptions& options, LandingDirectory* directory, const KvReceiverEvents& events)
    : options_(options), directory_(directory), events_(events) {
  if (std::find(options.kinds.begin(), options.kinds.end(), TransportKind::kGrpc) == options.kinds.end()) return;
  grpc_ = std::make_unique<GrpcKvReceiver>(options.receiver, directory, events);
}

KvReceiverSet::~KvReceiverSet() { Stop(); }

grpc::Service* KvReceiverSet::grpc_service() const { return grpc_.get(); }

absl::Status KvReceiverSet::Start(const std::string& address) {
  for (const TransportKind kind : options_.kinds) {
    absl::StatusOr<std::unique_ptr<KvReceiver>> receiver = nullptr;
    switch (kind) {
      case TransportKind::kGrpc:
        grpc_->SetAddress(address);
        continue;
      case TransportKind::kInproc:
        receiver = std::make_unique<InprocKvReceiver>(options_.receiver, directory_, events_);
        break;
      case TransportKind::kShm:
        receiver = StartShmKvReceiver(options_.receiver, options_.share_pool, directory_, events_);
        break;
      case TransportKind::kTcp: {
        const auto reached = ParseHostPort(address);
        receiver = reached.ok() ? StartTcpKvReceiver(options_.listen_host, reached->host, options_.receiver, directory_, events_)
                                : reached.status();
        break;
      }
      case TransportKind::kNccl: {
        const auto reached = ParseHostPort(address);
        const DeviceTransports devices = OpenedDeviceTransports();
        if (devices.nccl == nullptr) {
          receiver = absl::FailedPreconditionError("NCCL is not open");
        } else {
          receiver = reached.ok() ? StartNcclKvReceiver(devices.nccl, devices.stall_timeout, options_.listen_host, reached->host,
                                                        options_.receiver, directory_, events_)
                                  : reached.status();
        }
        break;
      }
      case TransportKind::kCudaIpc: {
        const DeviceTransports devices = OpenedDeviceTransports();
        if (devices.cuda_ipc == nullptr) {
          receiver = absl::FailedPreconditionError("CUDA is not open");
        } else {
          receiver = StartCudaIpcKvReceiver(devices.cuda_ipc, devices.stall_timeout, options_.share_pool, options_.receiver, directory_, events_);
        }
      }
    }
    if (receiver.ok()) {
      others_[kind] = *std::move(receiver);
    } else {
      BATON_LOG(WARNING) << "KV transport " << TransportName(kind) << " is left out: " << receiver.status().message();
    }
  }
  started_ = true;
  if (grpc_ != nullptr || !others_.empty()) return absl::OkStatus();
  return absl::UnavailableError("no KV transport could be started");
}

std::vector<TransportOffer> KvReceiverSet::offers() const {
  std::vector<TransportOffer> offers;
  if (!started_) return offers;
  for (const auto& [kind, receiver] : others_) offers.push_back(receiver->offer());
  if (grpc_ != nullptr) offers.push_back(grpc_->offer());
  std::sort(offers.begin(), offers.end(), [](const auto& a, const auto& b) { return a.kind < b.kind; });
  return offers;
}

KvReceiver* KvReceiverSet::Of(TransportKind kind) const {
  if (kind == TransportKind::kGrpc) return grpc_.get();
  const auto it = others_.find(kind);
  return it == others_.end() ? nullptr : it->second.get();
}

void KvReceiverSet::Stop() {
  for (const auto& [kind, receiver] : others_) receiver->Stop();
}

}  // namespace baton
