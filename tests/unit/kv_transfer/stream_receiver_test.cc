// SPDX-License-Identifier: Apache-2.0
// The receiver of byte streams against peers that do not speak as they should: whatever comes, it lives, obeys nothing, and serves
// the next link.
#include "common/kv_transfer/stream/stream_receiver.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/transport_pair.h"

namespace baton::testing {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kPatience = absl::Seconds(20);
using Bytes = std::vector<uint8_t>;

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Bytes Header(const MessageHeader& header) {
  const auto bytes = EncodeHeader(header);
  return {bytes.begin(), bytes.end()};
}

StreamHello HelloOf(TransportKind kind, uint64_t link = 1, const std::string& model = "model-a") {
  return {.hello = {{"p-1", 11, kind}, {model, SmallLayout().fingerprint(), "n2"}}, .link = link};
}
Bytes HelloMessage(const StreamHello& hello) { return EncodeMessage(MessageType::kHello, {}, 0, EncodeHello(hello)); }

// The writer's end, byte by byte.
class RawConnection {
 public:
  explicit RawConnection(absl::StatusOr<Fd> socket) : socket_(std::move(socket).value()) {}
  // As much as the other end takes before it closes.
  void Send(std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      if (WaitFor(socket_.get(), POLLOUT, -1, Clock::Real()->Now() + kPatience) != Ready::kReady) return;
      const iovec vector = {.iov_base = const_cast<uint8_t*>(bytes.data()), .iov_len = bytes.size()};
      const auto sent = WriteNow(socket_.get(), std::span(&vector, 1));
      if (!sent.ok()) return;
      bytes = bytes.subspan(*sent);
    }
  }
  void EndSending() { shutdown(socket_.get(), SHUT_WR); }
  // The next message's type. Nothing: the other end has closed, or says nothing until `deadline`.
  std::optional<MessageType> Next(MonotonicTime deadline = Clock::Real()->Now() + kPatience) {
    while (buffer_.size() < kHeaderBytes || buffer_.size() < kHeaderBytes + BodyBytes()) {
      if (!ReadSome(deadline)) return std::nullopt;
    }
    const MessageHeader header = *DecodeHeader(std::span(buffer_).first(kHeaderBytes));
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(kHeaderBytes + header.body_bytes));
    return header.type;
  }
  bool ClosedByPeer() {
    const MonotonicTime deadline = Clock::Real()->Now() + kPatience;
    while (ReadSome(deadline)) {
    }
    return closed_;
  }

 private:
  size_t BodyBytes() const { return DecodeHeader(std::span(buffer_).first(kHeaderBytes))->body_bytes; }
  bool ReadSome(MonotonicTime deadline) {
    if (WaitFor(socket_.get(), POLLIN, -1, deadline) != Ready::kReady) return false;
    uint8_t part[4096];
    const iovec vector = {.iov_base = part, .iov_len = sizeof(part)};
    const auto bytes = ReadNow(socket_.get(), std::span(&vector, 1));
    closed_ = !bytes.ok();
    if (bytes.ok()) buffer_.insert(buffer_.end(), part, part + *bytes);
    return bytes.ok();
  }
  Fd socket_;
  Bytes buffer_;
  bool closed_ = false;
};

class GarbageTest : public ::testing::Test {
 protected:
  static constexpr TransferId kVictim = {9, 9};

  GarbageTest() : receiver_({.kind = TransportKind::kTcp}), source_(FilledPool(SmallLayout(), 16, 5)) {
    zone_ = receiver_.OpenZone(kVictim, 1, {3, 1}, 0, 32);
  }
  ~GarbageTest() override {
    // Nothing was obeyed...
    for (int layer = 0; layer < SmallLayout().num_layers; ++layer) {
      for (const BlockId block : zone_->blocks()) {
        const auto cell = receiver_.pool().Cell(layer, block);
        EXPECT_TRUE(std::all_of(cell.begin(), cell.end(), [](uint8_t byte) { return byte == 0; })) << layer << ", " << block;
      }
    }
    receiver_.CloseZone(zone_);
    // ... and who speaks as he should is served.
    const auto sender = MakeSender(receiver_.offer(), {.pool = source_.get()});
    const TestJob job{.transfer = {1, 1}, .blocks = {4, 7, 2}, .num_tokens = 40};
    const auto zone = receiver_.OpenZone(job.transfer, 1, {5, 6, 7}, 0, 40);
    RunningJob running(sender.get(), job);
    running.PushAll(SmallLayout().num_layers);
    EXPECT_THAT(running.Wait().value_or(absl::UnknownError("never done")), IsOk());
    const auto manifest = receiver_.WaitManifest(job.transfer, 1);
    EXPECT_TRUE(manifest.has_value() && manifest->verified.ok());
    EXPECT_TRUE(SameTokens(*source_, job.blocks, receiver_.pool(), zone->blocks(), 0, 40));
    receiver_.CloseZone(zone);
  }
  RawConnection Connect() { return RawConnection(ConnectTcp(receiver_.offer().address, kPatience)); }
  static Bytes Hello() { return HelloMessage(HelloOf(TransportKind::kTcp)); }
  static Bytes Frame(int layer, int begin, int end, Bytes payload, TransferId transfer = kVictim) {
    MessageHeader header{.type = MessageType::kFrame, .transfer = transfer, .attempt = 1};
    header.frame = {layer, begin, end, FrameChecksum(payload)};
    header.body_bytes = static_cast<uint32_t>(payload.size());
    return Header(header) + payload;
  }

