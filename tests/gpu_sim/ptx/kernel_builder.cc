// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/ptx/kernel_builder.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "tests/gpu_sim/ptx/opcode.h"

namespace baton::ptx {
namespace {

using Decoder = bool (*)(Opcode, Instruction*, OperandList*);
constexpr Decoder kDecoders[] = {DecodeArithmetic, DecodeBits,   DecodeLogic, DecodeFloat, DecodeHalf, DecodeConvert,
                                 DecodeMemory,     DecodeAtomic, DecodeAsync, DecodeWarp,  DecodeMatrix};

absl::Status Invalid(const std::string& what) { return absl::InvalidArgumentError(what); }

// Control flow has no handler of its own.
bool DecodeFlow(Opcode op, Instruction* instruction, OperandList* operands) {
  if (op.Is({"bra"})) {
    op.Take("uni");
    instruction->flow = Flow::kBranch;
    *operands = "L";
  } else if (op.Is({"ret", "exit"})) {
    op.Take("uni");
    instruction->flow = Flow::kExit;
  } else if (op.Is({"bar", "barrier"})) {
    op.Take("cta");
    if (!op.Take("sync")) return false;
    op.Take("aligned");
    instruction->flow = Flow::kBarrier;
    *operands = "i";
  } else {
    return false;
  }
  return op.Done();
}

uint32_t AlignUp(uint32_t value, uint32_t alignment) { return (value + alignment - 1) / alignment * alignment; }

}  // namespace

// One operand's part of an OperandList.
struct KernelBuilder::Role {
  std::string kind;    // "d4" and so on.
  int elements = 1;
  bool optional = false;
  std::string second;  // After '|'.

  static Role Parse(std::string text) {
    Role role;
    if (text.ends_with("?")) {
      role.optional = true;
      text.pop_back();
    }
    if (const size_t bar = text.find('|'); bar != std::string::npos) {
      role.second = text.substr(bar + 1);
      text.resize(bar);
    }
    if (const size_t star = text.find('*'); star != std::string::npos) {
      role.elements = std::stoi(text.substr(star + 1));
      text.resize(star);
    }
    role.kind = text;
    return role;
  }
};

KernelBuilder::KernelBuilder(std::string name, const std::map<std::string, Symbol>* module_symbols)
    : module_symbols_(module_symbols) {
  kernel_.name = std::move(name);
  OpenScope();
  sink_ = NewSlot(8);
}

bool KernelBuilder::CloseScope() {
  if (scopes_.size() <= 1) return false;
  scopes_.pop_back();
  return true;
}

uint32_t KernelBuilder::NewSlot(int bytes_per_lane) {
  const uint32_t slot = register_bytes_;
  // A predicate takes one word, but keeps the alignment of all others.
  register_bytes_ += bytes_per_lane == 0 ? 64 : static_cast<uint32_t>(bytes_per_lane) * kWarpSize;
  return slot;
}

void KernelBuilder::DeclareRegister(const std::string& name, Type type) {
  const int bytes = type == Type::kPred ? 0 : SlotBytes(type);
  scopes_.back()[name] = {NewSlot(bytes), bytes};
}

void KernelBuilder::DeclareParameter(const std::string& name, uint32_t bytes, uint32_t alignment) {
  kernel_.parameter_bytes = AlignUp(kernel_.parameter_bytes, alignment);
  kernel_.parameters.push_back({name, kernel_.parameter_bytes, bytes});
  symbols_[name] = {Space::kParam, kernel_.parameter_bytes, false};
  kernel_.parameter_bytes += bytes;
}

void KernelBuilder::DeclareArray(const std::string& name, Space space, uint32_t bytes, uint32_t alignment) {
  uint32_t& total = space == Space::kShared ? kernel_.shared_bytes : kernel_.local_bytes;
  total = AlignUp(total, alignment);
  symbols_[name] = {space, total, false};
  total += bytes;
}

const KernelBuilder::Register* KernelBuilder::FindRegister(const std::string& name) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->find(name); found != scope->end()) return &found->second;
  }
  static const std::map<std::string, Special> kSpecial = {
      {"%tid.x", Special::kTidX},           {"%tid.y", Special::kTidY},           {"%tid.z", Special::kTidZ},
      {"%ntid.x", Special::kNtidX},         {"%ntid.y", Special::kNtidY},         {"%ntid.z", Special::kNtidZ},
      {"%ctaid.x", Special::kCtaidX},       {"%ctaid.y", Special::kCtaidY},       {"%ctaid.z", Special::kCtaidZ},
      {"%nctaid.x", Special::kNctaidX},     {"%nctaid.y", Special::kNctaidY},     {"%nctaid.z", Special::kNctaidZ},
      {"%laneid", Special::kLaneid},        {"%warpid", Special::kWarpid},        {"%lanemask_eq", Special::kLanemaskEq},
      {"%lanemask_lt", Special::kLanemaskLt}, {"%lanemask_le", Special::kLanemaskLe},
      {"%lanemask_gt", Special::kLanemaskGt}, {"%lanemask_ge", Special::kLanemaskGe}};
  if (const auto found = special_.find(name); found != special_.end()) return &found->second;
  const auto known = kSpecial.find(name);
  if (known == kSpecial.end()) return nullptr;
  const Register made{NewSlot(4), 4};
  kernel_.special.push_back({known->second, made.slot});
  return &special_.emplace(name, made).first->second;
}

