// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_MODEL_CHECKPOINT_FINGERPRINT_H_
#define BATON_COMMON_MODEL_CHECKPOINT_FINGERPRINT_H_

#include <span>
#include <string>

#include "common/format/tensor.h"
#include "common/model/model_config.h"

namespace baton {

// See Checkpoint::fingerprint. `tensors` in an order that is a function of the architecture. `full_limit_bytes`: up to
// so many bytes in all every byte is hashed, above it a sample.
std::string ModelFingerprint(const ModelConfig& config, std::span<const TensorView* const> tensors,
                             size_t full_limit_bytes = size_t{256} << 20);

}  // namespace baton

#endif  // BATON_COMMON_MODEL_CHECKPOINT_FINGERPRINT_H_
