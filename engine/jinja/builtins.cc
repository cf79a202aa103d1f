#include "engine/jinja/builtins.h"

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "engine/jinja/methods.h"
#include "engine/jinja/operators.h"
#include "engine/jinja/value_text.h"

namespace triptych::jinja {
namespace {

// The largest range of Jinja's sandbox.
constexpr int64_t kMaxRange = 100'000;
constexpr size_t kMaxDateBytes = 4096;
constexpr int64_t kDateSteps = 1024;

// The only argument of a test.
const Value& Other(const Arguments& arguments) {
  if (arguments.positional.size() == 1 && arguments.named.empty()) return arguments.positional[0];
  throw Failure("a test needs one argument");
}

int64_t Whole(const Value& value) {
  RequireDefined(value);
  const auto whole = WholeNumber(value);
  if (!whole) throw Failure("a test needs an int, not " + std::string(value.TypeName()));
  return *whole;
}

bool IsInteger(const Value& value) { return value.integer() != nullptr; }

bool IsSequence(const Value& value) {
  const List* const list = value.list();
  return value.text() != nullptr || value.dict() != nullptr || value.is_undefined() ||
         (list != nullptr && list->kind <= List::kRange);
}

bool IsIterable(const Value& value) { return IsSequence(value) || value.list() != nullptr; }

bool IsDivisible(const Value& value, const Value& by) {
  const int64_t divisor = Whole(by);
  if (divisor == 0) throw Failure("division by zero");
  return divisor == -1 || Whole(value) % divisor == 0;
}

bool IsSame(Heap& heap, const Value& left, const Value& right) {
  return left.TypeName() == right.TypeName() && Equal(heap, left, right);
}

bool IsInCase(Heap& heap, const Value& value, const char* method) {
  return CallMethod(heap, MakeText(heap, Str(heap, value)), method, {}).Truth();
}

struct Function final : Callable {
  using Body = std::function<Value(Heap&, const Arguments&)>;
  explicit Function(Body function) : body(std::move(function)) {}
  Value Call(Heap& heap, const Arguments& arguments) override { return body(heap, arguments); }

