// SPDX-License-Identifier: Apache-2.0
// Frames over gRPC are written and read around the message object; the wire is the one of kv.proto.
#include "common/kv_transfer/grpc/frame_message.h"

#include <algorithm>
#include <random>
#include <string>

#include "baton/internal/kv.pb.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

std::string Flat(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

// In slices of `slice_bytes`, as a socket may have brought it.
grpc::ByteBuffer InSlices(const std::string& bytes, size_t slice_bytes) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += slice_bytes) {
    slices.emplace_back(bytes.data() + at, std::min(slice_bytes, bytes.size() - at));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

internal::KvLinkRequest AFrame(size_t payload_bytes) {
  internal::KvLinkRequest request;
  internal::KvFrame* frame = request.mutable_frame();
  frame->mutable_transfer()->set_router_incarnation(0x123456789abcdef0u);
  frame->mutable_transfer()->set_stream(300);
  frame->set_attempt(2);
  frame->set_layer(17);
  frame->set_token_begin(160);
  frame->set_token_end(4096);
  frame->set_checksum(0xfedcba9876543210u);
  std::mt19937 rng(static_cast<uint32_t>(payload_bytes));
  for (size_t i = 0; i < payload_bytes; ++i) frame->mutable_payload()->push_back(static_cast<char>(rng()));
  return request;
}

TEST(FrameMessageTest, WhatIsWrittenIsTheMessage) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{70000}}) {
    const internal::KvLinkRequest want = AFrame(bytes);
    const auto* payload = reinterpret_cast<const uint8_t*>(want.frame().payload().data());
    const size_t half = bytes / 2;
    const std::vector<std::span<const uint8_t>> pieces = {{payload, half}, {payload + half, bytes - half}};
    OutgoingFrame frame{.transfer = {want.frame().transfer().router_incarnation(), want.frame().transfer().stream()}, .attempt = 2};
    frame.header = {17, 160, 4096, want.frame().checksum()};
    frame.payload = pieces;
    internal::KvLinkRequest got;
    ASSERT_TRUE(got.ParseFromString(Flat(EncodeFrameMessage(frame)))) << bytes;
    EXPECT_EQ(got.SerializeAsString(), want.SerializeAsString()) << bytes;
  }
}

TEST(FrameMessageTest, WhateverTheOrderAndTheSlicesItIsRead) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{5000}}) {
    const internal::KvLinkRequest want = AFrame(bytes);  // Its payload is in the middle.
    for (const size_t slice_bytes : {size_t{1}, size_t{7}, size_t{1000}, size_t{1} << 20}) {
      grpc::ByteBuffer buffer = InSlices(want.SerializeAsString(), slice_bytes);
      IncomingMessage message(&buffer);
      const auto read = message.ReadFrame();
      ASSERT_TRUE(read.ok()) << read.status();
      ASSERT_TRUE(read->has_value());
      const IncomingMessage::Frame& frame = **read;
      EXPECT_EQ(frame.transfer, (TransferId{0x123456789abcdef0u, 300}));
      EXPECT_EQ(frame.attempt, 2);
      EXPECT_EQ(frame.header.layer, 17);
      EXPECT_EQ(frame.header.token_begin, 160);
      EXPECT_EQ(frame.header.token_end, 4096);
      EXPECT_EQ(frame.header.checksum, 0xfedcba9876543210u);
      std::string payload;
      for (const auto& piece : frame.payload) payload.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      EXPECT_EQ(payload, want.frame().payload());
    }
  }
}

TEST(FrameMessageTest, OtherMessagesAreLeftAlone) {
  internal::KvLinkRequest open;
  open.mutable_open()->set_attempt(1);
  grpc::ByteBuffer buffer = InSlices(open.SerializeAsString(), 3);
  IncomingMessage message(&buffer);
  const auto read = message.ReadFrame();
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(read->has_value());
}

// Neither accepted nor read past its end: a frame that is cut anywhere, followed by something, or changed at random.
TEST(FrameMessageTest, MalformedFramesAreRefusedOrRead) {
  const std::string good = AFrame(40).SerializeAsString();
  const auto read = [](const std::string& bytes) {
    grpc::ByteBuffer buffer = InSlices(bytes, 16);
    IncomingMessage message(&buffer);
    return message.ReadFrame();
  };
  for (size_t size = 1; size < good.size(); ++size) {
    EXPECT_EQ(read(good.substr(0, size)).status().code(), absl::StatusCode::kInvalidArgument) << size;
  }
  EXPECT_EQ(read(good + good).status().code(), absl::StatusCode::kInvalidArgument);
  std::mt19937 rng(5);
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    for (int change = 0; change <= i % 3; ++change) bad[rng() % bad.size()] = static_cast<char>(rng());
    const auto result = read(bad);
    if (!result.ok() || !result->has_value()) continue;
    size_t bytes = 0;
    for (const auto& piece : (*result)->payload) bytes += piece.size();
    EXPECT_LE(bytes, bad.size());
  }
}

}  // namespace
}  // namespace baton
