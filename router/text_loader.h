// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_TEXT_LOADER_H_
#define BATON_ROUTER_TEXT_LOADER_H_

#include <string>

#include "absl/status/statusor.h"
#include "router/served_model.h"

namespace baton {

// Loads the tokenizer and the chat template of a model, and starts `template_processes` renderers if there is a template.
// `name`: what requests call it; empty: ShortModelName(path).
//   Codes of LoadTextBundle, RendererPool::Create and ChatTemplate::Create.
absl::StatusOr<ServedModel> LoadServedModel(const std::string& path, const std::string& name, int template_processes);

}  // namespace baton

#endif  // BATON_ROUTER_TEXT_LOADER_H_