  const Body body;
};

Value Range(Heap& heap, const Arguments& arguments) {
  const Parameters parameters("range", arguments, {"start", "stop", "step"}, 1);
  int64_t first = 0;
  int64_t last = parameters.IntegerAt(0, 0);
  if (parameters[1] != nullptr) {
    first = last;
    last = parameters.IntegerAt(1, 0);
  }
  const int64_t step = parameters.IntegerAt(2, 1);
  if (step == 0) throw Failure("range has the step 0");
  std::vector<Value> items;
  for (int64_t i = first; step > 0 ? i < last : i > last;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      throw Failure("range has more than " + std::to_string(kMaxRange) + " numbers",
                    RenderError::kLimit);
    }
    heap.Step();
    items.push_back(Value::Of(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return MakeList(heap, std::move(items), List::kRange);
}

// The entries of a dict or of a list of pairs, then the named arguments.
std::vector<Dict::Entry> EntriesOf(Heap& heap, const Arguments& arguments) {
  if (arguments.positional.size() > 1) throw Failure("dict has several arguments; allowed: one");
  std::vector<Dict::Entry> entries;
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.dict() != nullptr) {
      entries = from.dict()->entries;
    } else {
      const Value pairs = ToList(heap, from);
      for (const Value& one : pairs.list()->items) {
        const Value pair = ToList(heap, one);
        if (pair.list()->items.size() != 2) throw Failure("dict needs pairs");
        entries.emplace_back(pair.list()->items[0], pair.list()->items[1]);
      }
    }
  }
  heap.Step(static_cast<int64_t>(entries.size()));
  heap.Require((entries.size() + arguments.named.size()) * sizeof(Dict::Entry));
  for (const auto& [name, value] : arguments.named)
    entries.emplace_back(MakeText(heap, name, Source::kData), value);
  return entries;
}

Value DateText(Heap& heap, std::time_t now, const Arguments& arguments) {
  const Parameters parameters("strftime_now", arguments, {"format"}, 1);
  const Text* const format = parameters.TextAt(0);
  if (format == nullptr) throw Failure("strftime_now needs a format");
  if (format->empty()) return MakeText(heap, *format);
  heap.Step(kDateSteps);
  if (format->size() > kMaxDateBytes) throw Failure("strftime_now: the format is too long");
  std::tm time{};
  localtime_r(&now, &time);
  std::array<char, kMaxDateBytes> text;
  const size_t size = std::strftime(text.data(), text.size(), format->bytes().c_str(), &time);
  if (size == 0) throw Failure("strftime_now: the date is empty or too long");
  return MakeText(heap, std::string_view(text.data(), size), Source::kData);
}

}  // namespace

Test FindTest(std::string_view name) {
  using Args = const Arguments&;
  static const std::map<std::string_view, Test> tests = {
      {"boolean", [](Heap&, const Value& value, Args) { return value.boolean() != nullptr; }},
      {"callable",
       [](Heap&, const Value& value, Args) {
         return value.is_undefined() ||
                (value.object() != nullptr && value.object()->is_callable());
       }},
      {"defined", [](Heap&, const Value& value, Args) { return !value.is_undefined(); }},
      {"divisibleby", [](Heap&, const Value& value,
                         Args arguments) { return IsDivisible(value, Other(arguments)); }},
      {"escaped", [](Heap&, const Value&, Args) { return false; }},
      {"eq", [](Heap& heap, const Value& value,
                Args arguments) { return Equal(heap, value, Other(arguments)); }},
      {"even", [](Heap&, const Value& value, Args) { return Whole(value) % 2 == 0; }},
      {"false", [](Heap&, const Value& value,
                   Args) { return value.boolean() != nullptr && !value.Truth(); }},
      {"filter",
       [](Heap&, const Value& value, Args) {
         return value.text() != nullptr && FindFilter(value.text()->bytes()) != nullptr;
       }},
      {"float", [](Heap&, const Value& value, Args) { return value.real() != nullptr; }},
      {"ge", [](Heap& heap, const Value& value,
                Args arguments) { return Compare(heap, ">=", value, Other(arguments)) >= 0; }},
      {"gt", [](Heap& heap, const Value& value,
                Args arguments) { return Compare(heap, ">", value, Other(arguments)) > 0; }},
      {"in", [](Heap& heap, const Value& value,
                Args arguments) { return Contains(heap, Other(arguments), value); }},
      {"integer", [](Heap&, const Value& value, Args) { return IsInteger(value); }},
      {"iterable", [](Heap&, const Value& value, Args) { return IsIterable(value); }},
      {"le", [](Heap& heap, const Value& value,
                Args arguments) { return Compare(heap, "<=", value, Other(arguments)) <= 0; }},
      {"lower",
       [](Heap& heap, const Value& value, Args) { return IsInCase(heap, value, "islower"); }},
      {"lt", [](Heap& heap, const Value& value,
                Args arguments) { return Compare(heap, "<", value, Other(arguments)) < 0; }},
      {"mapping", [](Heap&, const Value& value, Args) { return value.dict() != nullptr; }},
      {"ne", [](Heap& heap, const Value& value,
                Args arguments) { return !Equal(heap, value, Other(arguments)); }},
      {"none", [](Heap&, const Value& value, Args) { return value.is_none(); }},
      {"number", [](Heap&, const Value& value, Args) { return RealNumber(value).has_value(); }},
      {"odd", [](Heap&, const Value& value, Args) { return Whole(value) % 2 != 0; }},
      {"sameas", [](Heap& heap, const Value& value,
                    Args arguments) { return IsSame(heap, value, Other(arguments)); }},
      {"sequence", [](Heap&, const Value& value, Args) { return IsSequence(value); }},
      {"string", [](Heap&, const Value& value, Args) { return value.text() != nullptr; }},
      {"test",
       [](Heap&, const Value& value, Args) {
         return value.text() != nullptr && FindTest(value.text()->bytes()) != nullptr;
       }},
      {"true",
       [](Heap&, const Value& value, Args) { return value.boolean() != nullptr && value.Truth(); }},
      {"undefined", [](Heap&, const Value& value, Args) { return value.is_undefined(); }},
      {"upper",
       [](Heap& heap, const Value& value, Args) { return IsInCase(heap, value, "isupper"); }},
  };
  static const std::map<std::string_view, std::string_view> synonyms = {
      {"==", "eq"}, {"equalto", "eq"},  {"!=", "ne"}, {">", "gt"}, {"greaterthan", "gt"},
      {"<", "lt"},  {"lessthan", "lt"}, {">=", "ge"}, {"<=", "le"}};
  const auto synonym = synonyms.find(name);
  const auto found = tests.find(synonym == synonyms.end() ? name : synonym->second);
  return found == tests.end() ? nullptr : found->second;
}

std::vector<std::pair<std::string, Value>> GlobalFunctions(std::time_t now,
                                                           Namespaces& namespaces) {
  const auto function = [](Function::Body body) {
    return Value(std::shared_ptr<Object>(std::make_shared<Function>(std::move(body))));
  };
  return {
      {"range", function(Range)},
      {"dict", function([](Heap& heap, const Arguments& arguments) {
         return MakeDict(heap, EntriesOf(heap, arguments));
       })},
      {"namespace", function([&namespaces](Heap& heap, const Arguments& arguments) {
         const std::vector<Dict::Entry> entries = EntriesOf(heap, arguments);
         size_t bytes = 0;
         for (const auto& [key, value] : entries) {
           heap.Step(8);
           bytes += Str(heap, key).size();
           heap.Work(bytes);
         }
         auto space = std::make_shared<Namespace>(heap, entries.size(), bytes);
         for (const auto& [key, value] : entries) {
           space->members[Str(heap, key).bytes()] = value;
         }
         namespaces.push_back(space);
         return Value(std::shared_ptr<Object>(std::move(space)));
       })},
      {"raise_exception", function([](Heap& heap, const Arguments& arguments) -> Value {
         const Parameters parameters("raise_exception", arguments, {"message"}, 1);
         throw Failure(Str(heap, *parameters[0]).bytes(), RenderError::kRaised);
       })},
      {"strftime_now", function([now](Heap& heap, const Arguments& arguments) {
         return DateText(heap, now, arguments);
       })},
  };
}

}  // namespace triptych::jinja
