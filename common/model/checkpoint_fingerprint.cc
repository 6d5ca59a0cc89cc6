// SPDX-License-Identifier: Apache-2.0
#include "common/model/checkpoint_fingerprint.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "xxhash.h"

namespace baton {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kSamplePages = 64;

// Every field, named, floating-point ones by their bits.
std::string Canonical(const ModelConfig& c) {
  std::string text = absl::StrFormat(
      "baton-model/1 %s layers=%d hidden=%d heads=%d kv_heads=%d head_dim=%d intermediate=%d vocab=%d context=%d "
      "window=%d "
      "eps=%a theta=%a scaling=%d factor=%a low=%a high=%a original=%d interleaved=%d tied=%d qkv_bias=%d qk_norm=%d",
      c.architecture, c.num_layers, c.hidden_size, c.num_heads, c.num_kv_heads, c.head_dim, c.intermediate_size,
      c.vocab_size, c.context_length, c.sliding_window, c.rms_norm_eps, c.rope.theta, static_cast<int>(c.rope.scaling),
      c.rope.factor, c.rope.low_freq_factor, c.rope.high_freq_factor, c.rope.original_context_length,
      c.rope.interleaved, c.tied_embeddings, c.qkv_bias, c.qk_norm);
  for (float factor : c.rope.frequency_factors) absl::StrAppendFormat(&text, " %a", factor);
  return text;
}

void Update(XXH3_state_t* state, absl::string_view text) {
  const uint64_t size = text.size();
  XXH3_128bits_update(state, &size, sizeof(size));
  XXH3_128bits_update(state, text.data(), text.size());
}

void UpdateSample(XXH3_state_t* state, std::span<const uint8_t> bytes) {
  if (bytes.size() <= (kSamplePages + 2) * kPageBytes) {
    XXH3_128bits_update(state, bytes.data(), bytes.size());
    return;
  }
  const size_t last = bytes.size() - kPageBytes;
  XXH3_128bits_update(state, bytes.data(), kPageBytes);
  for (size_t i = 1; i <= kSamplePages; ++i) {
    const size_t offset = last / (kSamplePages + 1) * i / kPageBytes * kPageBytes;
    XXH3_128bits_update(state, bytes.data() + offset, kPageBytes);
  }
  XXH3_128bits_update(state, bytes.data() + last, kPageBytes);
}

}  // namespace

std::string ModelFingerprint(const ModelConfig& config, std::span<const TensorView* const> tensors,
                             size_t full_limit_bytes) {
  size_t total = 0;
  for (const TensorView* tensor : tensors) total += tensor->bytes;
  const bool full = total <= full_limit_bytes;
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  Update(state.get(), Canonical(config));
  for (const TensorView* tensor : tensors) {
    Update(state.get(), absl::StrCat(tensor->name, " ", GgmlTypeName(tensor->type), " ", ShapeToString(tensor->shape)));
    if (full) {
      XXH3_128bits_update(state.get(), tensor->data, tensor->bytes);
    } else {
      UpdateSample(state.get(), tensor->span());
    }
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

}  // namespace baton
