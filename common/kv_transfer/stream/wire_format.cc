// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/stream/wire_format.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/checksum.h"

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire's byte order is this machine's");

constexpr uint32_t kMagic = 0x564b5442;  // "BTKV"
constexpr uint8_t kVersion = 1;
constexpr size_t kChecked = kHeaderBytes - sizeof(uint64_t);

template <class T>
void Put(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

template <class T>
T Get(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

bool IsKnown(uint8_t type) {
  return (type >= static_cast<uint8_t>(MessageType::kHello) && type <= static_cast<uint8_t>(MessageType::kReleased)) ||
         (type >= static_cast<uint8_t>(MessageType::kWelcome) && type <= static_cast<uint8_t>(MessageType::kAbort));
}

class Writer {
 public:
  template <class T>
  void Number(T value) {
    bytes_.resize(bytes_.size() + sizeof(T));
    Put(bytes_.data() + bytes_.size() - sizeof(T), value);
  }
  void Text(absl::string_view text) {
    Number(static_cast<uint32_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  std::vector<uint8_t> Take() { return std::move(bytes_); }

 private:
  std::vector<uint8_t> bytes_;
};

// Reads past the end give zeros and make Done say so.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  template <class T>
  T Number() {
    if (bytes_.size() < sizeof(T)) return Fail<T>();
    const T value = Get<T>(bytes_.data());
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }
  std::string Text() {
    const uint32_t size = Number<uint32_t>();
    if (bytes_.size() < size) return Fail<std::string>();
    std::string text(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
    return text;
  }
  size_t left() const { return bytes_.size(); }
  absl::Status Done(const char* what) const {
    if (!failed_ && bytes_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("KV link: malformed ", what));
  }

 private:
  template <class T>
  T Fail() {
    failed_ = true;
    bytes_ = {};
    return T();
  }
  std::span<const uint8_t> bytes_;
  bool failed_ = false;
};

}  // namespace

std::array<uint8_t, kHeaderBytes> EncodeHeader(const MessageHeader& header) {
  std::array<uint8_t, kHeaderBytes> bytes = {};
  uint8_t* const to = bytes.data();
  Put(to, kMagic);
  Put(to + 4, kVersion);
  Put(to + 5, static_cast<uint8_t>(header.type));
  Put(to + 8, header.transfer.router_incarnation);
  Put(to + 16, header.transfer.stream);
  Put(to + 24, header.attempt);
  Put(to + 28, static_cast<int32_t>(header.frame.layer));
  Put(to + 32, static_cast<int32_t>(header.frame.token_begin));
  Put(to + 36, static_cast<int32_t>(header.frame.token_end));
  Put(to + 40, header.body_bytes);
  Put(to + 48, header.frame.checksum);
  Put(to + kChecked, FrameChecksum(std::span<const uint8_t>(to, kChecked)));
  return bytes;
}

absl::StatusOr<MessageHeader> DecodeHeader(std::span<const uint8_t> bytes) {
  const uint8_t* const from = bytes.data();
  if (bytes.size() != kHeaderBytes || Get<uint32_t>(from) != kMagic || Get<uint8_t>(from + 4) != kVersion) {
    return absl::InvalidArgumentError(absl::StrFormat("KV link: magic %08x version %d is not %08x version %d",
                                                      Get<uint32_t>(from), from[4], kMagic, kVersion));
  }
  if (FrameChecksum(std::span<const uint8_t>(from, kChecked)) != Get<uint64_t>(from + kChecked)) {
    return absl::DataLossError("KV link: a message header's checksum is wrong");
  }
  MessageHeader header;
  if (!IsKnown(from[5])) return absl::InvalidArgumentError(absl::StrCat("KV link: message type ", from[5], " is unknown"));
  header.type = static_cast<MessageType>(from[5]);
  header.transfer = {Get<uint64_t>(from + 8), Get<uint64_t>(from + 16)};
  header.attempt = Get<int32_t>(from + 24);
  header.frame = {Get<int32_t>(from + 28), Get<int32_t>(from + 32), Get<int32_t>(from + 36), Get<uint64_t>(from + 48)};
  header.body_bytes = Get<uint32_t>(from + 40);
  const uint32_t bound = header.type == MessageType::kFrame ? kMaxPayloadBytes : kMaxBodyBytes;
  if (header.body_bytes > bound) {
    return absl::InvalidArgumentError(absl::StrCat("KV link: a body of ", header.body_bytes, " bytes is over ", bound));
  }
  return header;
}

std::vector<uint8_t> EncodeMessage(MessageType type, const TransferId& transfer, int attempt, std::span<const uint8_t> body) {
  MessageHeader header{.type = type, .transfer = transfer, .attempt = attempt};
  header.body_bytes = static_cast<uint32_t>(body.size());
  header.frame.checksum = FrameChecksum(body);
  const std::array<uint8_t, kHeaderBytes> head = EncodeHeader(header);
  std::vector<uint8_t> message(kHeaderBytes + body.size());
  std::memcpy(message.data(), head.data(), kHeaderBytes);
  if (!body.empty()) std::memcpy(message.data() + kHeaderBytes, body.data(), body.size());
  return message;
}

absl::Status CheckBody(const MessageHeader& header, std::span<const uint8_t> body) {
  if (FrameChecksum(body) == header.frame.checksum) return absl::OkStatus();
  return absl::DataLossError("KV link: a message body's checksum is wrong");
}

std::vector<uint8_t> EncodeHello(const StreamHello& hello) {
  Writer writer;
  writer.Text(hello.hello.self.worker);
  writer.Number(hello.hello.self.incarnation);
  writer.Text(hello.hello.compatibility.model_fingerprint);
  writer.Text(hello.hello.compatibility.kv_layout);
  writer.Text(hello.hello.compatibility.numerics);
  writer.Number(hello.link);
  writer.Number(hello.connection);
  writer.Number(hello.num_connections);
  writer.Number(hello.num_blocks);
  if (!hello.memory.empty()) writer.Text(hello.memory);
  return writer.Take();
}

absl::StatusOr<StreamHello> DecodeHello(TransportKind kind, std::span<const uint8_t> body) {
  Reader reader(body);
  StreamHello hello;
  hello.hello.self.worker = reader.Text();
  hello.hello.self.incarnation = reader.Number<uint64_t>();
  hello.hello.self.transport = kind;
  hello.hello.compatibility.model_fingerprint = reader.Text();
  hello.hello.compatibility.kv_layout = reader.Text();
  hello.hello.compatibility.numerics = reader.Text();
  hello.link = reader.Number<uint64_t>();
  hello.connection = reader.Number<uint32_t>();
  hello.num_connections = reader.Number<uint32_t>();
  hello.num_blocks = reader.Number<uint32_t>();
  if (reader.left() > 0) hello.memory = reader.Text();
  BATON_RETURN_IF_ERROR(reader.Done("Hello"));
  return hello;
}

std::vector<uint8_t> EncodeManifest(const Manifest& manifest) {
  Writer writer;
  writer.Text(manifest.model_fingerprint);
  writer.Text(manifest.kv_layout);
  writer.Text(manifest.numerics);
  writer.Number(static_cast<int32_t>(manifest.first_token));
  writer.Number(static_cast<int32_t>(manifest.num_tokens));
  writer.Number(manifest.token_hash);
  writer.Number(manifest.num_frames);
  writer.Number(manifest.payload_bytes);
  writer.Number(manifest.checksum);
  return writer.Take();
}

absl::StatusOr<Manifest> DecodeManifest(std::span<const uint8_t> body) {
  Reader reader(body);
  Manifest manifest;
  manifest.model_fingerprint = reader.Text();
  manifest.kv_layout = reader.Text();
  manifest.numerics = reader.Text();
  manifest.first_token = reader.Number<int32_t>();
  manifest.num_tokens = reader.Number<int32_t>();
  manifest.token_hash = reader.Number<uint64_t>();
  manifest.num_frames = reader.Number<int64_t>();
  manifest.payload_bytes = reader.Number<int64_t>();
  manifest.checksum = reader.Number<uint64_t>();
  BATON_RETURN_IF_ERROR(reader.Done("Manifest"));
  return manifest;
}

std::vector<uint8_t> EncodeGrant(const LinkGrant& grant) {
  Writer writer;
  writer.Number(static_cast<uint8_t>(grant.one_sided));
  for (const BlockId block : grant.blocks) writer.Number(static_cast<int32_t>(block));
  return writer.Take();
}

absl::StatusOr<LinkGrant> DecodeGrant(std::span<const uint8_t> body) {
  Reader reader(body);
  LinkGrant grant;
  grant.one_sided = reader.Number<uint8_t>() != 0;
  while (reader.left() >= sizeof(int32_t)) grant.blocks.push_back(reader.Number<int32_t>());
  BATON_RETURN_IF_ERROR(reader.Done("Grant"));
  return grant;
}

std::vector<uint8_t> EncodeBatch(std::span<const BatchedFrame> frames) {
  Writer writer;
  for (const BatchedFrame& batched : frames) {
    writer.Number(batched.transfer.router_incarnation);
    writer.Number(batched.transfer.stream);
    writer.Number(batched.attempt);
    writer.Number(static_cast<int32_t>(batched.frame.layer));
    writer.Number(static_cast<int32_t>(batched.frame.token_begin));
    writer.Number(static_cast<int32_t>(batched.frame.token_end));
    writer.Number(batched.frame.checksum);
    writer.Number(batched.payload_bytes);
  }
  return writer.Take();
}

absl::StatusOr<std::vector<BatchedFrame>> DecodeBatch(std::span<const uint8_t> body) {
  Reader reader(body);
  std::vector<BatchedFrame> frames;
  uint64_t payload_bytes = 0;
  while (reader.left() > 0) {
    BatchedFrame batched;
    batched.transfer.router_incarnation = reader.Number<uint64_t>();
    batched.transfer.stream = reader.Number<uint64_t>();
    batched.attempt = reader.Number<int32_t>();
    batched.frame.layer = reader.Number<int32_t>();
    batched.frame.token_begin = reader.Number<int32_t>();
    batched.frame.token_end = reader.Number<int32_t>();
    batched.frame.checksum = reader.Number<uint64_t>();
    batched.payload_bytes = reader.Number<uint32_t>();
    payload_bytes += batched.payload_bytes;
    frames.push_back(batched);
  }
  BATON_RETURN_IF_ERROR(reader.Done("Batch"));
  if (frames.empty() || frames.size() > kMaxBatchFrames || payload_bytes > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(absl::StrCat("KV link: a batch of ", frames.size(), " frames and ", payload_bytes, " bytes is outside 1 to ",
                                                   kMaxBatchFrames, " frames and ", kMaxPayloadBytes, " bytes"));
  }
  return frames;
}

std::vector<uint8_t> EncodeError(const absl::Status& status) {
  Writer writer;
  writer.Number(static_cast<int32_t>(status.code()));
  writer.Text(status.message().substr(0, 1 << 12));
  return writer.Take();
}

absl::Status DecodeError(std::span<const uint8_t> body) {
  Reader reader(body);
  const int32_t code = reader.Number<int32_t>();
  const std::string message = reader.Text();
  BATON_RETURN_IF_ERROR(reader.Done("error"));
  if (code <= 0 || code > static_cast<int32_t>(absl::StatusCode::kUnauthenticated)) return absl::UnknownError(message);
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

}  // namespace baton
