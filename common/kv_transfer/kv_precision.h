// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_KV_PRECISION_H_
#define BATON_COMMON_KV_TRANSFER_KV_PRECISION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/kv/kv_layout.h"

namespace baton {

// The types that some keys and values have been held in since they were computed: each kept what it can of the one before, and what
// was computed from them has no more than they had. A value; nothing added means: none is known of.
class KvPrecision {
 public:
  void Add(KvDtype dtype) { types_ = static_cast<uint8_t>(types_ | Bit(dtype)); }
  void Add(const KvPrecision& other) { types_ = static_cast<uint8_t>(types_ | other.types_); }

  // Whether a pool of `dtype` that had computed them itself would have no more of them. f16 and bf16 have each what the other lacks.
  bool SufficesFor(KvDtype dtype) const {
    if (dtype == KvDtype::kInt8) return true;
    return (types_ & ~(Bit(dtype) | Bit(KvDtype::kF32))) == 0;
  }

  // "f16,int8".
  std::string ToString() const {
    std::string text;
    for (const KvDtype dtype : kTypes) {
      if ((types_ & Bit(dtype)) != 0) absl::StrAppend(&text, text.empty() ? "" : ",", KvDtypeName(dtype));
    }
    return text;
  }

  // A numerics id ends in it, because what KV is rounded to decides bits: "cpu-i8g32x1111/1;kv=f16". What the id said of it before goes.
  std::string AddTo(absl::string_view numerics) const {
    return absl::StrCat(numerics.substr(0, numerics.find(kMark)), kMark, ToString());
  }
  // Nothing: the id does not say, or says what is not known here.
  static std::optional<KvPrecision> FromNumerics(absl::string_view numerics) {
    const size_t mark = numerics.find(kMark);
    if (mark == absl::string_view::npos) return std::nullopt;
    KvPrecision precision;
    for (const absl::string_view name : absl::StrSplit(numerics.substr(mark + kMark.size()), ',')) {
      const auto dtype = ParseKvDtype(name);
      if (!dtype.ok()) return std::nullopt;
      precision.Add(*dtype);
    }
    return precision;
  }
  // Of what nobody knows anything of: it suffices for no pool but int8.
  static KvPrecision Unknown() {
    KvPrecision precision;
    for (const KvDtype dtype : kTypes) precision.Add(dtype);
    return precision;
  }

  friend bool operator==(const KvPrecision&, const KvPrecision&) = default;

 private:
  static constexpr KvDtype kTypes[] = {KvDtype::kF32, KvDtype::kF16, KvDtype::kBf16, KvDtype::kInt8};
  static constexpr absl::string_view kMark = ";kv=";
  static int Bit(KvDtype dtype) { return 1 << static_cast<int>(dtype); }

  uint8_t types_ = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_KV_PRECISION_H_
