// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_TEXT_LOADER_H_
#define BATON_ROUTER_TEXT_LOADER_H_

#include <string>

#include "absl/status/statusor.h"
#include "router/served_model.h"

namespace baton {

// Loads the tokenizer and the chat template of a model, or, where it has no tokenizer, serves it for token ids (logged), and starts `template_processes` renderers if there is a template.
// `name`: what requests call it; empty: ShortModelName(path).
//   Codes of LoadModelText, RendererPool::Create and ChatTemplate::Create.
absl::StatusOr<ServedModel> LoadServedModel(const std::string& path, const std::string& name, int template_processes);

}  // namespace baton

#endif  // BATON_ROUTER_TEXT_LOADER_H_
