// Tests of the separation of calls from a reply's text, in every format.
#include "server/core/tools/call_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/core/tools/markers.h"

namespace triptych::server::call_parser_test {
namespace {

using Kind = CallFormat::Kind;

ReplyTools Tools(const CallFormat& format) {
  ReplyTools tools;
  tools.format = format;
  tools.names = {"f", "get_weather", "a.b-c"};
  return tools;
}
ReplyTools Tools(Kind kind, const std::string& marker = {}) {
  return Tools(CallFormat{.kind = kind, .marker = marker});
}
ReplyTools ByGrammar(ReplyTools tools) {
  tools.by_grammar = true;
  return tools;
}

// The reply's parts: text as it is, calls as {NAME ARGUMENTS}.
std::string Shown(const ReplyPieces& pieces) {
  std::string shown;
  bool is_open = false;
  for (const auto& [kind, text] : pieces) {
    if (is_open && kind != ReplyPiece::Kind::kArguments) {
      shown += "}";
      is_open = false;
    }
    if (kind == ReplyPiece::Kind::kCall) {
      shown += "{" + text + " ";
      is_open = true;
    } else {
      shown += text;
    }
  }
  return is_open ? shown + "}" : shown;
}

std::string ParseInSteps(const ReplyTools& tools, const std::string& text, size_t step,
                         bool streams = false) {
  CallParser parser(std::make_shared<const ReplyTools>(tools));
  if (streams) parser.StreamArguments();
  ReplyPieces all;
  for (size_t i = 0; i <= text.size(); i += step) {
    ReplyPieces pieces;
    parser.Push(text.substr(i, step), i + step > text.size(), pieces);
    for (const auto& [kind, piece] : pieces) AddPiece(kind, piece, all);
  }
  return Shown(all);
}

// The same for every step of the text.
std::string Parse(const ReplyTools& tools, const std::string& text, bool streams = false) {
  const std::string whole = ParseInSteps(tools, text, text.size() + 1, streams);
  for (size_t step = 1; step <= text.size(); ++step) {
    EXPECT_EQ(ParseInSteps(tools, text, step, streams), whole) << "in steps of " << step;
  }
  return whole;
}
std::string ParseStream(const ReplyTools& tools, const std::string& text) {
  return Parse(tools, text, /*streams=*/true);
}

TEST(CallParserTest, HermesCallsAreTagged) {
  const ReplyTools tools = Tools(Kind::kTagged);
  for (const ReplyTools& each : {tools, ByGrammar(tools)}) {
    EXPECT_EQ(
        Parse(each,
              "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n</tool_call>"),
        "{f {\"a\": [1, \"}\"]}}");
    EXPECT_EQ(Parse(each,
                    "Let me see. \n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
                    "<tool_call>{\"name\":\"a.b-c\",\"arguments\":{\"x\":1}}</tool_call>\n"),
              "Let me see.{f {}}{a.b-c {\"x\":1}}");
    EXPECT_EQ(
        Parse(each, "A <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n\nB <tool"),
        "A{f {}}\n\nB <tool");
  }
}

TEST(CallParserTest, ACallsJsonMayHaveOtherShapes) {
  const ReplyTools tools = Tools(Kind::kTagged);
  const auto call = [&](const std::string& json) {
    return Parse(tools, "<tool_call>" + json + "</tool_call>");
  };
  EXPECT_EQ(call(R"({"arguments": {"a": 1}, "name": "f"})"), R"({f {"a": 1}})");
  EXPECT_EQ(call(R"({"name": "f", "parameters": {}, "id": 3})"), "{f {}}");
  EXPECT_EQ(call(R"({"name": "f"})"), "{f {}}");
  EXPECT_EQ(call(R"({"name": "f", "arguments": "{\"a\": \"b\"}"})"), R"({f {"a": "b"}})");
  EXPECT_EQ(call("{\"name\": \"f\", \"arguments\": {\"é\": \"\\u00e9\\n\", \"n\": -1.5e+3}}"),
            "{f {\"é\": \"\\u00e9\\n\", \"n\": -1.5e+3}}");
}

TEST(CallParserTest, ArgumentsMayBeElements) {
  ReplyTools tools = Tools(Kind::kTagged);
  tools.texts["f"] = {"s"};
  const auto call = [](const std::string& arguments) {
    return "<tool_call>\n<function=f>\n" + arguments + "</function>\n</tool_call>";
  };
  for (const ReplyTools& each : {tools, ByGrammar(tools)}) {
    EXPECT_EQ(Parse(each, "So.\n" + call("<parameter=n>\n12\n</parameter>\n"
                                         "<parameter=s>\n12\n</parameter>\n"
                                         "<parameter=t>\n<b>\n\n</parameter>\n"
                                         "<parameter=o>{\"z\": [1], \"a\": null}</parameter>\n")),
              R"(So.{f {"n":12,"s":"12","t":"<b>\n","o":{"z":[1],"a":null}}})");
    EXPECT_EQ(Parse(each, call("") + call("<parameter=a></parameter>")), R"({f {}}{f {"a":""}})");
  }
  const std::string unknown = "<tool_call><function=g></function></tool_call>";
  for (const std::string& text :
       {unknown, call("<parameter=a>1</parameter><parameter=a>1</parameter>"), call("x"),
        call("<parameter=a>1"), call("<parameter=>1</parameter>"),
        call("<parameter=a>1</parameter>").substr(0, 60)}) {
    EXPECT_EQ(Parse(tools, text), text);
  }
  const std::string deep = call("<parameter=a>" + std::string(100'000, '[') + "</parameter>");
  EXPECT_EQ(ParseInSteps(tools, deep, 1000), "{f {\"a\":\"" + std::string(100'000, '[') + "\"}}");
}

TEST(CallParserTest, ArgumentsMayBePairsOfElements) {
  ReplyTools tools = Tools(Kind::kTagged);
  tools.texts["f"] = {"s"};
  const std::string call =
      "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>12</arg_value>\n<arg_key>n</arg_key>\n"
      "<arg_value>12</arg_value>\n</tool_call>";
  for (const ReplyTools& each : {tools, ByGrammar(tools)}) {
    EXPECT_EQ(Parse(each, "So. " + call + "\n<tool_call>get_weather</tool_call>"),
              R"(So.{f {"s":"12","n":12}}{get_weather {}})");
    EXPECT_EQ(
        Parse(each, "<tool_call>f<arg_key>a</arg_key><arg_value>[1,\n{}]</arg_value></tool_call>"),
        R"({f {"a":[1,{}]}})");
  }
  for (const std::string& text :
       {std::string("<tool_call>g</tool_call>"), std::string("<tool_call>f x</tool_call>"),
        std::string("<tool_call>f<arg_key>a</arg_key></tool_call>"),
        std::string("<tool_call>f<arg_key>a</arg_key><arg_value>1</tool_call>"),
        std::string("<tool_call>f<arg_key></arg_key><arg_value>1</arg_value></tool_call>"),
        call.substr(0, call.size() - 1)}) {
    EXPECT_EQ(Parse(tools, text), text);
  }
}

TEST(CallParserTest, ListsMayHaveAnEnd) {
  for (const auto& [format, name, arguments] :
       {std::tuple(CallFormat{Kind::kList, "<|tool_call|>", "<|/tool_call|>"}, "name", "arguments"),
        std::tuple(CallFormat{Kind::kList, "<TOOLCALL>", "</TOOLCALL>"}, "name", "arguments"),
        std::tuple(CallFormat{Kind::kCommand}, "tool_name", "parameters")}) {
    const CallFrame frame = FrameOf(format, "");
    const std::string begin = frame.begin + "\n  ", end = "\n" + frame.end;
    const auto call = [&name = name, &arguments = arguments](const std::string& function) {
      return R"({"id": "0", ")" + std::string(name) + "\": \"" + function + "\", \"" + arguments +
             R"(": {"a": 1}})";
    };
    const ReplyTools tools = Tools(format);
    for (const ReplyTools& each : {tools, ByGrammar(tools)}) {
      EXPECT_EQ(Parse(each, "Well: " + begin + call("f") + ", " + call("get_weather") + end),
                R"(Well:{f {"a": 1}}{get_weather {"a": 1}})");
      EXPECT_EQ(Parse(each, begin + call("f") + "] So."), R"({f {"a": 1}} So.)") << "no end";
    }
    const std::string broken = begin + call("f") + ", " + call("g") + end;
    EXPECT_EQ(Parse(tools, broken), broken);
  }
}

TEST(CallParserTest, WhatIsNoCallStaysText) {
  const ReplyTools tools = Tools(Kind::kTagged);
  const std::string call = R"({"name": "f", "arguments": {}})";
  for (const std::string& text :
       {std::string("<tool_call>"),
        "<tool_call>" + call,
        "<tool_call>" + call + "</tool_cal",
        "<tool_call>" + call + "</tool_calls>",
        "<tool_call>" + call + " x</tool_call>",
        std::string("<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>"),
        std::string("<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"),
        std::string("<tool_call>{\"name\": \"f\", \"arguments\": \"{\"}</tool_call>"),
        std::string("<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>"),
        std::string("<tool_call>{\"name\": \"f\", \"name\": \"f\"}</tool_call>"),
        std::string("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 01}}</tool_call>"),
        std::string("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\n\"}}</tool_call>"),
        std::string("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1e999}}</tool_call>"),
        std::string(
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\ud800\"}}</tool_call>"),
        std::string(
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, \"a\": 2}}</tool_call>"),
        std::string("<tool_call>{'name': 'f'}</tool_call>"),
        std::string("</tool_call>"),
        std::string("<<tool_cal <tool_call"),
        std::string("  \n "),
        std::string()}) {
    EXPECT_EQ(Parse(tools, text), text);
  }
}

TEST(CallParserTest, ACallAfterABrokenOneIsFound) {
  EXPECT_EQ(Parse(Tools(Kind::kTagged),
                  "<tool_call>{\"name\": \"f\", \"arguments\": {</tool_call>\n"
                  "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"),
            "<tool_call>{\"name\": \"f\", \"arguments\": {</tool_call>{f {}}");
  EXPECT_EQ(Parse(Tools(Kind::kTagged),
                  "<tool_call><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"),
            "<tool_call>{f {}}");
}

TEST(CallParserTest, ListsBehindAMarker) {
  for (const std::string marker : {"[TOOL_CALLS]", "<|tool_call|>", "functools"}) {
    const ReplyTools tools = Tools(Kind::kList, marker);
    for (const ReplyTools& each : {tools, ByGrammar(tools)}) {
      EXPECT_EQ(Parse(each, "Well: " + marker +
                                " [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, "
                                "{\"name\": \"get_weather\", \"arguments\": {}, \"id\": \"x\"}]"),
                "Well:{f {\"a\": 1}}{get_weather {}}");
    }
    // All of a list, or nothing.
    const std::string broken = marker + R"([{"name": "f", "arguments": {}}, {"name": "g"}])";
    EXPECT_EQ(Parse(tools, broken), broken);
    EXPECT_EQ(Parse(tools, marker + "[]"), marker + "[]");
    const std::string cut = marker + R"([{"name": "f", "arguments": {}})";
    EXPECT_EQ(Parse(tools, cut), cut);
    EXPECT_EQ(Parse(ByGrammar(tools), cut), "{f {}}");
  }
}

TEST(CallParserTest, MistralsNamesWithArguments) {
  const ReplyTools tools = Tools(Kind::kNamed);
  for (const ReplyTools& each : {tools, ByGrammar(tools)}) {
    EXPECT_EQ(Parse(each, "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]a.b-c[CALL_ID]x9[ARGS]{}"),
              "{f {\"a\": 1}}{a.b-c {}}");
    EXPECT_EQ(Parse(each, "[TOOL_CALLS]f{\"a\": 1}"), "{f {\"a\": 1}}");
    EXPECT_EQ(Parse(each, "[TOOL_CALLS]g[ARGS]{}"), "[TOOL_CALLS]g[ARGS]{}");
  }
}

std::string DeepSeek(const std::string& calls) {
  return std::string(kDeepSeekCalls) + calls + std::string(kDeepSeekCallsEnd);
}
std::string DeepSeekCall(const std::string& name, const std::string& arguments) {
  return std::string(kDeepSeekCall) + name + std::string(kDeepSeekSeparator) + arguments +
         std::string(kDeepSeekCallEnd);
}

TEST(CallParserTest, DeepSeeksMarkers) {
  const ReplyTools tools = Tools(Kind::kDeepSeek);
  for (const ReplyTools& each : {tools, ByGrammar(tools)}) {
    EXPECT_EQ(Parse(each, "So. " + DeepSeek(DeepSeekCall("f", "{\"a\": 1}") +
                                            DeepSeekCall("get_weather", "{}"))),
              "So.{f {\"a\": 1}}{get_weather {}}");
    EXPECT_EQ(Parse(each, DeepSeek(DeepSeekCall("function", "f\n```json\n{\"a\": 1}\n```") + "\n" +
                                   DeepSeekCall("function", "a.b-c\n```json\n{}\n```"))),
              "{f {\"a\": 1}}{a.b-c {}}");
    // Without the end of all.
    EXPECT_EQ(Parse(each, std::string(kDeepSeekCalls) + DeepSeekCall("f", "{}") + "\n"), "{f {}}");
  }
  const std::string unknown = DeepSeek(DeepSeekCall("function", "g\n```json\n{}\n```"));
  EXPECT_EQ(Parse(tools, unknown), unknown);
  // Characters that share bytes with the markers.
  EXPECT_EQ(Parse(tools, "<！<｜tool▂"), "<！<｜tool▂");
}

TEST(CallParserTest, LlamasJsonBeginsTheReply) {
  const ReplyTools tools = Tools(Kind::kLlama);
  for (const ReplyTools& each : {tools, ByGrammar(tools)}) {
    EXPECT_EQ(Parse(each, R"({"name": "f", "parameters": {"a": 1}})"), R"({f {"a": 1}})");
    EXPECT_EQ(Parse(each,
                    "\n<|python_tag|>{\"type\": \"function\", \"name\": \"f\", "
                    "\"parameters\": {}}"),
              "{f {}}");
    EXPECT_EQ(Parse(each, R"({"name": "f", "parameters": {}}; {"name": "f", "arguments": {}})"),
              "{f {}}{f {}}");
    EXPECT_EQ(Parse(each, R"({"name": "f", "parameters": {}} is it.)"), "{f {}} is it.");
    EXPECT_EQ(Parse(each, R"([{"name": "f", "arguments": {}}])"), "{f {}}");
  }
  const std::string later = R"(Say <|python_tag|>{"name": "f", "parameters": {}})";
  EXPECT_EQ(Parse(tools, later), "Say{f {}}");
  EXPECT_EQ(Parse(ByGrammar(tools), later), later) << "a call that the grammar does not know";
  for (const std::string text :
       {R"({"name": "f"})", R"({"name": "Bob", "parameters": {}})", R"({"a": 1})", "{", "[1, 2]",
        R"(It is {"name": "f", "parameters": {}})", "[f]", "Hello"}) {
    EXPECT_EQ(Parse(tools, text), text);
  }
}

TEST(CallParserTest, PythonsCalls) {
  const ReplyTools tools = Tools(Kind::kLlama);
  EXPECT_EQ(Parse(tools, R"py([f(a='x, )"', b="it's", c=[1, -2.5, True], d={'k': None}), f()])py"),
            R"js({f {"a":"x, )\"","b":"it's","c":[1,-2.5,true],"d":{"k":null}}}{f {}})js");
  EXPECT_EQ(Parse(tools, "<|python_start|>[f(a = (1, 'é\\n'),)]<|python_end|>"),
            R"js({f {"a":[1,"é\n"]}})js");
  for (const std::string text :
       {"[f(a=b)]", "[f(1)]", "[g(a=1)]", "[f(a=1, a=2)]", "[f(a=1)", "[f(a='x\n')]", "[f(a=1))]",
        "[f(a=[1})]", "[f(a=1) f(a=1)]", "[f(a=1+1)]"}) {
    EXPECT_EQ(Parse(tools, text), text);
  }
}

TEST(CallParserTest, WithoutParallelCallsTheFirstCounts) {
  ReplyTools tools = Tools(Kind::kTagged);
  tools.parallel = false;
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(Parse(tools, call + "\n" + call), "{f {}}");
}

TEST(CallParserTest, ByAGrammarAndInAStreamArgumentsArePassedOnAsTheyCome) {
  for (const auto& [tools, begin] : std::vector<std::pair<ReplyTools, std::string>>{
           {Tools(Kind::kTagged), "<tool_call>\n{\"name\": \"f\", \"arguments\": "},
           {Tools(Kind::kList, "[TOOL_CALLS]"), "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": "},
           {Tools(Kind::kNamed), "[TOOL_CALLS]f[ARGS]"},
           {Tools(Kind::kLlama), "{\"name\": \"f\", \"parameters\": "},
           {Tools(Kind::kDeepSeek), std::string(kDeepSeekCalls) + std::string(kDeepSeekCall) + "f" +
                                        std::string(kDeepSeekSeparator)}}) {
    for (const bool streams : {false, true}) {
      const ReplyTools& each = streams ? tools : ByGrammar(tools);
      CallParser parser(std::make_shared<const ReplyTools>(each));
      if (streams) parser.StreamArguments();
      ReplyPieces pieces;
      parser.Push(begin, false, pieces);
      parser.Push("{\"a\": 1", false, pieces);
      EXPECT_EQ(Shown(pieces), "{f {\"a\": 1}");
      parser.Push(", \"b\"", true, pieces);
      EXPECT_EQ(Shown(pieces), "{f {\"a\": 1, \"b\"}");
    }
  }
}

TEST(CallParserTest, AStreamHasTheCompleteCallsOfAWholeReply) {
  const std::string call = R"({"name": "f", "arguments": {"a": [{"}": 1}, "\n\\"]}})";
  for (const auto& [kind, text] : std::vector<std::pair<Kind, std::string>>{
           {Kind::kTagged, "So.\n<tool_call>" + call + "\n</tool_call>\n<tool_call>" + call +
                               "</tool_call> What?"},
           {Kind::kTagged, R"(<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>)"},
           {Kind::kTagged, R"(<tool_call>{"name": "f"}</tool_call>)"},
           {Kind::kTagged, R"(<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>)"},
           {Kind::kTagged,
            "<tool_call><function=f><parameter=a>1</parameter></function></tool_call>"},
           {Kind::kTagged, "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"},
           {Kind::kTagged, R"(<tool_call>{"name": "g", "arguments": {}}</tool_call>)"},
           {Kind::kCommand, "<|START_ACTION|>[" + call + ", " + call + "]<|END_ACTION|>"},
           {Kind::kNamed, "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]a.b-c[CALL_ID]x9[ARGS]{}"},
           {Kind::kDeepSeek, DeepSeek(DeepSeekCall("f", "{\"a\": 1}") +
                                      DeepSeekCall("function", "f\n```json\n{}\n```"))},
           {Kind::kLlama, call + "; " + call + " is it."},
           {Kind::kLlama, "[f(a='x'), f()]"},
           {Kind::kLlama, "[f(a=b)]"}}) {
    EXPECT_EQ(ParseStream(Tools(kind), text), Parse(Tools(kind), text));
  }
}

TEST(CallParserTest, ACallThatHasBegunInAStreamStaysOne) {
  const ReplyTools tools = Tools(Kind::kTagged);
  const std::string begin = R"(<tool_call>{"name": "f", "arguments": )", end = "}</tool_call>";
  EXPECT_EQ(ParseStream(tools, begin + R"({"a": "b)"), R"({f {"a": "b})");
  EXPECT_EQ(ParseStream(tools, begin + R"({"a": 01})" + end), R"({f {"a": 0}1}}</tool_call>)");
  EXPECT_EQ(ParseStream(tools, begin + "{}" + "} x</tool_call>"), "{f {}} x</tool_call>");
  EXPECT_EQ(ParseStream(tools, begin + "{" + end + "\n" + begin + "{}" + end),
            "{f {}}</tool_call>{f {}}");
  const std::string list = R"([TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g"}])";
  EXPECT_EQ(ParseStream(Tools(Kind::kList, "[TOOL_CALLS]"), list), R"({f {}}, {"name": "g"}])");
  const std::string unknown =
      R"([TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "unknown", "arg)";
  EXPECT_EQ(ParseStream(Tools(Kind::kList, "[TOOL_CALLS]"), unknown),
            R"({f {}}, {"name": "unknown", "arg)");
  const std::string deep = "{\"a\": " + std::string(100, '[');
  EXPECT_EQ(ParseStream(tools, begin + deep),
            "{f " + deep.substr(0, 6 + 62) + "}" + std::string(100 - 62, '['));
  const std::string large = "{\"a\": \"" + std::string(CallParser::kMaxCallBytes, 'a');
  const std::string shown = ParseInSteps(tools, begin + large, 1000, /*streams=*/true);
  EXPECT_EQ(shown.size(), 4 + large.size());
  EXPECT_GT(shown.rfind('}'), shown.size() - 100) << "the rest is content";
}

TEST(CallParserTest, ArgumentsMayBeManyAndByAGrammarDeep) {
  std::string many = "{\"a\": 1";
  for (int i = 0; i < 200; ++i) many += ", \"a" + std::to_string(i) + "\": {}";
  many += "}";
  const std::string deep = "{\"a\": " + std::string(200, '[') + std::string(200, ']') + "}";
  for (const Kind kind : {Kind::kTagged, Kind::kNamed, Kind::kDeepSeek, Kind::kLlama}) {
    const ReplyTools tools = Tools(kind);
    const auto text = [&](const std::string& arguments) {
      return CallsText(tools.format, {{.id = "", .name = "f", .arguments = arguments}});
    };
    EXPECT_EQ(ParseInSteps(tools, text(many), 7), "{f " + many + "}");
    EXPECT_EQ(ParseInSteps(tools, text(deep), 7), text(deep));
    for (const std::string& arguments : {many, deep}) {
      EXPECT_EQ(ParseInSteps(ByGrammar(tools), text(arguments), 7), "{f " + arguments + "}");
    }
  }
}

TEST(CallParserTest, ASecondMemberWithArgumentsIsNotPassedOn) {
  EXPECT_EQ(Parse(ByGrammar(Tools(Kind::kTagged)),
                  "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}, "
                  "\"parameters\": {\"b\": 2}}</tool_call>"),
            "{f {\"a\": 1}}");
}

// Hostile replies. Each takes time linear in its megabytes: quadratic time would take hours.
TEST(CallParserTest, HostileTextsAreLinear) {
  constexpr size_t kBytes = size_t{1} << 19;
  const auto repeated = [](const std::string& text) {
    std::string all;
    while (all.size() < kBytes) all += text;
    return all;
  };
  const std::vector<ReplyTools> formats = {Tools(Kind::kTagged), Tools(Kind::kList, "[TOOL_CALLS]"),
                                           Tools(Kind::kNamed), Tools(Kind::kDeepSeek),
                                           Tools(Kind::kLlama)};
  for (const std::string& text :
       {repeated("<tool_call>"),
        repeated("<tool_call>{"),
        repeated("<tool_call>{\"name\":\""),
        repeated("<tool_call><function=f>"),
        "<tool_call><function=f>" + repeated("<parameter=a>"),
        "<tool_call><function=f>" + repeated("<parameter=a></parameter>") + "</function>",
        repeated("<tool_call>f"),
        "<tool_call>f" + repeated("<arg_key>a</arg_key>"),
        "<tool_call>f" + repeated("<arg_key>a</arg_key><arg_value></arg_value>") + "</tool_call>",
        repeated("[TOOL_CALLS]["),
        repeated("[TOOL_CALLS]f[ARGS]"),
        repeated(" "),
        repeated("<"),
        "<tool_call>" + repeated("{\"a\":"),
        "<tool_call>{\"a\": " + repeated("["),
        "<tool_call>{\"a\": \"" + repeated("a"),
        "<tool_call>" + repeated(" "),
        "[TOOL_CALLS]" + repeated("f"),
        "[f(" + repeated("a=["),
        "[f(a='" + repeated("\\"),
        repeated(DeepSeekCall("f", "{}")),
        repeated("{\"name\": \"f\"")}) {
    for (const ReplyTools& tools : formats) {
      for (const auto& [each, streams] :
           {std::pair(tools, false), std::pair(tools, true), std::pair(ByGrammar(tools), false)}) {
        CallParser parser(std::make_shared<const ReplyTools>(each));
        if (streams) parser.StreamArguments();
        ReplyPieces pieces;
        parser.Push(text, true, pieces);
        size_t bytes = 0;
        for (const ReplyPiece& piece : pieces) bytes += piece.text.size();
        EXPECT_LE(bytes, text.size());
        EXPECT_LE(pieces.size(), 2U * CallParser::kMaxCalls + 1);
      }
    }
  }
}

TEST(CallParserTest, TheNumberAndSizeOfCallsAreBounded) {
  const ReplyTools tools = Tools(Kind::kTagged);
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  std::string text;
  for (int i = 0; i < CallParser::kMaxCalls; ++i) text += call;
  EXPECT_EQ(ParseInSteps(tools, text + call, 1000), [] {
    std::string calls;
    for (int i = 0; i < CallParser::kMaxCalls; ++i) calls += "{f {}}";
    return calls;
  }() + call);
  const std::string large = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"" +
                            std::string(CallParser::kMaxCallBytes, 'a') + "\"}}</tool_call>";
  EXPECT_EQ(ParseInSteps(tools, large, 1000), large);
  const std::string deep =
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": " + std::string(100, '[') +
      std::string(100, ']') + "}}</tool_call>";
  EXPECT_EQ(ParseInSteps(tools, deep, 1000), deep);
}

}  // namespace
}  // namespace triptych::server::call_parser_test
