// Responses to generations, in the shape of one API.
#ifndef TRIPTYCH_SERVER_HTTP_ANSWER_H_
#define TRIPTYCH_SERVER_HTTP_ANSWER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "server/core/error.h"
#include "server/core/model_info.h"
#include "server/core/requests/call.h"
#include "server/core/requests/stream_buffer.h"

namespace triptych::server {

// Facts of a generation before its first chunk. The model must outlive the answer.
struct AnswerStart {
  const ModelInfo& model;
  const std::string& request_id;
  const std::vector<PromptTokens>& prompts;
};

// Builds the response from generated chunks: whole, or as server-sent events while they come. A
// response uses either Add and Whole, or the functions that return events.
class Answer {
 public:
  Answer() = default;
  virtual ~Answer() = default;
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  virtual void Add(const StreamChunk& chunk) = 0;
  // The body.
  virtual std::string Whole() const = 0;
  // Approximate upper bound of the memory that a chunk takes once it is added.
  virtual size_t BytesOf(const StreamChunk& chunk) const = 0;

  // Complete events: before all chunks, of each chunk, after all, and after an error. Those of a
  // chunk may be none.
  virtual std::string BeginEvents() { return ""; }
  virtual std::string Events(const StreamChunk& chunk) = 0;
  virtual std::string EndEvents() = 0;
  virtual std::string ErrorEvents(const Error& error) = 0;
  // The media type of the events, and bytes between events that clients skip and that keep proxies
  // from closing the stream.
  virtual std::string StreamType() const { return "text/event-stream"; }
  virtual std::string Filler() const { return ":\n\n"; }
  // True if events also keep what BytesOf counts.
  virtual bool keeps_events() const { return false; }
};

// A server-sent event of one line of data. Without a name if `name` is empty.
inline std::string ServerEvent(std::string_view name, std::string_view data) {
  std::string event;
  if (!name.empty()) event.append("event: ").append(name).append("\n");
  return event.append("data: ").append(data).append("\n\n");
}

}  // namespace triptych::server

#endif  // TRIPTYCH_SERVER_HTTP_ANSWER_H_
