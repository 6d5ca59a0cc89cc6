// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/match.h"
#include "common/format/gguf.h"
#include "common/text/gguf_vocabulary.h"
#include "common/text/tokenizer_json.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/gguf_writer.h"

namespace baton {
namespace {

// What loads also encodes and decodes anything.
void Use(const Tokenizer& tokenizer) {
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.Encode("hello w\xC3\xB6rld\n  12 <|end|>\xF0\x9F\x8C\x8D", {.add_special = special, .parse_special = special});
    if (ids.ok()) (void)tokenizer.Decode(*ids, special);
  }
  const int last = tokenizer.vocab_size() - 1;
  (void)tokenizer.Decode(std::vector<int32_t>{-1, 0, 1, last, last + 1, INT32_MAX}, true);
}

}  // namespace
}  // namespace baton

// tokenizer.json, or a GGUF file's vocabulary.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  if (absl::StartsWith(text, "GGUF")) {
    const auto file = baton::GgufFile::Parse({data, size}, "fuzz.gguf");
    if (!file.ok()) return 0;
    const auto vocabulary = baton::ReadGgufVocabulary(**file);
    if (!vocabulary.ok()) return 0;
    if (const auto tokenizer = baton::TokenizerFromGguf(*vocabulary); tokenizer.ok()) baton::Use(**tokenizer);
  } else if (const auto tokenizer = baton::TokenizerFromJson(text); tokenizer.ok()) {
    baton::Use(**tokenizer);
  }
  return 0;
}

namespace baton::fuzz {

// Short, so that damage meets every part often.
std::vector<std::string> Seeds() {
  std::vector<std::string> seeds = {
      R"({"added_tokens":[{"id":5,"content":"<s>","special":true,"lstrip":true,"rstrip":true,"single_word":true}],)"
      R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Replace","pattern":{"Regex":" +"},"content":"x"},)"
      R"({"type":"Strip","strip_left":true},{"type":"Prepend","prepend":"h"}]},)"
      R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"String":"l"},"behavior":"Isolated",)"
      R"("invert":false},{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":false}]},)"
      R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},)"
      R"({"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[5],"tokens":["<s>"]}}},)"
      R"("decoder":{"type":"ByteLevel"},"model":{"type":"BPE","unk_token":"h","fuse_unk":true,"ignore_merges":true,)"
      R"("vocab":{"h":0,"e":1,"l":2,"he":3,"hel":4},"merges":["h e",["he","l"]]}})",
      R"({"added_tokens":[{"id":0,"content":"<unk>","special":true,"normalized":true}],"normalizer":null,)"
      R"("pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"first","split":true},"post_processor":)"
      R"({"type":"Sequence","processors":[{"type":"RobertaProcessing","cls":["a",1],"sep":["b",2]},{"type":"ByteLevel"}]},)"
      R"("decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"_"},"content":" "},)"
      R"({"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},)"
      R"("model":{"type":"BPE","byte_fallback":true,"dropout":null,"continuing_subword_prefix":"#","end_of_word_suffix":"$",)"
      R"("vocab":{"<unk>":0,"a":1,"b":2,"#b":3,"ab":4,"<0x41>":5},"merges":["a #b"]}})"};
  testing::GgufWriter bpe;
  bpe.SetString("tokenizer.ggml.model", "gpt2").SetString("tokenizer.ggml.pre", "llama-bpe");
  bpe.SetStrings("tokenizer.ggml.tokens", {"<s>", "h", "e", "l", "he", "hel", "</s>"});
  bpe.SetStrings("tokenizer.ggml.merges", {"h e", "he l"}).SetI32s("tokenizer.ggml.token_type", {3, 1, 1, 1, 1, 1, 3});
  bpe.SetU32("tokenizer.ggml.bos_token_id", 0).SetU32("tokenizer.ggml.eos_token_id", 6).SetBool("tokenizer.ggml.add_bos_token", true);
  seeds.push_back(bpe.Build());
  testing::GgufWriter spm;
  spm.SetString("tokenizer.ggml.model", "llama").SetStrings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<0x41>", "\u2581h", "el", "h"});
  spm.SetF32s("tokenizer.ggml.scores", {0, 0, 0, 0, -1, -2, -3}).SetI32s("tokenizer.ggml.token_type", {2, 3, 3, 6, 1, 1, 4});
  spm.SetU32("tokenizer.ggml.unknown_token_id", 0).SetU32("tokenizer.ggml.bos_token_id", 1).SetU32("tokenizer.ggml.eos_token_id", 2);
  seeds.push_back(spm.Build());
  return seeds;
}

int NumInputs() { return 20000; }

}  // namespace baton::fuzz
