// SPDX-License-Identifier: Apache-2.0
// Directives and statements of a PTX file. Instructions go to KernelBuilder.
#include <bit>
#include <charconv>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/gpu_sim/ptx/kernel_builder.h"
#include "tests/gpu_sim/ptx/lexer.h"
#include "tests/gpu_sim/ptx/program.h"

namespace baton::ptx {
namespace {

constexpr uint64_t kMaxArrayBytes = uint64_t{1} << 26;

// A variable or parameter as declared.
struct Declaration {
  Type type = Type::kNone;
  std::string name;
  uint32_t alignment = 0;
  bool is_array = false;
  uint64_t elements = 1;  // 0: "[]".
  uint64_t bytes() const { return elements * static_cast<uint64_t>(SizeOf(type)); }
};

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), module_(std::make_unique<Module>()) {}

  absl::StatusOr<std::unique_ptr<Module>> Run() {
    while (Peek().kind != TokenKind::kEnd) BATON_RETURN_IF_ERROR(ParseModuleStatement());
    return std::move(module_);
  }

 private:
  const Token& Peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token Next() {
    const Token token = Peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool Accept(std::string_view text) {
    if (Peek().kind == TokenKind::kEnd || Peek().text != text) return false;
    ++at_;
    return true;
  }
  absl::Status Expect(std::string_view text) {
    if (Accept(text)) return absl::OkStatus();
    return Error(absl::StrCat("'", std::string(text), "' expected, not '", std::string(Peek().text), "'"));
  }
  absl::Status Error(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("ptx line ", Peek().line, ": ", what));
  }
  void SkipLine() {
    for (const int line = Peek().line; Peek().kind != TokenKind::kEnd && Peek().line == line;) ++at_;
  }

  absl::Status ParseModuleStatement();
  absl::Status ParseEntry();
  absl::Status ParseBody(KernelBuilder* builder);
  absl::Status ParseStatement(KernelBuilder* builder);
  absl::Status ParseRegisters(KernelBuilder* builder);
  absl::Status ParseModuleVariable(const std::string& space, bool is_extern);
  absl::StatusOr<Declaration> ParseDeclaration();
  absl::StatusOr<uint64_t> ParseInteger();
  absl::StatusOr<OperandText> ParseNumber();
  absl::StatusOr<OperandText> ParseOperand();
  absl::Status ParseList(std::string_view end, std::vector<OperandText>* operands);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::unique_ptr<Module> module_;
  std::map<std::string, Symbol> symbols_;
  std::vector<Declaration> module_shared_;  // Static arrays outside of kernels: every kernel has room for them.
};

absl::Status Parser::ParseModuleStatement() {
  const std::string word(Peek().text);
  if (word == ".version" || word == ".target" || word == ".file" || word == ".loc" || word == ".address_size") {
    SkipLine();
    return absl::OkStatus();
  }
  bool is_extern = false;
  while (Peek().text == ".visible" || Peek().text == ".weak" || Peek().text == ".extern" || Peek().text == ".common") {
    is_extern = Next().text == ".extern" || is_extern;
  }
  const std::string kind(Next().text);
  if (kind == ".entry") return ParseEntry();
  if (kind == ".global" || kind == ".const" || kind == ".shared") return ParseModuleVariable(kind, is_extern);
  return Error(absl::StrCat("'", kind, "' is not interpreted at this place"));
}

absl::StatusOr<uint64_t> Parser::ParseInteger() {
  BATON_ASSIGN_OR_RETURN(const OperandText number, ParseNumber());
  return number.bits;
}

absl::StatusOr<Declaration> Parser::ParseDeclaration() {
  Declaration found;
  if (Accept(".align")) {
    BATON_ASSIGN_OR_RETURN(const uint64_t alignment, ParseInteger());
    if (!std::has_single_bit(alignment) || alignment > 4096) return Error(absl::StrCat("alignment ", alignment));
    found.alignment = static_cast<uint32_t>(alignment);
  }
  const Token type = Next();
  found.type = type.text.empty() ? Type::kNone : TypeOf(type.text.substr(1));
  if (found.type == Type::kNone) return Error(absl::StrCat("'", std::string(type.text), "' is no type"));
  if (found.alignment == 0) found.alignment = static_cast<uint32_t>(SizeOf(found.type));
  while (Peek().text == ".ptr" || Peek().text == ".align" || Peek().text == ".global") {  // Attributes of a pointer parameter.
    if (Next().text == ".align") BATON_RETURN_IF_ERROR(ParseInteger().status());
  }
  found.name = std::string(Next().text);
  if (Accept("[")) {
    found.is_array = true;
    found.elements = 0;
    if (!Accept("]")) {
      BATON_ASSIGN_OR_RETURN(found.elements, ParseInteger());
      BATON_RETURN_IF_ERROR(Expect("]"));
    }
  }
  if (found.bytes() > kMaxArrayBytes) return Error(absl::StrCat(found.name, " is larger than ", kMaxArrayBytes, " bytes"));
  return found;
}