  TestReceiver receiver_;
  std::unique_ptr<KvPool> source_;
  std::shared_ptr<LandingZone> zone_;
};

TEST_F(GarbageTest, WhatIsNoMessageEndsTheConnection) {
  Bytes noise(4096);
  std::mt19937 rng(7);
  for (uint8_t& byte : noise) byte = static_cast<uint8_t>(rng());
  std::string http = "GET / HTTP/1.1\r\nHost: somebody-who-scans-ports\r\nUser-Agent: curl\r\nAccept: */*\r\n\r\n";
  Bytes version = Hello(), flipped = Hello(), body = Hello();
  version[4] = 2;
  flipped[60] ^= 1;
  body.back() ^= 1;
  const auto other_model = HelloMessage(HelloOf(TransportKind::kTcp, 1, "model-b"));
  StreamHello layout = HelloOf(TransportKind::kTcp), joins = HelloOf(TransportKind::kTcp, 99);
  layout.hello.compatibility.kv_layout = "kv1:L-1:H0:D99999999999";
  joins.connection = 3;
  const std::pair<const char*, Bytes> cases[] = {
      {"noise", noise},
      {"HTTP", Bytes(http.begin(), http.end())},
      {"zeros", Bytes(256)},
      {"another version", version},
      {"a header's checksum", flipped},
      {"a body's checksum", body},
      {"an unknown type", Header({.type = static_cast<MessageType>(9)})},
      {"a body of 4 GiB", Header({.type = MessageType::kHello, .body_bytes = 0xffffffff})},
      {"a frame of 4 GiB", Header({.type = MessageType::kFrame, .body_bytes = 0xffffffff})},
      {"Open before Hello", EncodeMessage(MessageType::kOpen, kVictim, 1)},
      {"a frame before Hello", Frame(0, 0, 32, Bytes(2 * SmallLayout().block_layer_bytes(), 1))},
      {"a manifest before Hello", EncodeMessage(MessageType::kManifest, kVictim, 1, EncodeManifest({}))},
      {"an empty Hello", EncodeMessage(MessageType::kHello, {}, 0)},
      {"Hello with something behind", EncodeMessage(MessageType::kHello, {}, 0, EncodeHello(HelloOf(TransportKind::kTcp)) + Bytes(3))},
      {"another model", other_model},
      {"no layout", HelloMessage(layout)},
      {"a connection of no link", HelloMessage(joins)},
      {"a second Hello", Hello() + Hello()},
      {"a receiver's message", Hello() + EncodeMessage(MessageType::kGrant, kVictim, 1, EncodeGrant({.one_sided = true, .blocks = {1}}))},
      {"a manifest of garbage", Hello() + EncodeMessage(MessageType::kManifest, kVictim, 1, Bytes(17, 0xff))},
      {"an invitation to a payload channel", Hello() + EncodeMessage(MessageType::kInvite, {}, 0, Bytes(128, 1))},
      {"a batch without a payload channel", Hello() + EncodeMessage(MessageType::kBatch, {}, 0, EncodeBatch(std::vector<BatchedFrame>{{kVictim, 1, {0, 0, 32, 0}, 4}}))},
      {"a placed frame", Hello() + Header({.type = MessageType::kPlacedFrame, .transfer = kVictim, .attempt = 1, .frame = {0, 0, 32, 0}})},
  };
  for (const auto& [what, bytes] : cases) {
    RawConnection connection = Connect();
    connection.Send(bytes);
    EXPECT_TRUE(connection.ClosedByPeer()) << what;
  }
}