const Symbol* KernelBuilder::FindSymbol(const std::string& name) const {
  if (const auto found = symbols_.find(name); found != symbols_.end()) return &found->second;
  const auto found = module_symbols_->find(name);
  return found == module_symbols_->end() ? nullptr : &found->second;
}

uint32_t KernelBuilder::Constant(uint64_t bits, int bytes, bool dynamic_shared) {
  if (bytes == 4) bits &= 0xffffffffu;
  const ConstantKey key{bits, bytes, dynamic_shared};
  const auto found = constants_.find(key);
  if (found != constants_.end()) return found->second;
  const uint32_t slot = NewSlot(bytes);
  constants_[key] = slot;
  constant_values_.emplace_back(slot, key);
  return slot;
}

absl::Status KernelBuilder::AddLabel(int line, const std::string& name) {
  if (!labels_.emplace(name, static_cast<int>(kernel_.code.size())).second) {
    return Invalid(absl::StrCat("ptx line ", line, ": label ", name, " is there twice"));
  }
  return absl::OkStatus();
}

absl::Status KernelBuilder::AddInstruction(int line, const std::string& opcode, const std::optional<OperandText>& guard,
                                           const std::vector<OperandText>& operands) {
  const std::string where = absl::StrCat("ptx line ", line, ": ", opcode);
  Instruction instruction;
  std::vector<int> shape;
  for (const OperandText& operand : operands) {
    shape.push_back(operand.kind == OperandText::Kind::kVector ? static_cast<int>(operand.elements.size()) : 1);
  }
  const Opcode op(opcode, shape);
  OperandList roles;
  bool known = DecodeFlow(op, &instruction, &roles);
  for (const Decoder decoder : kDecoders) {
    if (known) break;
    instruction = Instruction();
    roles.clear();
    known = decoder(op, &instruction, &roles);
  }
  if (!known) return Invalid(absl::StrCat(where, ": this opcode is not interpreted"));
  instruction.line = line;
  if (guard.has_value()) {
    const Register* const predicate = FindRegister(guard->word);
    if (predicate == nullptr || predicate->bytes != 0) return Invalid(absl::StrCat(where, ": guard ", guard->word, " is no predicate"));
    instruction.guard = static_cast<int32_t>(predicate->slot);
    instruction.guard_negated = guard->negated;
  }
  if (instruction.flow == Flow::kBranch) {
    if (operands.size() != 1 || operands[0].kind != OperandText::Kind::kWord) return Invalid(absl::StrCat(where, ": no label"));
    branches_.emplace_back(static_cast<int>(kernel_.code.size()), operands[0].word);
  } else if (absl::Status status = Bind(roles, operands, &instruction); !status.ok()) {
    return Annotate(status, where);
  }
  kernel_.code.push_back(instruction);
  return absl::OkStatus();
}