absl::Status Parser::ParseModuleVariable(const std::string& space, bool is_extern) {
  BATON_ASSIGN_OR_RETURN(const Declaration declared, ParseDeclaration());
  if (space == ".shared") {
    if (is_extern) symbols_[declared.name] = {Space::kShared, 0, true};
    else module_shared_.push_back(declared);
    return Expect(";");
  }
  if (is_extern) return Error(absl::StrCat(declared.name, " is external: there is no linker"));
  auto variable = std::make_unique<ModuleVariable>();
  variable->name = declared.name;
  variable->bytes.assign(declared.bytes(), 0);
  if (Accept("=")) {
    const bool braces = Accept("{");
    for (uint64_t i = 0; !braces || !Accept("}"); ++i) {
      BATON_ASSIGN_OR_RETURN(const uint64_t value, ParseInteger());
      const size_t bytes = static_cast<size_t>(SizeOf(declared.type));
      if ((i + 1) * bytes > variable->bytes.size()) return Error(absl::StrCat(declared.name, ": too many values"));
      for (size_t b = 0; b < bytes; ++b) variable->bytes[i * bytes + b] = static_cast<uint8_t>(value >> (8 * b));
      if (!braces) break;
      Accept(",");
    }
  }
  symbols_[declared.name] = {space == ".const" ? Space::kConst : Space::kGlobal,
                             reinterpret_cast<uint64_t>(variable->bytes.data()), false};
  module_->variables.push_back(std::move(variable));
  return Expect(";");
}

absl::Status Parser::ParseEntry() {
  const std::string name(Next().text);
  KernelBuilder builder(name, &symbols_);
  for (const Declaration& shared : module_shared_) {
    builder.DeclareArray(shared.name, Space::kShared, static_cast<uint32_t>(shared.bytes()), shared.alignment);
  }
  if (Accept("(")) {
    while (!Accept(")")) {
      BATON_RETURN_IF_ERROR(Expect(".param"));
      BATON_ASSIGN_OR_RETURN(const Declaration parameter, ParseDeclaration());
      builder.DeclareParameter(parameter.name, static_cast<uint32_t>(parameter.bytes()), parameter.alignment);
      Accept(",");
    }
  }
  while (Peek().text != "{") {
    const std::string directive(Next().text);
    if (directive != ".maxntid" && directive != ".reqntid" && directive != ".minnctapersm" && directive != ".maxnreg") {
      return Error(absl::StrCat("'", directive, "' is not interpreted"));
    }
    uint64_t product = 1;
    do {
      BATON_ASSIGN_OR_RETURN(const uint64_t value, ParseInteger());
      product *= value;
    } while (Accept(","));
    if (directive == ".maxntid" || directive == ".reqntid") builder.SetMaxThreads(static_cast<int>(std::min<uint64_t>(product, 1024)));
  }
  BATON_RETURN_IF_ERROR(ParseBody(&builder));
  Kernel kernel;
  BATON_RETURN_IF_ERROR(builder.Finish(&kernel));
  module_->kernels[name] = std::move(kernel);
  return absl::OkStatus();
}

absl::Status Parser::ParseBody(KernelBuilder* builder) {
  BATON_RETURN_IF_ERROR(Expect("{"));
  for (int depth = 1; depth > 0;) {
    if (Peek().kind == TokenKind::kEnd) return Error("the kernel's body has no end");
    if (Accept("{")) {
      builder->OpenScope();
      ++depth;
    } else if (Accept("}")) {
      if (--depth > 0 && !builder->CloseScope()) return Error("'}' without '{'");
    } else {
      BATON_RETURN_IF_ERROR(ParseStatement(builder));
    }
  }
  return absl::OkStatus();
}

absl::Status Parser::ParseRegisters(KernelBuilder* builder) {
  const Token type_token = Next();
  const Type type = type_token.text.empty() ? Type::kNone : TypeOf(type_token.text.substr(1));
  if (type == Type::kNone) return Error(absl::StrCat("'", std::string(type_token.text), "' is no register type"));
  do {
    const std::string name(Next().text);
    if (!Accept("<")) {
      builder->DeclareRegister(name, type);
      continue;
    }
    BATON_ASSIGN_OR_RETURN(const uint64_t count, ParseInteger());
    if (count > 100000) return Error(absl::StrCat(count, " registers"));
    for (uint64_t i = 0; i < count; ++i) builder->DeclareRegister(absl::StrCat(name, i), type);
    BATON_RETURN_IF_ERROR(Expect(">"));
  } while (Accept(","));
  return Expect(";");
}