TEST_F(GarbageTest, FramesOutsideTheTransferAreDroppedAndTheAttemptCannotVerify) {
  const size_t block = SmallLayout().block_layer_bytes();
  RawConnection connection = Connect();
  connection.Send(Hello());
  ASSERT_EQ(connection.Next(), MessageType::kWelcome);
  connection.Send(EncodeMessage(MessageType::kOpen, kVictim, 1));
  ASSERT_EQ(connection.Next(), MessageType::kGrant);
  connection.Send(Frame(0, 0, 16, Bytes(block, 1), {1, 2}));  // Nobody's.
  connection.Send(Frame(-1, 0, 16, Bytes(block, 1)));
  connection.Send(Frame(3, 0, 16, Bytes(block, 1)));
  connection.Send(Frame(0, -16, 16, Bytes(2 * block, 1)));
  connection.Send(Frame(0, 16, 48, Bytes(2 * block, 1)));
  connection.Send(Frame(0, 3, 16, Bytes(block, 1)));
  connection.Send(Frame(0, 0, 2147483632, Bytes(block, 1)));
  connection.Send(Frame(0, 0, 16, Bytes(block - 1, 1)));
  connection.Send(Frame(0, 0, 16, {}));
  // The link lives; the attempt does not.
  connection.Send(EncodeMessage(MessageType::kManifest, kVictim, 1, EncodeManifest({.num_tokens = 32})));
  const auto manifest = receiver_.WaitManifest(kVictim, 1);
  ASSERT_TRUE(manifest.has_value());
  EXPECT_THAT(manifest->verified, StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
  connection.Send(EncodeMessage(MessageType::kOpen, kVictim, 1));
  EXPECT_EQ(connection.Next(), MessageType::kGrant);
}

TEST_F(GarbageTest, MessagesThatEndInTheMiddleEndTheLink) {
  const Bytes frame = Frame(0, 0, 16, Bytes(SmallLayout().block_layer_bytes(), 1), {1, 2});
  const Bytes all = Hello() + EncodeMessage(MessageType::kOpen, kVictim, 1) + frame;
  for (size_t length = 0; length < all.size(); length += 7) {
    RawConnection connection = Connect();
    connection.Send(std::span(all).first(length));
    connection.EndSending();
    EXPECT_TRUE(connection.ClosedByPeer()) << length;
  }
}

TEST_F(GarbageTest, SpoiltConversationsAreObeyedNowhere) {
  const Bytes good = Hello() + EncodeMessage(MessageType::kOpen, kVictim, 1) +
                     Frame(0, 0, 32, Bytes(2 * SmallLayout().block_layer_bytes(), 1), {1, 2}) +
                     EncodeMessage(MessageType::kManifest, {1, 2}, 1, EncodeManifest({.num_tokens = 32})) +
                     EncodeMessage(MessageType::kAborted, kVictim, 1);
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 rng(seed);
    Bytes bytes = good;
    for (uint32_t i = 0; i <= rng() % 4; ++i) bytes[rng() % bytes.size()] = static_cast<uint8_t>(rng());
    RawConnection connection = Connect();
    connection.Send(bytes);
    connection.EndSending();
    ASSERT_TRUE(connection.ClosedByPeer()) << "seed " << seed;
  }
}

TEST(BatchTest, IsCheckedBeforeAnythingIsReceived) {
  const std::vector<BatchedFrame> frames = {{{1, 2}, 3, {4, 16, 32, 77}, 512}, {{5, 6}, 7, {8, 0, 16, 78}, 0}};
  const Bytes body = EncodeBatch(frames);
  const auto decoded = DecodeBatch(body);
  ASSERT_THAT(decoded.status(), IsOk());
  ASSERT_EQ(decoded->size(), 2u);
  EXPECT_EQ(decoded->front().transfer, (TransferId{1, 2}));
  EXPECT_EQ(decoded->front().attempt, 3);
  EXPECT_EQ(decoded->front().frame.token_end, 32);
  EXPECT_EQ(decoded->front().frame.checksum, 77u);
  EXPECT_EQ(decoded->front().payload_bytes, 512u);
  EXPECT_EQ(decoded->back().frame.layer, 8);
  for (size_t length = 0; length < body.size(); ++length) {
    if (length == body.size() / 2) continue;  // One whole frame.
    EXPECT_FALSE(DecodeBatch(std::span(body).first(length)).ok()) << length;
  }
  EXPECT_THAT(DecodeBatch(EncodeBatch(std::vector<BatchedFrame>(kMaxBatchFrames + 1))),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("4097 frames")));
  const std::vector<BatchedFrame> large(65, {{1, 1}, 1, {}, 1 << 20});
  EXPECT_THAT(DecodeBatch(EncodeBatch(large)), StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("68157440 bytes")));
}

