// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_PTX_KERNEL_BUILDER_H_
#define BATON_TESTS_GPU_SIM_PTX_KERNEL_BUILDER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/gpu_sim/ptx/program.h"
#include "tests/gpu_sim/ptx/types.h"

namespace baton::ptx {

// An operand as written.
struct OperandText {
  enum class Kind { kWord, kNumber, kAddress, kVector };
  Kind kind = Kind::kWord;
  std::string word;                    // kWord; kAddress: its base, empty for a number.
  uint64_t bits = 0;                   // kNumber; kAddress without a base.
  int64_t offset = 0;                  // kAddress, and kWord: symbol + offset.
  bool negated = false;                // !%p
  std::vector<OperandText> elements;   // kVector.
  std::vector<OperandText> alternative;  // At most one: %p|%q.
};

// Something with an address.
struct Symbol {
  Space space = Space::kGeneric;
  uint64_t address = 0;          // Offset for shared, local and param; a real address for global and const.
  bool dynamic_shared = false;   // Placed after the static arrays.
};

// Turns a kernel's declarations and instructions into a Kernel: gives registers, constants and symbols their slots.
class KernelBuilder {
 public:
  KernelBuilder(std::string name, const std::map<std::string, Symbol>* module_symbols);

  void OpenScope() { scopes_.emplace_back(); }
  bool CloseScope();  // False: none is open.

  void DeclareRegister(const std::string& name, Type type);
  void DeclareParameter(const std::string& name, uint32_t bytes, uint32_t alignment);
  // `space` is kShared or kLocal.
  void DeclareArray(const std::string& name, Space space, uint32_t bytes, uint32_t alignment);
  void SetMaxThreads(int threads) { kernel_.max_threads = threads; }

  // All errors name the line.
  absl::Status AddLabel(int line, const std::string& name);
  absl::Status AddInstruction(int line, const std::string& opcode, const std::optional<OperandText>& guard,
                              const std::vector<OperandText>& operands);
  // Resolves labels and places the dynamic shared array.
  absl::Status Finish(Kernel* kernel);

 private:
  struct Register {
    uint32_t slot;
    int bytes;  // Per lane; 0: predicate.
  };
  struct Role;

  uint32_t NewSlot(int bytes_per_lane);
  const Register* FindRegister(const std::string& name);
  const Symbol* FindSymbol(const std::string& name) const;
  uint32_t Constant(uint64_t bits, int bytes, bool dynamic_shared = false);
  absl::Status Bind(const std::string& roles, const std::vector<OperandText>& operands, Instruction* instruction);
  absl::Status BindOperand(const Role& role, const OperandText& operand, Instruction* instruction);
  absl::Status BindScalar(const std::string& kind, const OperandText& operand, Instruction* instruction);
  absl::Status BindAddress(const OperandText& operand, Instruction* instruction);
  static absl::Status BeginOperand(Instruction* instruction);
  static absl::Status PushSlot(uint32_t slot, Instruction* instruction);

  const std::map<std::string, Symbol>* const module_symbols_;
  Kernel kernel_;
  std::vector<std::map<std::string, Register>> scopes_;
  std::map<std::string, Symbol> symbols_;
  std::map<std::string, int> labels_;
  std::vector<std::pair<int, std::string>> branches_;  // Instruction and its label.
  struct ConstantKey {
    uint64_t bits;
    int bytes;
    bool dynamic_shared;
    auto operator<=>(const ConstantKey&) const = default;
  };
  std::map<ConstantKey, uint32_t> constants_;
  std::vector<std::pair<uint32_t, ConstantKey>> constant_values_;
  std::map<std::string, Register> special_;
  uint32_t register_bytes_ = 0;
  uint32_t sink_ = 0;
};

}  // namespace baton::ptx

#endif  // BATON_TESTS_GPU_SIM_PTX_KERNEL_BUILDER_H_