absl::Status Parser::ParseStatement(KernelBuilder* builder) {
  if (Accept(";")) return absl::OkStatus();
  if (Peek().text == ".loc" || Peek().text == ".file" || Peek().text == ".pragma") {
    SkipLine();
    return absl::OkStatus();
  }
  if (Accept(".reg")) return ParseRegisters(builder);
  if (Peek().text == ".shared" || Peek().text == ".local") {
    const Space space = Next().text == ".shared" ? Space::kShared : Space::kLocal;
    BATON_ASSIGN_OR_RETURN(const Declaration array, ParseDeclaration());
    builder->DeclareArray(array.name, space, static_cast<uint32_t>(array.bytes()), array.alignment);
    return Expect(";");
  }
  const int line = Peek().line;
  if (Peek().kind == TokenKind::kWord && Peek(1).text == ":") {
    const std::string label(Next().text);
    ++at_;
    return builder->AddLabel(line, label);
  }
  std::optional<OperandText> guard;
  if (Accept("@")) {
    guard.emplace();
    guard->negated = Accept("!");
    guard->word = std::string(Next().text);
  }
  if (Peek().kind != TokenKind::kWord) return Error(absl::StrCat("'", std::string(Peek().text), "' begins no instruction"));
  const std::string opcode(Next().text);
  std::vector<OperandText> operands;
  BATON_RETURN_IF_ERROR(ParseList(";", &operands));
  return builder->AddInstruction(line, opcode, guard, operands);
}

absl::Status Parser::ParseList(std::string_view end, std::vector<OperandText>* operands) {
  if (Accept(end)) return absl::OkStatus();
  do {
    BATON_ASSIGN_OR_RETURN(OperandText operand, ParseOperand());
    operands->push_back(std::move(operand));
  } while (Accept(","));
  return Expect(end);
}

absl::StatusOr<OperandText> Parser::ParseNumber() {
  OperandText number;
  number.kind = OperandText::Kind::kNumber;
  const bool minus = Accept("-");
  const Token token = Next();
  std::string_view digits = token.text;
  int base = 10;
  if (digits.starts_with("0f") || digits.starts_with("0F") || digits.starts_with("0d") || digits.starts_with("0D") ||
      digits.starts_with("0x") || digits.starts_with("0X")) {
    base = 16;
    digits.remove_prefix(2);
  } else if (digits.size() > 1 && digits[0] == '0') {
    base = 8;
  }
  if (base != 16 || token.text[1] == 'x' || token.text[1] == 'X') {
    if (digits.ends_with("U")) digits.remove_suffix(1);
  }
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number.bits, base);
  if (token.kind != TokenKind::kNumber || error != std::errc() || end != digits.data() + digits.size()) {
    return Error(absl::StrCat("'", std::string(token.text), "' is no number"));
  }
  if (minus) number.bits = ~number.bits + 1;
  return number;
}

absl::StatusOr<OperandText> Parser::ParseOperand() {
  OperandText operand;
  if (Accept("{")) {
    operand.kind = OperandText::Kind::kVector;
    BATON_RETURN_IF_ERROR(ParseList("}", &operand.elements));
    return operand;
  }
  const auto offset = [&]() -> absl::Status {
    while (Peek().text == "+" || Peek().text == "-") {
      Accept("+");
      BATON_ASSIGN_OR_RETURN(const uint64_t value, ParseInteger());
      operand.offset += static_cast<int64_t>(value);
    }
    return absl::OkStatus();
  };
  if (Accept("[")) {
    operand.kind = OperandText::Kind::kAddress;
    if (Peek().kind == TokenKind::kWord) operand.word = std::string(Next().text);
    else if (auto bits = ParseInteger(); bits.ok()) operand.bits = *bits;
    else return bits.status();
    BATON_RETURN_IF_ERROR(offset());
    BATON_RETURN_IF_ERROR(Expect("]"));
    return operand;
  }
  if (Peek().kind == TokenKind::kNumber || Peek().text == "-") return ParseNumber();
  operand.negated = Accept("!");
  if (Peek().kind != TokenKind::kWord) return Error(absl::StrCat("'", std::string(Peek().text), "' is no operand"));
  operand.word = std::string(Next().text);
  BATON_RETURN_IF_ERROR(offset());
  if (Accept("|")) {
    BATON_ASSIGN_OR_RETURN(OperandText second, ParseOperand());
    operand.alternative.push_back(std::move(second));
  }
  return operand;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Module>> LoadModule(const std::string& text) {
  BATON_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(text));
  return Parser(std::move(tokens)).Run();
}

}  // namespace baton::ptx
