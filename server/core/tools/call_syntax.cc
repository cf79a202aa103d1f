#include "server/core/tools/call_syntax.h"

#include "server/core/tools/markers.h"

namespace triptych::server {
namespace {

using EdgeKind = CallEdge::Kind;

CallEdge LiteralEdge(std::string_view text, int next) {
  return {.kind = EdgeKind::kLiteral, .literal = std::string(text), .next = next};
}
CallEdge PartEdge(EdgeKind kind, int next) { return {.kind = kind, .literal = {}, .next = next}; }
CallEdge XmlEdge(std::string_view end, int next) {
  return {.kind = EdgeKind::kXml, .literal = std::string(end), .next = next};
}
CallEdge EndingEdge(CallEdge edge) {
  edge.ends_calls = true;
  return edge;
}

CallSyntax TaggedSyntax() {
  CallSyntax syntax;
  syntax.markers = {{std::string(kTaggedCall), 0}};
  syntax.states = {
      {PartEdge(EdgeKind::kObject, 1), LiteralEdge(kXmlCall, 2), PartEdge(EdgeKind::kName, 5)},
      {EndingEdge(LiteralEdge(kTaggedCallEnd, CallSyntax::kText))},
      {PartEdge(EdgeKind::kName, 3)},
      {LiteralEdge(">", 4)},
      {XmlEdge(kXmlCallEnd, 1)},
      {EndingEdge(XmlEdge(kTaggedCallEnd, CallSyntax::kText))},
  };
  return syntax;
}

// A list of objects or a name with arguments, which some models write for either marker. The list's
// `end` may be missing.
CallSyntax ListSyntax(std::string_view marker, std::string_view end) {
  CallSyntax syntax;
  syntax.markers = {{std::string(marker), 0}};
  syntax.states = {
      {LiteralEdge("[", 1), PartEdge(EdgeKind::kName, 3)},
      {PartEdge(EdgeKind::kObject, 2)},
      {LiteralEdge(",", 1), EndingEdge(LiteralEdge("]", end.empty() ? CallSyntax::kText : 7))},
      {EndingEdge(PartEdge(EdgeKind::kArguments, CallSyntax::kText)),
       LiteralEdge(kMistralArguments, 4), LiteralEdge(kMistralCallId, 5)},
      {EndingEdge(PartEdge(EdgeKind::kArguments, CallSyntax::kText))},
      {PartEdge(EdgeKind::kId, 6)},
      {LiteralEdge(kMistralArguments, 4)},
  };
  if (!end.empty()) syntax.states.push_back({LiteralEdge(end, CallSyntax::kText)});
  return syntax;
}

CallSyntax DeepSeekSyntax() {
  CallSyntax syntax;
  syntax.markers = {{std::string(kDeepSeekCalls), 0}};
  syntax.states = {
      {LiteralEdge(kDeepSeekCall, 1)},
      {PartEdge(EdgeKind::kName, 2)},  // or the word "function"
      {LiteralEdge(kDeepSeekSeparator, 3)},
      {PartEdge(EdgeKind::kArguments, 7), PartEdge(EdgeKind::kName, 4)},
      {LiteralEdge("```json", 5)},
      {PartEdge(EdgeKind::kArguments, 6)},
      {LiteralEdge("```", 7)},
      {EndingEdge(LiteralEdge(kDeepSeekCallEnd, 8))},
      {LiteralEdge(kDeepSeekCall, 1), LiteralEdge(kDeepSeekCallsEnd, CallSyntax::kText)},
  };
  return syntax;
}

CallSyntax LlamaSyntax() {
  CallSyntax syntax;
  syntax.at_start = true;
  syntax.needs_arguments = true;
  syntax.markers = {{std::string(kPythonTag), 1}, {std::string(kPythonStart), 1}};
  const std::vector<CallEdge> begin = {EndingEdge(PartEdge(EdgeKind::kObject, 2)),
                                       LiteralEdge("[", 3)};
  syntax.states = {
      begin,
      begin,
      {EndingEdge(PartEdge(EdgeKind::kObject, 2)), LiteralEdge(";", 1),
       LiteralEdge(kPythonEnd, CallSyntax::kText)},
      {PartEdge(EdgeKind::kObject, 4), PartEdge(EdgeKind::kName, 5)},
      {LiteralEdge(",", 3), EndingEdge(LiteralEdge("]", 6))},
      {PartEdge(EdgeKind::kPython, 4)},
      {LiteralEdge(kPythonEnd, CallSyntax::kText)},
  };
  syntax.states[0].push_back(LiteralEdge(kPythonTag, 1));
  syntax.states[0].push_back(LiteralEdge(kPythonStart, 1));
  return syntax;
}

}  // namespace

CallSyntax SyntaxOf(const CallFormat& format) {
  switch (format.kind) {
    case CallFormat::Kind::kTagged:
      return TaggedSyntax();
    case CallFormat::Kind::kList:
      return ListSyntax(format.marker, format.end);
    case CallFormat::Kind::kCommand:
      return ListSyntax(kCommandCalls, kCommandCallsEnd);
    case CallFormat::Kind::kNamed:
      return ListSyntax(kMistralCalls, "");
    case CallFormat::Kind::kDeepSeekV3:
    case CallFormat::Kind::kDeepSeek:
      return DeepSeekSyntax();
    case CallFormat::Kind::kLlama:
      break;
  }
  return LlamaSyntax();
}

}  // namespace triptych::server