absl::Status KernelBuilder::Bind(const std::string& roles, const std::vector<OperandText>& operands, Instruction* instruction) {
  size_t next = 0;
  for (const absl::string_view text : absl::StrSplit(roles, ' ', absl::SkipEmpty())) {
    const Role role = Role::Parse(std::string(text));
    if (next == operands.size()) {
      if (role.optional) continue;
      return Invalid(absl::StrCat("operand ", next + 1, " is missing"));
    }
    BATON_RETURN_IF_ERROR(Annotate(BindOperand(role, operands[next], instruction), absl::StrCat("operand ", next + 1)));
    ++next;
  }
  if (next < operands.size()) return Invalid(absl::StrCat(operands.size(), " operands, but this form takes ", next));
  return absl::OkStatus();
}

absl::Status KernelBuilder::BeginOperand(Instruction* instruction) {
  if (instruction->num_operands >= kMaxOperands) return Invalid("too many operands");
  instruction->start[instruction->num_operands++] = instruction->num_elements;
  return absl::OkStatus();
}

absl::Status KernelBuilder::PushSlot(uint32_t slot, Instruction* instruction) {
  if (instruction->num_elements >= kMaxElements) return Invalid("too many elements");
  instruction->slots[instruction->num_elements++] = slot;
  return absl::OkStatus();
}

absl::Status KernelBuilder::BindOperand(const Role& role, const OperandText& operand, Instruction* instruction) {
  if (role.kind == "a") return BindAddress(operand, instruction);
  if (role.kind == "i") {
    if (operand.kind != OperandText::Kind::kNumber) return Invalid("must be a number");
    instruction->immediate = static_cast<int64_t>(operand.bits);
    return absl::OkStatus();
  }
  BATON_RETURN_IF_ERROR(BeginOperand(instruction));
  if (operand.kind != OperandText::Kind::kVector) {
    if (role.elements != 1) return Invalid(absl::StrCat("must be a vector of ", role.elements));
    BATON_RETURN_IF_ERROR(BindScalar(role.kind, operand, instruction));
  } else {
    if (static_cast<int>(operand.elements.size()) != role.elements) return Invalid(absl::StrCat("must have ", role.elements, " elements"));
    for (const OperandText& element : operand.elements) BATON_RETURN_IF_ERROR(BindScalar(role.kind, element, instruction));
  }
  if (!operand.alternative.empty() && role.second.empty()) return Invalid("takes no second destination");
  if (role.second.empty()) return absl::OkStatus();
  OperandText second;
  second.word = "_";
  if (!operand.alternative.empty()) second = operand.alternative.front();
  BATON_RETURN_IF_ERROR(BeginOperand(instruction));
  return BindScalar(role.second, second, instruction);
}

