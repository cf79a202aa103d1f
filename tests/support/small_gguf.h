// Small complete model in GGUF.
#ifndef TRIPTYCH_TESTS_SUPPORT_SMALL_GGUF_H_
#define TRIPTYCH_TESTS_SUPPORT_SMALL_GGUF_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/gguf_file.h"

namespace triptych {

inline constexpr int32_t kSmallGgufVocabulary = 3 + 256 + 4;

// A Llama model of two layers in float32, with a SentencePiece tokenizer of bytes, "▁", "a", "b"
// and "ab", and a chat template. Weights are random, scaled, and equal in every call.
inline std::string SmallGguf(const std::string& chat_template = "{{ messages }}") {
  constexpr uint32_t kLayers = 2, kHeads = 4, kGroups = 2, kHeadDim = 4, kWidth = 16, kInner = 24;
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    tokens.push_back(name);
    types.push_back(6);
  }
  std::vector<float> scores(tokens.size(), 0.0F);
  for (const auto& [text, score] :
       {std::pair{"▁", -3.0F}, {"a", -3.0F}, {"b", -3.0F}, {"ab", -1.0F}}) {
    tokens.push_back(text);
    types.push_back(1);
    scores.push_back(score);
  }
  GgufBuilder file;
  file.Add("general.architecture", "llama")
      .Add("llama.block_count", kLayers)
      .Add("llama.context_length", uint32_t{64})
      .Add("llama.embedding_length", kWidth)
      .Add("llama.feed_forward_length", kInner)
      .Add("llama.attention.head_count", kHeads)
      .Add("llama.attention.head_count_kv", kGroups)
      .Add("llama.attention.layer_norm_rms_epsilon", 1e-5F)
      .Add("tokenizer.ggml.model", "llama")
      .Add("tokenizer.ggml.tokens", tokens)
      .Add("tokenizer.ggml.scores", scores)
      .Add("tokenizer.ggml.token_type", types)
      .Add("tokenizer.ggml.bos_token_id", uint32_t{1})
      .Add("tokenizer.ggml.eos_token_id", uint32_t{2})
      .Add("tokenizer.chat_template", chat_template);
  constexpr uint32_t kF32 = 0;
  std::mt19937 generator(1);
  const auto add_matrix = [&](const std::string& name, uint64_t outputs, uint64_t inputs) {
    std::string data;
    for (uint64_t i = 0; i < outputs * inputs; ++i) {
      const float unit = static_cast<float>(generator() % 2001) / 1000 - 1;  // -1 to 1
      data += BytesOf(unit * std::sqrt(3.0F / static_cast<float>(inputs)));
    }
    file.AddTensor(name + ".weight", kF32, {inputs, outputs}, data);
  };
  const auto add_norm = [&](const std::string& name) {
    file.AddTensor(name + ".weight", kF32, {kWidth}, BytesOf(std::vector<float>(kWidth, 1.0F)));
  };
  add_matrix("token_embd", kSmallGgufVocabulary, kWidth);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    add_norm(block + "attn_norm");
    add_matrix(block + "attn_q", kHeads * kHeadDim, kWidth);
    add_matrix(block + "attn_k", kGroups * kHeadDim, kWidth);
    add_matrix(block + "attn_v", kGroups * kHeadDim, kWidth);
    add_matrix(block + "attn_output", kWidth, kHeads * kHeadDim);
    add_norm(block + "ffn_norm");
    add_matrix(block + "ffn_gate", kInner, kWidth);
    add_matrix(block + "ffn_up", kInner, kWidth);
    add_matrix(block + "ffn_down", kWidth, kInner);
  }
  add_norm("output_norm");
  return file.Bytes();
}

// SmallGguf() whose chat template cannot be written, and whose last weight is not finite, which is
// detected when all are read.
inline std::string UnwritableGguf() {
  std::string file = SmallGguf(std::string((size_t{1} << 20) + 1, 'x'));
  file.replace(file.size() - sizeof(float), sizeof(float), sizeof(float), '\xff');
  return file;
}

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_SUPPORT_SMALL_GGUF_H_
