// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_WORKER_LINKS_H_
#define BATON_COMMON_WORKER_WORKER_LINKS_H_

#include "common/kv_transfer/kv_receiver.h"
#include "common/kv_transfer/transports/kv_links.h"
#include "common/worker/worker_runtime.h"

namespace baton {

// For the links by which a worker sends KV out of its pool, as its options say. `runtime` outlives them.
KvLinksOptions WorkerLinksOptions(WorkerRuntime* runtime);

// Whoever has to show the cluster who he is has to show a landing that he was named for it.
KvReceiverOptions ReceiverOptionsOf(WorkerRuntime* runtime);

}  // namespace baton

#endif  // BATON_COMMON_WORKER_WORKER_LINKS_H_
