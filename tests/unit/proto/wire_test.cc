// SPDX-License-Identifier: Apache-2.0
// Wire versions N and N-1 work together: what golden/wire.txt has of the protocols stays as it is. No field changes its number, name, type,
// label or oneof, no value its meaning, no method its messages; what is new is added to the file, with the wire version that begins with it.
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "baton/internal/decode.pb.h"
#include "baton/internal/kv.pb.h"
#include "baton/internal/prefill.pb.h"
#include "baton/internal/registry.pb.h"
#include "baton/internal/text.pb.h"
#include "baton/internal/types.pb.h"
#include "baton/v1/generation.pb.h"
#include "baton/v1/operations.pb.h"
#include "gtest/gtest.h"
#include "tests/support/paths.h"

namespace baton {
namespace {

namespace pb = google::protobuf;

// What a line is about ("field baton.internal.DecodeStart 2"), and what it says of it ("tokens repeated int32").
using Contract = std::map<std::string, std::string>;

std::string TypeOf(const pb::FieldDescriptor& field) {
  if (field.message_type() != nullptr) return field.message_type()->full_name();
  if (field.enum_type() != nullptr) return field.enum_type()->full_name();
  return field.type_name();
}

void AddMessage(const pb::Descriptor& message, Contract* contract) {
  for (int i = 0; i < message.field_count(); ++i) {
    const pb::FieldDescriptor& field = *message.field(i);
    const char* const label = field.is_repeated() ? "repeated " : field.has_optional_keyword() ? "optional " : "";
    const pb::OneofDescriptor* const oneof = field.real_containing_oneof();
    (*contract)[absl::StrCat("field ", message.full_name(), " ", field.number())] =
        absl::StrCat(field.name(), " ", label, TypeOf(field), oneof == nullptr ? "" : absl::StrCat(" in ", oneof->name()));
  }
  for (int i = 0; i < message.nested_type_count(); ++i) AddMessage(*message.nested_type(i), contract);
}

Contract Present() {
  Contract contract;
  for (const pb::Descriptor* of_file :
       {internal::DecodeStart::descriptor(), internal::KvHello::descriptor(), internal::PrefillStart::descriptor(), internal::WorkerLoad::descriptor(),
        internal::TextPart::descriptor(), internal::TransferId::descriptor(), v1::GenerateRequest::descriptor(), v1::SetWorkerRoleRequest::descriptor()}) {
    const pb::FileDescriptor& file = *of_file->file();
    for (int i = 0; i < file.message_type_count(); ++i) AddMessage(*file.message_type(i), &contract);
    for (int i = 0; i < file.enum_type_count(); ++i) {
      const pb::EnumDescriptor& type = *file.enum_type(i);
      for (int j = 0; j < type.value_count(); ++j) {
        contract[absl::StrCat("value ", type.full_name(), " ", type.value(j)->number())] = type.value(j)->name();
      }
    }
    for (int i = 0; i < file.service_count(); ++i) {
      for (int j = 0; j < file.service(i)->method_count(); ++j) {
        const pb::MethodDescriptor& method = *file.service(i)->method(j);
        contract[absl::StrCat("method ", method.full_name())] =
            absl::StrCat(method.client_streaming() ? "stream " : "", method.input_type()->full_name(), " -> ",
                         method.server_streaming() ? "stream " : "", method.output_type()->full_name());
      }
    }
  }
  return contract;
}

struct Line {
  std::string says;
  int since = 0;
};

// "KIND NAME [NUMBER] SAYS since VERSION"; methods have no number.
std::map<std::string, Line> ReadGolden() {
  std::map<std::string, Line> lines;
  std::ifstream in(testing::SourcePath("tests/golden/wire.txt"));
  for (std::string line; std::getline(in, line);) {
    size_t end = line.find(' ', line.find(' ') + 1);
    if (!absl::StartsWith(line, "method ")) end = line.find(' ', end + 1);
    const size_t since = line.rfind(" since ");
    Line read;
    if (since == std::string::npos || end >= since || !absl::SimpleAtoi(line.substr(since + 7), &read.since)) {
      ADD_FAILURE() << "wire.txt: malformed line: " << line;
      continue;
    }
    read.says = line.substr(end + 1, since - end - 1);
    EXPECT_TRUE(lines.emplace(line.substr(0, end), read).second) << "wire.txt: twice: " << line;
  }
  return lines;
}

TEST(Wire, WhatWasPromisedStays) {
  const Contract present = Present();
  const auto golden = ReadGolden();
  EXPECT_GT(golden.size(), 300u);
  for (const auto& [name, line] : golden) {
    const auto found = present.find(name);
    if (found == present.end()) {
      ADD_FAILURE() << name << " (" << line.says << ") is gone, though version " << line.since << " has it";
      continue;
    }
    EXPECT_EQ(found->second, line.says) << name << " has changed: give what is new a number of its own";
  }
}

TEST(Wire, WhatIsNewIsNoted) {
  const auto golden = ReadGolden();
  int version = 0;
  for (const auto& [name, line] : golden) version = std::max(version, line.since);
  for (const auto& [name, says] : Present()) {
    EXPECT_TRUE(golden.count(name)) << "add to tests/golden/wire.txt, with " << version + 1 << " if a release has " << version << ": " << name << " "
                                    << says << " since " << version;
  }
}

// A number that was given up is not given out again: it is reserved.
TEST(Wire, ReservedNumbersStayReserved) {
  EXPECT_TRUE(internal::KvHello::descriptor()->IsReservedNumber(6));
}

}  // namespace
}  // namespace baton
