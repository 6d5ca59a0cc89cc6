// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/callback_threads.h"

#include <cstddef>
#include <memory>
#include <new>

#include "absl/synchronization/mutex.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/byte_buffer.h"

namespace baton {
namespace {

// A channel becomes a user of the threads with its first callback call. This one leads nowhere (it has no credentials), so the
// call fails at once and nothing is connected.
struct ThreadUser {
  ThreadUser() : stub(grpc::CreateChannel("", /*creds=*/nullptr)), request(&empty, 1) {
    stub.UnaryCall(&context, "/baton.internal.Nothing/Call", grpc::StubOptions(), &request, &response, [](grpc::Status) {});
  }
  grpc::GenericStub stub;
  grpc::ClientContext context;
  const grpc::Slice empty;
  const grpc::ByteBuffer request;
  grpc::ByteBuffer response;
};

}  // namespace

void KeepCallbackThreads() {
  // Debian builds Abseil with its search for deadlocks: every lock that gRPC takes while it holds another is noted in one graph, under one
  // lock. Once for the process; cheap enough for every call.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Never destroyed: it is what must not leave, and its call may still be ending. In static memory, so that a leak checker, too,
  // finds what it owns: nobody reads a pointer to it, and the compiler would drop one.
  alignas(ThreadUser) static std::byte memory[sizeof(ThreadUser)];
  static const ThreadUser* const user = new (memory) ThreadUser;
  (void)user;
}

}  // namespace baton
