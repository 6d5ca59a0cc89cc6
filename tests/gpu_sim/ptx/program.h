// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_PTX_PROGRAM_H_
#define BATON_TESTS_GPU_SIM_PTX_PROGRAM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/gpu_sim/ptx/types.h"

namespace baton::ptx {

class Warp;
struct Instruction;

// Executes an instruction for the lanes of `lanes` (bit l: lane l).
using Handler = void (*)(Warp& warp, const Instruction& instruction, uint32_t lanes);

// What the scheduler does with an instruction. Everything but kNext is its own work; kCollective waits for the lanes that the
// instruction's last operand names and then calls the handler for them together.
enum class Flow : uint8_t { kNext, kBranch, kExit, kBarrier, kCollective };

inline constexpr int kMaxOperands = 6;
inline constexpr int kMaxElements = 20;

// Decoded: operands are offsets into the warp's register file. A slot there holds 32 lanes of 4 or of 8 bytes (narrower types
// take 4, zero-extended), or, for a predicate, one word with a bit per lane. Constants and special registers are slots too.
struct Instruction {
  Handler handler = nullptr;
  Flow flow = Flow::kNext;
  Type type = Type::kNone;
  Type source_type = Type::kNone;
  Space space = Space::kGeneric;
  Rounding rounding = Rounding::kNearest;
  Compare compare = Compare::kEq;
  BoolOp combine = BoolOp::kNone;
  bool saturate = false;
  bool flush = false;          // .ftz
  bool guard_negated = false;
  bool combine_negated = false;
  bool wide_destination = false;  // An 8-byte slot takes a narrower value.
  bool wide_source = false;
  uint8_t width = 1;           // Elements of a vector access.
  uint8_t mode = 0;            // The handler's own.
  uint8_t address_bytes = 0;   // 4 or 8: slot of the address; 0: no address operand.
  uint8_t num_operands = 0;
  uint8_t num_elements = 0;
  uint8_t start[kMaxOperands] = {};  // Of each operand in `slots`.
  int line = 0;                // Of the PTX text, from 1.
  int32_t guard = -1;          // Slot of the predicate; -1: none.
  int64_t immediate = 0;       // Target of a branch (index of an instruction), table of lop3, size of a copy.
  int64_t address_offset = 0;
  uint32_t slots[kMaxElements] = {};

  uint32_t slot(int operand, int element = 0) const { return slots[start[operand] + element]; }
};

// A special register that is filled when a warp starts.
struct SpecialRegister {
  Special which;
  uint32_t slot;
};

struct Parameter {
  std::string name;
  uint32_t offset = 0;
  uint32_t bytes = 0;
};

struct Kernel {
  std::string name;
  std::vector<Instruction> code;  // The last one is an exit.
  std::vector<uint8_t> registers;  // The register file as a warp starts with it: constants in place, the rest poisoned.
  std::vector<SpecialRegister> special;
  std::vector<Parameter> parameters;
  uint32_t parameter_bytes = 0;
  uint32_t shared_bytes = 0;   // Static.
  uint32_t local_bytes = 0;    // Per thread.
  int max_threads = 1024;      // Of .maxntid or .reqntid.
};

// A variable of the module in global or constant memory.
struct ModuleVariable {
  std::string name;
  std::vector<uint8_t> bytes;
};

struct Module {
  std::map<std::string, Kernel> kernels;
  std::vector<std::unique_ptr<ModuleVariable>> variables;  // Addresses of their bytes are in the kernels' constants.

  // Null: there is none of this name.
  const Kernel* Find(const std::string& name) const {
    const auto found = kernels.find(name);
    return found == kernels.end() ? nullptr : &found->second;
  }
};

// Parses and decodes PTX.
//   INVALID_ARGUMENT  names line and text: no PTX, or an opcode, type or operand form that the interpreter does not execute.
absl::StatusOr<std::unique_ptr<Module>> LoadModule(const std::string& text);

}  // namespace baton::ptx

#endif  // BATON_TESTS_GPU_SIM_PTX_PROGRAM_H_
