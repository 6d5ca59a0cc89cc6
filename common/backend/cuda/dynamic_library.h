// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_DYNAMIC_LIBRARY_H_
#define BATON_COMMON_BACKEND_CUDA_DYNAMIC_LIBRARY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::cuda {

// A shared library opened at run time. It stays loaded until the process ends: NVIDIA's libraries keep threads and exit handlers,
// and function pointers taken from one outlive this object. Any thread.
class DynamicLibrary {
 public:
  // `name` as for dlopen: a file name that the system searches for, or a path.
  //   FAILED_PRECONDITION  it cannot be opened; the message is the system's and names the file.
  static absl::StatusOr<DynamicLibrary> Open(const std::string& name);

  // The address of a function, or null.
  void* Find(const char* symbol) const;

  // Sets *function to the address of `symbol`.
  //   FAILED_PRECONDITION  the library has no such function; names both.
  template <typename Function>
  absl::Status Get(const char* symbol, Function** function) const {
    void* const address = Find(symbol);
    if (address == nullptr) return Missing(symbol);
    *function = reinterpret_cast<Function*>(address);
    return absl::OkStatus();
  }

  const std::string& name() const { return name_; }

 private:
  DynamicLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}
  absl::Status Missing(absl::string_view symbol) const;

  std::string name_;
  void* handle_;
};

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_DYNAMIC_LIBRARY_H_
