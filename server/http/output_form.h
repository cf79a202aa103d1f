// Forms of output that a request asks for.
#ifndef TRIPTYCH_SERVER_HTTP_OUTPUT_FORM_H_
#define TRIPTYCH_SERVER_HTTP_OUTPUT_FORM_H_

#include <optional>
#include <string>
#include <string_view>

#include "server/core/requests/request_params.h"
#include "server/http/fields.h"

namespace triptych::server {

// Each reads the member, and records an error if the request has another form already. `object` is
// the text of the JSON object whose members `fields` reads; the form views it, since schemas
// keep the order of their members.

// OpenAI's {"type": "text" | "json_object" | "json_schema", ...}. With `nested`, the schema is in a
// member "json_schema", as in chats; else in the object itself, as in Responses.
void ReadResponseFormat(Fields& fields, const std::string& name, std::string_view object,
                        bool nested, std::optional<OutputForm>& form);
// Ollama's "json" or schema.
void ReadOllamaFormat(Fields& fields, std::string_view object, std::optional<OutputForm>& form);
// All forms of completions and chats: OpenAI's response_format, vLLM's structured_outputs and
// guided_..., and llama.cpp's grammar and json_schema.
void ReadForms(Fields& fields, std::string_view object, std::optional<OutputForm>& form);

// True if ReadForms finds a form in the body of a request.
bool AsksForForm(const std::string& body);

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_OUTPUT_FORM_H_
