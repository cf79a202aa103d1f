// Fuzz target: replies with calls of functions, in every format.
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "server/core/tools/call_parser.h"
#include "server/core/tools/json_scanner.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/targets.h"

namespace triptych {
namespace {

using server::CallFormat;
using server::ReplyPiece;

server::ReplyPieces Parse(const std::shared_ptr<const server::ReplyTools>& tools, bool streams,
                          std::string_view text, size_t step) {
  server::CallParser parser(tools);
  if (streams) parser.StreamArguments();
  server::ReplyPieces all;
  for (bool last = false; !last;) {
    const std::string_view news = text.substr(0, step);
    text.remove_prefix(news.size());
    last = text.empty();
    server::ReplyPieces pieces;
    parser.Push(news, last, pieces);
    for (const auto& [kind, piece] : pieces) AddPiece(kind, piece, all);
  }
  return all;
}

// A text that the scanner takes as a whole is JSON, and a small object in JSON is taken.
void CheckScanner(std::string_view text) {
  // Neither bytes nor escapes that make no character concern the scanner.
  if (FindInvalidUtf8(text) || text.find("\\u") != text.npos) return;
  const server::JsonScanner::Options bounds;
  server::JsonScanner scanner(bounds);
  auto result = server::JsonScanner::Result::kMore;
  size_t read = 0;
  while (read < text.size() && result == server::JsonScanner::Result::kMore) {
    result = scanner.Push(text[read++]);
  }
  const bool taken = result == server::JsonScanner::Result::kDone && read == text.size();
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (taken) {
    Promise(value.is_object(), "an object that ends is JSON");
  } else if (value.is_object() && text.starts_with('{') && text.ends_with('}')) {
    Promise(text.size() > bounds.max_depth, "a small object in JSON ends");
  }
}

// Whether a text is an object in JSON, or the beginning of one.
bool BeginsObject(std::string_view text) {
  server::JsonScanner scanner(
      {.max_depth = server::CallParser::kMaxGrammarDepth, .keeps_members = false});
  while (!text.empty()) {
    const server::JsonScanner::Result result = scanner.Push(text.front());
    text.remove_prefix(1);
    if (result == server::JsonScanner::Result::kDone) return text.empty();
    if (result == server::JsonScanner::Result::kFailed) return false;
  }
  return true;
}

}  // namespace

// `bytes`: the format, options, the length of a step, and the reply.
void FuzzToolCalls(std::string_view bytes) {
  using Kind = CallFormat::Kind;
  constexpr std::array kKinds = {Kind::kTagged,   Kind::kList,  Kind::kNamed,  Kind::kDeepSeekV3,
                                 Kind::kDeepSeek, Kind::kLlama, Kind::kCommand};
  FuzzInput input(bytes);
  server::ReplyTools tools;
  tools.format.kind = kKinds[input.AtMost(kKinds.size() - 1)];
  const uint8_t options = input.AtMost(15);
  if (tools.format.kind == Kind::kList) {
    const bool has_end = (options & 4) != 0;
    tools.format.marker = has_end ? "<TOOLCALL>" : "functools";
    tools.format.end = has_end ? "</TOOLCALL>" : "";
  }
  tools.by_grammar = (options & 1) != 0;
  tools.parallel = (options & 2) == 0;
  tools.names = {"f", "get_weather"};
  const bool streams = (options & 8) != 0;
  const size_t step = 1 + input.AtMost(30);
  const std::string_view text = input.TakeAll();
  CheckScanner(text);
  const auto shared = std::make_shared<const server::ReplyTools>(tools);
  const server::ReplyPieces whole = Parse(shared, streams, text, text.size() + 1);
  const server::ReplyPieces split = Parse(shared, streams, text, step);
  Promise(whole.size() == split.size(), "pieces are the same for every split");
  size_t calls = 0, passed_on = 0;
  bool is_content = true;
  for (size_t i = 0; i < whole.size(); ++i) {
    const auto& [kind, piece] = whole[i];
    Promise(kind == split[i].kind && piece == split[i].text, "a piece is the same for every split");
    is_content = is_content && kind == ReplyPiece::Kind::kContent;
    if (kind != ReplyPiece::Kind::kArguments) passed_on += piece.size();
    if (kind == ReplyPiece::Kind::kCall) {
      ++calls;
      Promise(tools.names.contains(piece), "a call has the name of a tool");
    } else if (kind == ReplyPiece::Kind::kArguments) {
      Promise(i > 0 && whole[i - 1].kind == ReplyPiece::Kind::kCall, "arguments follow a call");
      const bool is_plain = !FindInvalidUtf8(piece) && piece.find("\\u") == piece.npos;
      const bool is_complete = !tools.by_grammar && !streams;
      Promise(!is_complete || !is_plain || Json::parse(piece, nullptr, false).is_object(),
              "arguments of a complete call are an object");
      Promise(BeginsObject(piece), "arguments are the beginning of an object");
    }
  }
  Promise(passed_on <= text.size(), "content is text of the reply");
  Promise(calls <= size_t{server::CallParser::kMaxCalls}, "calls are few");
  Promise(calls <= 1 || tools.parallel, "without parallel calls there is one");
  if (is_content) {
    Promise(whole.empty() ? text.empty() : whole[0].text == text, "a reply without calls is text");
  }
}

}  // namespace triptych
