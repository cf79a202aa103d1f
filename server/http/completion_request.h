// Requests to generate, of every API.
#ifndef TRIPTYCH_SERVER_HTTP_COMPLETION_REQUEST_H_
#define TRIPTYCH_SERVER_HTTP_COMPLETION_REQUEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "server/core/chat/reply_parser.h"
#include "server/core/error.h"
#include "server/core/requests/request_params.h"
#include "server/http/fields.h"
#include "server/http/thinking.h"

namespace triptych::server {

// Members of Responses that the response shows as the client sent them.
struct ResponsesMembers {
  OrderedJson text_format = {{"type", "text"}};
  OrderedJson tools = OrderedJson::array();
  OrderedJson tool_choice = "auto";
  bool parallel_tool_calls = true;
};

// Movable; a copy views the original.
struct CompletionRequest {
  GenerateParams params;        // without a prompt; views the body and `token_ids`
  std::vector<Prompt> prompts;  // at least one; view the body and `token_ids`
  std::vector<std::vector<int32_t>> token_ids;
  // Names of these fields in the request.
  std::string prompt_field = "prompt";
  std::string length_field = "max_tokens";
  std::string stop_field = "stop";
  std::string logprobs_field = "logprobs";
  std::string repetition_field = "repetition_penalty";
  bool stream = false;
  bool include_usage = false;  // in a chunk of its own at the end
  bool usage_in_chunks = false;
  ResponsesMembers responses;
  Thinking thinking;  // of chats, as the client asks for it
  ReplyForm reply;    // of chats: how the reply is read

  void AddPrompt(std::vector<int32_t> tokens);
  int32_t choices() const { return params.n.value_or(1); }  // of each prompt
  // The parameters of each prompt.
  std::vector<GenerateParams> All() const;
  // Drops everything that views the body.
  void DropViews();
};

// Reads how tokens are chosen.
void ReadSampling(Fields& fields, CompletionRequest& request);
// Reads the members that OpenAI's and Anthropic's APIs share: the model, sampling, ends, and
// members that are ignored.
void ReadGeneration(Fields& fields, CompletionRequest& request);
// Reads in addition the members that completions and chat completions share: all except prompt,
// messages and log-probabilities. `body` is the request's text.
void ReadCommon(Fields& fields, std::string_view body, CompletionRequest& request);

// Default of a text's parse_special.
struct TextDefaults {
  bool parse_special = true;
};

// Reads how a text becomes tokens: add_special_tokens (vLLM's name), `adds` if absent, and
// parse_special (llama.cpp's name).
TextOptions ReadTextOptions(Fields& fields, bool adds, const TextDefaults& defaults);

// Reads OpenAI's prediction: a text that the output is expected to resemble.
void ReadPrediction(Fields& fields, CompletionRequest& request);

// Reads stop strings: one, or a list of which at most one entry more than the limit is kept.
void ReadStop(Fields& fields, const std::string& name, CompletionRequest& request);

// The core's error with its field renamed to the request's name for it.
Error InCompletionTerms(Error error, const CompletionRequest& request);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_COMPLETION_REQUEST_H_
