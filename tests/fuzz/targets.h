// Fuzz targets. A target takes arbitrary bytes. It returns normally if the tested code keeps its
// contract, throws std::logic_error if it does not, and crashes if the code crashes.
#ifndef TRIPTYCH_TESTS_FUZZ_TARGETS_H_
#define TRIPTYCH_TESTS_FUZZ_TARGETS_H_

#include <string_view>

namespace triptych {

// The torch-free engine.
void FuzzConfig(std::string_view bytes);
void FuzzGguf(std::string_view bytes);
void FuzzGgufShards(std::string_view bytes);
void FuzzGrammar(std::string_view bytes);
void FuzzJson(std::string_view bytes);
void FuzzLlama2c(std::string_view bytes);
void FuzzQuantizedMatrices(std::string_view bytes);
void FuzzSafetensors(std::string_view bytes);
void FuzzSafetensorsIndex(std::string_view bytes);
void FuzzSampler(std::string_view bytes);
void FuzzSentencePiece(std::string_view bytes);
void FuzzStopStrings(std::string_view bytes);
void FuzzTokenizerJson(std::string_view bytes);
void FuzzUtf8(std::string_view bytes);

// Server and client.
void FuzzChatTemplate(std::string_view bytes);
void FuzzClientStatus(std::string_view bytes);
void FuzzHttp(std::string_view bytes);
void FuzzOptionValues(std::string_view bytes);
void FuzzRequests(std::string_view bytes);
void FuzzTokens(std::string_view bytes);
void FuzzToolCalls(std::string_view bytes);

}  // namespace triptych

#endif  // TRIPTYCH_TESTS_FUZZ_TARGETS_H_
