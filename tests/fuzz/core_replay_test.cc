#include "tests/fuzz/replay.h"
#include "tests/fuzz/targets.h"

namespace triptych::core_replay_test {
namespace {

TEST(FuzzTest, ChatTemplate) { Replay("chat_template", FuzzChatTemplate); }
TEST(FuzzTest, Config) { Replay("config", FuzzConfig); }
TEST(FuzzTest, Gguf) { Replay("gguf", FuzzGguf); }
TEST(FuzzTest, GgufShards) { Replay("gguf_shards", FuzzGgufShards); }
TEST(FuzzTest, Grammar) { Replay("grammar", FuzzGrammar); }
TEST(FuzzTest, Json) { Replay("json", FuzzJson); }
TEST(FuzzTest, Llama2c) { Replay("llama2c", FuzzLlama2c); }
TEST(FuzzTest, QuantizedMatrices) { Replay("quantized_matrices", FuzzQuantizedMatrices); }
TEST(FuzzTest, Safetensors) { Replay("safetensors", FuzzSafetensors); }
TEST(FuzzTest, SafetensorsIndex) { Replay("safetensors_index", FuzzSafetensorsIndex); }
TEST(FuzzTest, Sampler) { Replay("sampler", FuzzSampler); }
TEST(FuzzTest, SentencePiece) { Replay("sentencepiece", FuzzSentencePiece); }
TEST(FuzzTest, StopStrings) { Replay("stop_strings", FuzzStopStrings); }
TEST(FuzzTest, TokenizerJson) { Replay("tokenizer_json", FuzzTokenizerJson); }
TEST(FuzzTest, Utf8) { Replay("utf8", FuzzUtf8); }

}  // namespace
}  // namespace triptych::core_replay_test
