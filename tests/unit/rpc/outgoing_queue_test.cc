// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/outgoing_queue.h"

#include <string>

#include "baton/v1/generation.pb.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using Queue = OutgoingQueue<grpc::ByteBuffer>;

grpc::ByteBuffer Bytes(const v1::GenerateResponse& response) {
  grpc::ByteBuffer bytes;
  bool own = false;
  EXPECT_TRUE(grpc::SerializationTraits<v1::GenerateResponse>::Serialize(response, &bytes, &own).ok());
  return bytes;
}

v1::GenerateResponse Delta(int token, const std::string& text) {
  v1::GenerateResponse response;
  response.set_id("an id that is always the same");
  v1::ChoiceDelta* const delta = response.add_deltas();
  delta->set_text(text);
  delta->add_token_ids(token);
  return response;
}

v1::GenerateResponse Parse(const grpc::ByteBuffer& bytes) {
  grpc::ByteBuffer copy = bytes;
  v1::GenerateResponse response;
  EXPECT_TRUE(grpc::SerializationTraits<v1::GenerateResponse>::Deserialize(&copy, &response).ok());
  return response;
}

bool Push(Queue* queue, const v1::GenerateResponse& response) {
  bool start = false;
  return queue->Push(Bytes(response), /*force=*/false, &start);
}

TEST(OutgoingQueue, WhatWaitsIsWrittenAsOneMessage) {
  Queue queue({.merges = true});
  ASSERT_TRUE(Push(&queue, Delta(1, "a")));
  EXPECT_EQ(Parse(*queue.front()).deltas_size(), 1);  // Being written: what comes meanwhile waits.
  for (int token = 2; token <= 4; ++token) ASSERT_TRUE(Push(&queue, Delta(token, std::string(1, static_cast<char>('a' + token - 1)))));
  v1::GenerateResponse last;
  last.set_id("an id that is always the same");
  last.mutable_usage()->set_completion_tokens(4);
  ASSERT_TRUE(Push(&queue, last));
  Queue::Closing closing;
  const grpc::ByteBuffer* const next = queue.WriteDone(true, &closing);
  ASSERT_NE(next, nullptr);
  EXPECT_FALSE(closing.last);
  const v1::GenerateResponse merged = Parse(*next);
  EXPECT_EQ(merged.id(), "an id that is always the same");
  ASSERT_EQ(merged.deltas_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(merged.deltas(i).token_ids(0), i + 2);
    EXPECT_EQ(merged.deltas(i).text(), std::string(1, static_cast<char>('b' + i)));
  }
  EXPECT_EQ(merged.usage().completion_tokens(), 4);
  EXPECT_EQ(queue.queued_bytes(), next->Length());
  EXPECT_EQ(queue.WriteDone(true, &closing), nullptr);
  EXPECT_FALSE(closing.drained);
  EXPECT_EQ(queue.queued_bytes(), 0u);
}

TEST(OutgoingQueue, WithoutMergingEachIsAMessage) {
  Queue queue({});
  for (int token = 1; token <= 3; ++token) ASSERT_TRUE(Push(&queue, Delta(token, "x")));
  Queue::Closing closing;
  for (int token = 2; token <= 3; ++token) {
    const grpc::ByteBuffer* const next = queue.WriteDone(true, &closing);
    ASSERT_NE(next, nullptr);
    const v1::GenerateResponse response = Parse(*next);
    ASSERT_EQ(response.deltas_size(), 1);
    EXPECT_EQ(response.deltas(0).token_ids(0), token);
  }
}

// However far a client is behind, no message is larger than the bound, and nothing is lost.
TEST(OutgoingQueue, MergedMessagesHaveABound) {
  Queue queue({.max_queued_messages = 10000, .merges = true});
  const std::string text(1000, 'x');
  for (int token = 0; token < 100; ++token) ASSERT_TRUE(Push(&queue, Delta(token, text)));
  Queue::Closing closing;
  int expected = 1;
  for (const grpc::ByteBuffer* next = queue.WriteDone(true, &closing); next != nullptr; next = queue.WriteDone(true, &closing)) {
    EXPECT_LE(next->Length(), size_t{16} << 10);
    const v1::GenerateResponse response = Parse(*next);
    EXPECT_GT(response.deltas_size(), expected < 90 ? 10 : 0);
    for (const v1::ChoiceDelta& delta : response.deltas()) EXPECT_EQ(delta.token_ids(0), expected++);
  }
  EXPECT_EQ(expected, 100);
}

// The stream's end travels with its last message: the queue says which one that is.
TEST(OutgoingQueue, TheLastOneOfAClosedQueueIsKnown) {
  Queue queue({});
  for (int token = 1; token <= 3; ++token) ASSERT_TRUE(Push(&queue, Delta(token, "x")));
  EXPECT_FALSE(queue.CloseAfterDrain());
  EXPECT_FALSE(Push(&queue, Delta(4, "x")));
  Queue::Closing closing;
  EXPECT_NE(queue.WriteDone(true, &closing), nullptr);
  EXPECT_FALSE(closing.last);
  EXPECT_NE(queue.WriteDone(true, &closing), nullptr);
  EXPECT_TRUE(closing.last);
  EXPECT_FALSE(closing.drained);
  EXPECT_EQ(queue.WriteDone(true, &closing), nullptr);
  EXPECT_TRUE(closing.drained);
}

// It begins at once where nothing is being written, so that the status goes with it; else WriteDone says which one is the last.
TEST(OutgoingQueue, TheLastMessageClosesTheQueue) {
  bool start = false;
  Queue idle({});
  ASSERT_TRUE(idle.PushLast(Bytes(Delta(1, "x")), &start));
  EXPECT_TRUE(start);
  EXPECT_FALSE(Push(&idle, Delta(2, "x")));
  EXPECT_FALSE(idle.CloseAfterDrain());  // It is being written.

  Queue busy({.max_queued_messages = 1});
  ASSERT_TRUE(Push(&busy, Delta(1, "x")));
  EXPECT_FALSE(Push(&busy, Delta(2, "x")));
  ASSERT_TRUE(busy.PushLast(Bytes(Delta(3, "x")), &start));  // Past the bound.
  EXPECT_FALSE(start);
  Queue::Closing closing;
  const grpc::ByteBuffer* const last = busy.WriteDone(true, &closing);
  ASSERT_NE(last, nullptr);
  EXPECT_TRUE(closing.last);
  EXPECT_EQ(Parse(*last).deltas(0).token_ids(0), 3);

  Queue gone({});
  gone.Abandon();
  EXPECT_FALSE(gone.PushLast(Bytes(Delta(1, "x")), &start));
  EXPECT_FALSE(start);
  EXPECT_TRUE(gone.CloseAfterDrain());
}

TEST(OutgoingQueue, AFailedWriteEndsIt) {
  Queue queue({.merges = true});
  for (int token = 1; token <= 3; ++token) ASSERT_TRUE(Push(&queue, Delta(token, "x")));
  Queue::Closing closing;
  EXPECT_EQ(queue.WriteDone(false, &closing), nullptr);
  EXPECT_FALSE(Push(&queue, Delta(4, "x")));
  EXPECT_EQ(queue.queued_bytes(), 0u);
}

}  // namespace
}  // namespace baton
