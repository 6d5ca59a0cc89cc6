// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_PTX_OPCODE_H_
#define BATON_TESTS_GPU_SIM_PTX_OPCODE_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/gpu_sim/ptx/program.h"
#include "tests/gpu_sim/ptx/types.h"

namespace baton::ptx {

// An opcode's dotted parts. Whoever decodes it takes the parts it understands; one that nobody took makes the form unknown, so
// that no modifier is ever ignored by accident.
class Opcode {
 public:
  // `shape`: of each operand as written, the number of its elements (1: no vector).
  explicit Opcode(std::string_view text, std::vector<int> shape = {}) : shape_(std::move(shape)) {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('.', begin), text.size());
      if (end > begin) parts_.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    if (!parts_.empty()) {
      base_ = parts_.front();
      parts_.erase(parts_.begin());
    }
  }

  std::string_view base() const { return base_; }
  bool Is(std::initializer_list<std::string_view> bases) const {
    return std::find(bases.begin(), bases.end(), base_) != bases.end();
  }

  // Takes the first part equal to `part`.
  bool Take(std::string_view part) {
    const auto found = std::find(parts_.begin(), parts_.end(), part);
    if (found == parts_.end()) return false;
    parts_.erase(found);
    return true;
  }
  // Takes whichever of `parts` is there; the index in the list, or -1.
  int TakeOneOf(std::initializer_list<std::string_view> parts) {
    int index = 0;
    for (const std::string_view part : parts) {
      if (Take(part)) return index;
      ++index;
    }
    return -1;
  }
  // Takes the next part that is a type, from the front.
  Type TakeType() {
    for (auto part = parts_.begin(); part != parts_.end(); ++part) {
      if (const Type type = TypeOf(*part); type != Type::kNone) {
        parts_.erase(part);
        return type;
      }
    }
    return Type::kNone;
  }
  // Takes .rn, .rz, .rm, .rp; false when there is none.
  bool TakeRounding(Instruction* instruction) {
    const int index = TakeOneOf({"rn", "rz", "rm", "rp"});
    if (index >= 0) instruction->rounding = static_cast<Rounding>(index);
    return index >= 0;
  }
  bool Done() const { return parts_.empty(); }
  int NumOperands() const { return static_cast<int>(shape_.size()); }
  int Elements(size_t operand) const { return operand < shape_.size() ? shape_[operand] : 0; }

 private:
  std::string_view base_;
  std::vector<std::string_view> parts_;
  std::vector<int> shape_;
};

// What a decoder found: it has set handler and fields, and says which operands there must be. A list of roles separated by spaces:
//   d4 d8 dp   destination of 4 or 8 bytes a lane, or a predicate       s4 s8 sp   source
//   dw sw      destination or source that may be wider than its type     a          address [register+offset]
//   L          label                                                    i          integer, into `immediate`
//   ROLE*N     {vector} of N                                            ROLE|ROLE  two destinations, the second optional
//   ROLE?      may be left out
using OperandList = std::string;

// Each decodes the opcodes of its file. False: not one of its forms.
bool DecodeArithmetic(Opcode op, Instruction* instruction, OperandList* operands);
bool DecodeBits(Opcode op, Instruction* instruction, OperandList* operands);
bool DecodeLogic(Opcode op, Instruction* instruction, OperandList* operands);
bool DecodeFloat(Opcode op, Instruction* instruction, OperandList* operands);
bool DecodeHalf(Opcode op, Instruction* instruction, OperandList* operands);
bool DecodeConvert(Opcode op, Instruction* instruction, OperandList* operands);
bool DecodeMemory(Opcode op, Instruction* instruction, OperandList* operands);
bool DecodeAtomic(Opcode op, Instruction* instruction, OperandList* operands);
bool DecodeAsync(Opcode op, Instruction* instruction, OperandList* operands);
bool DecodeWarp(Opcode op, Instruction* instruction, OperandList* operands);
bool DecodeMatrix(Opcode op, Instruction* instruction, OperandList* operands);

}  // namespace baton::ptx

#endif  // BATON_TESTS_GPU_SIM_PTX_OPCODE_H_