// One byte now and then: it would hold one of the connections for as long as it likes.
TEST(SlowHelloTest, WhoDoesNotSayWhoHeIsInTimeIsCutOff) {
  auto pool = KvPool::CreateShared(SmallLayout(), 8);
  ASSERT_THAT(pool.status(), IsOk());
  LandingDirectory directory;
  std::string address;
  auto listening = ListenTcp("127.0.0.1", &address);
  ASSERT_THAT(listening.status(), IsOk());
  StreamReceiver receiver({.kind = TransportKind::kTcp, .address = address, .hello_timeout = absl::Milliseconds(100)},
                          {"d-1", 7, {"model-a", SmallLayout().fingerprint(), "n1"}, pool->get()}, *std::move(listening), &directory, {});
  RawConnection connection(ConnectTcp(address, kPatience));
  std::optional<MessageType> answer;
  for (const uint8_t byte : HelloMessage(HelloOf(TransportKind::kTcp))) {
    connection.Send(std::span(&byte, 1));
    answer = connection.Next(Clock::Real()->Now() + absl::Milliseconds(10));
    if (answer.has_value()) break;
  }
  EXPECT_EQ(answer.value_or(MessageType::kRefused), MessageType::kRefused);
  EXPECT_TRUE(connection.ClosedByPeer());
  receiver.Stop();
}

// A link of shared memory whose older link is just being heard: what was read from that comes before the word that its writer is
// gone. Otherwise the grant would go to nobody, and the blocks would stay with a writer that no event can end any more.
TEST(SupersededLinkTest, AnOpenReadFromItComesBeforeTheWordThatItsWriterIsGone) {
  auto pool = KvPool::CreateShared(SmallLayout(), 8);
  ASSERT_THAT(pool.status(), IsOk());
  LandingDirectory directory;
  Mutex mutex;
  CondVar changed;
  std::vector<std::string> heard;
  bool opening = false, go_on = false;
  const auto hear = [&](const char* what) {
    MutexLock lock(&mutex);
    heard.push_back(what);
  };
  KvReceiverEvents events;
  events.on_open = [&](const TransferId&, int, const PeerId&) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    MutexLock lock(&mutex);
    opening = true;
    changed.NotifyAll();
    const MonotonicTime deadline = Clock::Real()->Now() + kPatience;
    while (!go_on && Clock::Real()->Now() < deadline) changed.WaitFor(&mutex, absl::Milliseconds(100));
    heard.push_back("open");
  };
  events.on_manifest = [](const TransferId&, int, const PeerId&, const absl::Status&, const LandingStats&) {};
  events.on_aborted = [](const TransferId&, int, const PeerId&) {};
  events.on_link_closed = [&](const PeerId&) { hear("closed"); };
  events.on_writer_gone = [&](const PeerId&) { hear("gone"); };
  const std::string name = "baton-superseded-link-test-" + std::to_string(getpid());
  auto listening = ListenUnix(name);
  ASSERT_THAT(listening.status(), IsOk());
  StreamReceiver receiver({.kind = TransportKind::kShm, .address = name, .share_pool = true},
                          {"d-1", 7, {"model-a", SmallLayout().fingerprint(), "n1"}, pool->get()}, *std::move(listening), &directory, events);

  RawConnection older(ConnectUnix(name));
  older.Send(HelloMessage(HelloOf(TransportKind::kShm, 1)));
  ASSERT_EQ(older.Next(), MessageType::kWelcome);
  {
    MutexLock lock(&mutex);
    EXPECT_THAT(heard, ElementsAre("gone"));  // Whatever an earlier link of that process has left.
    heard.clear();
  }
  older.Send(EncodeMessage(MessageType::kOpen, {1, 1}, 1));
  {
    const MonotonicTime deadline = Clock::Real()->Now() + kPatience;
    MutexLock lock(&mutex);
    while (!opening && Clock::Real()->Now() < deadline) changed.WaitFor(&mutex, absl::Milliseconds(100));
    ASSERT_TRUE(opening);
  }
  RawConnection newer(ConnectUnix(name));
  newer.Send(HelloMessage(HelloOf(TransportKind::kShm, 2)));
  EXPECT_TRUE(older.ClosedByPeer());  // It has taken over...
  EXPECT_EQ(newer.Next(Clock::Real()->Now() + absl::Milliseconds(50)), std::nullopt);  // ... and waits.
  {
    MutexLock lock(&mutex);
    EXPECT_THAT(heard, ElementsAre());
    go_on = true;
    changed.NotifyAll();
  }
  EXPECT_EQ(newer.Next(), MessageType::kWelcome);
  {
    MutexLock lock(&mutex);
    EXPECT_THAT(heard, ElementsAre("open", "closed", "gone"));
  }
  receiver.Stop();
}

}  // namespace
}  // namespace baton::testing
