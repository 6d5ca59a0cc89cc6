// SPDX-License-Identifier: Apache-2.0
// write_tiny_model FILE: a seeded random model for tests that drive the programs from scripts. It generates text that says
// nothing, in 4,096 tokens of context, about a millisecond a token.
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/support/tiny_model.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "Usage: write_tiny_model FILE\n");
    return 2;
  }
  baton::testing::TinyModelOptions options;
  options.context_length = 4096;
  options.num_layers = 4;
  options.hidden_size = 128;
  options.num_heads = 8;
  options.intermediate_size = 512;
  std::ofstream out(argv[1], std::ios::binary);
  out << baton::testing::TinyModel(options).Build();
  return out.flush() ? 0 : 1;
}
