// Builders of llama2.c files.
#ifndef TRIPTYCH_TESTS_SUPPORT_LLAMA2C_FILE_H_
#define TRIPTYCH_TESTS_SUPPORT_LLAMA2C_FILE_H_

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/support/gguf_file.h"

namespace triptych {

// dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len
using Llama2cHeader = std::array<int32_t, 7>;

// A model whose numbers count from 0 in steps of 1/64, in the order of the file, except the tables
// of positions, which are -1.
inline std::string Llama2cModel(const Llama2cHeader& header) {
  const auto [dim, hidden, layers, heads, groups, vocab, positions] = header;
  const int keys = groups * (dim / heads);
  const int layer = 2 * dim + 2 * dim * dim + 2 * keys * dim + 3 * hidden * dim;
  std::string file = BytesOf(header);
  float next = 0;
  const auto count = [&](int numbers) {
    for (int i = 0; i < numbers; ++i, next += 1.0F / 64) file += BytesOf(next);
  };
  count(std::abs(vocab) * dim + layers * layer + dim);
  for (int i = 0; i < positions * (dim / heads / 2) * 2; ++i) file += BytesOf(-1.0F);
  if (vocab < 0) count(-vocab * dim);
  return file;
}

// A tokenizer of bytes and the letters "a" and "b": 261 tokens.
inline std::string Llama2cTokenizer() {
  std::string file = BytesOf(int32_t{6});
  const auto add = [&](const std::string& text) {
    file += BytesOf(0.0F) + BytesOf(static_cast<int32_t>(text.size())) + text;
  };
  for (const char* text : {"<unk>", "\n<s>\n", "\n</s>\n"}) add(text);
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    add(name);
  }
  for (const char* text : {"a", "b"}) add(text);
  return file;
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_LLAMA2C_FILE_H_
