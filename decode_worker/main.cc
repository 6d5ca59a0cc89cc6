// SPDX-License-Identifier: Apache-2.0
#include "common/base/config.h"
#include "common/base/logging.h"
#include "common/base/shutdown_signals.h"
#include "common/worker/worker_flags.h"
#include "common/worker/worker_process.h"
#include "common/worker/worker_runtime.h"
#include "decode_worker/decode_service.h"

int main(int argc, char** argv) {
  const baton::ConfigSpec spec = {
      .program = "baton_decode_worker",
      .summary = "Receives KV caches from prefill workers and generates the tokens of many conversations per step.",
      .examples = "  baton_decode_worker --model m.gguf --router 10.0.0.1:9000 --listen 10.0.0.3:9002\n",
      .groups = baton::WorkerFlagGroups(),
      .required = {"model"},
  };
  baton::ParseConfigOrExit(spec, argc, argv);
  baton::ShutdownSignals signals;
  const auto options = baton::WorkerOptionsFromFlags(baton::internal::DECODE);
  if (!options.ok()) {
    BATON_LOG(ERROR) << options.status().message();
    return 2;
  }
  auto runtime = baton::WorkerRuntime::Create(*options);
  if (!runtime.ok()) {
    BATON_LOG(ERROR) << runtime.status().message();
    return 1;
  }
  baton::DecodeService service(runtime->get());
  baton::WorkerServices services;
  services.services = {&service};
  if (service.kv_link_service() != nullptr) services.services.push_back(service.kv_link_service());
  services.on_address = [&service](const std::string& address) { return service.StartReceivers(address); };
  services.on_stop = [&service] { service.StopReceivers(); };
  services.num_open_calls = [&service] { return service.num_open_calls(); };
  services.finish_streams = [&service](absl::Duration timeout) { service.FinishStreams(timeout); };
  return baton::RunWorkerProcess(runtime->get(), services, &signals);
}
