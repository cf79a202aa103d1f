// Log lines of a loaded model: what it is, and where its properties come from.
#ifndef TRIPTYCH_SERVER_MODEL_LOG_H_
#define TRIPTYCH_SERVER_MODEL_LOG_H_

#include <string>
#include <vector>

#include "engine/checkpoint/tokenizer/tokenizer_settings.h"
#include "server/core/model_info.h"

namespace triptych::server {

// Where the properties of a served model come from, each a few words.
struct ModelOrigins {
  checkpoint::TokenizerNotes tokenizer;
  std::string chat;  // of the chat template, or why there is none
  std::string context;
  std::string weights;                // of the format
  std::string cache;                  // of the format
  std::vector<std::string> warnings;  // one line each
};

// Logs a line about the model; a line for each of the origins, aligned as a table; and the
// warnings.
void LogModel(const ModelInfo& model, const ModelOrigins& origins);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_MODEL_LOG_H_
