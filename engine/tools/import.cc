#include "engine/tools/import.h"

#include <cstdint>
#include <cstdio>
#include <string>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/checkpoint/llama2c_model.h"
#include "engine/checkpoint/tokenizer/llama2c_tokenizer.h"
#include "engine/checkpoint/tokenizer/load_tokenizer.h"
#include "engine/decoder/read_weights.h"
#include "engine/decoder/tensor_specs.h"
#include "engine/decoder/weights.h"
#include "engine/decoder/write_weights.h"
#include "engine/tools/card.h"
#include "engine/tools/output_directory.h"

namespace triptych::tools {

void ImportModel(const ImportOptions& options) {
  CheckNewDirectory("--output", options.output);
  const Checkpoint model =
      ReadCheckpoint(checkpoint::OpenLlama2c(options.model), TensorFormat::kFloat32);
  const std::string tokenizer = ReadText(options.tokenizer, checkpoint::kMaxTokenizerBytes);
  const int32_t tokens =
      checkpoint::ParseLlama2cTokenizer(tokenizer, options.tokenizer.string())->vocab_size();
  if (model.config.vocab_size < tokens) {  // it is another model's
    throw LoadError(options.model.string() + ": vocab_size is " +
                    std::to_string(model.config.vocab_size) + "; its tokenizer needs at least " +
                    std::to_string(tokens));
  }

  const Card card{.directory = options.output,
                  .config = model.config,
                  .corpus = nullptr,
                  .held_out_loss = {},
                  .facts = {{"made from", LastName(options.model)}},
                  .command = options.command,
                  .report = "Imported from llama2.c.\n",
                  .source = {}};
  SaveCheckpoint(options.output, model.config, model.weights, ToMarkdown(card),
                 {{checkpoint::kLlama2cTokenizerFile, tokenizer}});
  std::printf("%s: %s, %lld parameters\n", options.output.c_str(), KindText(model.config).c_str(),
              static_cast<long long>(ParameterCount(model.config)));
}

}  // namespace triptych::tools
