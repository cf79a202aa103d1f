// tokenize DIRECTORY: tokenizes texts with the tokenizer in DIRECTORY. Reads a line of JSON for
// each text, {"text": TEXT, "parse": BOOL}, and answers with a line, {"tokens": [...], "text": the
// decoded tokens, "seconds": encoding time}. Fails if streaming the tokens gives another text.
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/text/text_stream.h"

int main(int argc, char** argv) {
  using namespace triptych;
  if (argc != 2) {
    std::cerr << "usage: tokenize DIRECTORY\n";
    return 2;
  }
  try {
    const std::shared_ptr<const Tokenizer> tokenizer = checkpoint::LoadTokenizer(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
      const nlohmann::json asked = nlohmann::json::parse(line);
      const auto start = std::chrono::steady_clock::now();
      const std::vector<int32_t> tokens =
          tokenizer->Encode(asked.at("text").get_ref<const std::string&>(),
                            asked.at("parse") ? SpecialTokens::kParsed : SpecialTokens::kAsText);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      const std::string text = tokenizer->Decode(tokens);
      TokenStream stream;
      std::string streamed;
      for (const int32_t token : tokens) streamed += stream.Push(*tokenizer, token);
      if (streamed != text) throw std::runtime_error("streamed differently: " + line);
      std::cout << nlohmann::json{{"tokens", tokens},
                                  {"text", ToValidUtf8(text)},
                                  {"seconds", took.count()}}
                << '\n';
    }
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
  }
}