absl::Status KernelBuilder::BindScalar(const std::string& kind, const OperandText& operand, Instruction* instruction) {
  const bool destination = kind[0] == 'd';
  const bool predicate = kind[1] == 'p';
  Type type = instruction->type;
  if (!destination && instruction->source_type != Type::kNone) type = instruction->source_type;
  const int bytes = predicate ? 0 : (kind[1] == '8' || (kind[1] == 'w' && SizeOf(type) == 8)) ? 8 : 4;
  if (operand.kind == OperandText::Kind::kNumber) {
    if (destination) return Invalid("must be a register");
    if (predicate) return PushSlot(Constant(operand.bits != 0 ? kAllLanes : 0, 4), instruction);
    return PushSlot(Constant(operand.bits, bytes), instruction);
  }
  if (operand.kind != OperandText::Kind::kWord) return Invalid("must be a register or a number");
  if (operand.word == "_" && destination) return PushSlot(sink_, instruction);
  if (const Register* const found = FindRegister(operand.word)) {
    if (predicate != (found->bytes == 0)) return Invalid(absl::StrCat(operand.word, predicate ? " is no predicate" : " is a predicate"));
    if (operand.negated) {
      if (!predicate || destination) return Invalid("! stands before a source predicate");
      instruction->combine_negated = true;
    }
    if (kind[1] == 'w' && found->bytes == 8 && bytes == 4) {
      (destination ? instruction->wide_destination : instruction->wide_source) = true;
    } else if (found->bytes != bytes && !predicate) {
      return Invalid(absl::StrCat(operand.word, " has ", found->bytes, " bytes a lane, not ", bytes));
    }
    return PushSlot(found->slot, instruction);
  }
  const Symbol* const symbol = FindSymbol(operand.word);
  if (symbol == nullptr) return Invalid(absl::StrCat(operand.word, " is not declared"));
  if (destination || predicate) return Invalid(absl::StrCat(operand.word, " is no register"));
  return PushSlot(Constant(symbol->address + static_cast<uint64_t>(operand.offset), bytes, symbol->dynamic_shared), instruction);
}

absl::Status KernelBuilder::BindAddress(const OperandText& operand, Instruction* instruction) {
  if (operand.kind != OperandText::Kind::kAddress) return Invalid("must be an address in []");
  BATON_RETURN_IF_ERROR(BeginOperand(instruction));
  uint32_t slot = 0;
  int bytes = 8;
  int64_t offset = operand.offset;
  if (operand.word.empty()) {
    slot = Constant(operand.bits, 8);
  } else if (const Register* const found = FindRegister(operand.word)) {
    if (found->bytes == 0) return Invalid(absl::StrCat(operand.word, " is a predicate"));
    slot = found->slot;
    bytes = found->bytes;
  } else if (const Symbol* const symbol = FindSymbol(operand.word)) {
    slot = Constant(symbol->address, 8, symbol->dynamic_shared);
  } else {
    return Invalid(absl::StrCat(operand.word, " is not declared"));
  }
  // cp.async has two; the second one's width and offset take the place of mode and immediate.
  if (instruction->address_bytes == 0) {
    instruction->address_bytes = static_cast<uint8_t>(bytes);
    instruction->address_offset = offset;
  } else {
    instruction->mode = static_cast<uint8_t>(bytes);
    instruction->immediate = offset;
  }
  return PushSlot(slot, instruction);
}

absl::Status KernelBuilder::Finish(Kernel* kernel) {
  Instruction exit;
  exit.flow = Flow::kExit;
  exit.line = kernel_.code.empty() ? 0 : kernel_.code.back().line;
  kernel_.code.push_back(exit);
  for (const auto& [index, label] : branches_) {
    const auto found = labels_.find(label);
    if (found == labels_.end()) {
      return Invalid(absl::StrCat("ptx line ", kernel_.code[index].line, ": no label ", label));
    }
    kernel_.code[index].immediate = found->second;
  }
  // Poison: as fp32, bf16 and fp16 a NaN.
  kernel_.registers.assign(register_bytes_, 0xff);
  const uint32_t dynamic_start = AlignUp(kernel_.shared_bytes, 16);
  for (const auto& [slot, key] : constant_values_) {
    const uint64_t bits = key.bits + (key.dynamic_shared ? dynamic_start : 0);
    for (int lane = 0; lane < kWarpSize; ++lane) std::memcpy(&kernel_.registers[slot + lane * key.bytes], &bits, key.bytes);
  }
  *kernel = std::move(kernel_);
  return absl::OkStatus();
}

}  // namespace baton::ptx
