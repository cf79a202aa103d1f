#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "engine/base/quoted.h"
#include "engine/grammar/common_texts.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/error.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema_compiler.h"
#include "engine/grammar/schema_keywords.h"
#include "engine/grammar/schema_references.h"

namespace triptych::grammar {
namespace {

const OrderedJson kAny = true;
constexpr size_t kMaxUnique = 8;       // values of items that differ: their sets are states
constexpr size_t kMaxPatterns = 8;     // of one object: each is compared with the others
constexpr int64_t kMaxCounted = 1024;  // properties times counts of them: states

}  // namespace

Expression SchemaCompiler::ArrayOf(const OrderedJson& schema, const std::string& path) {
  const int32_t min = CountOf(schema, "minItems", path).value_or(0);
  const int32_t max = CountOf(schema, "maxItems", path).value_or(Expressions::kUnbounded);
  if (schema.contains("uniqueItems") && schema["uniqueItems"] != false && max != 0 && max != 1) {
    return UniqueArray(schema, path, min, max);
  }
  const bool has_items = schema.contains("items");
  std::vector<Expression> prefix;
  if (schema.contains("prefixItems")) {
    const OrderedJson& list = ListOf(schema, "prefixItems", path);
    for (size_t i = 0; i < list.size(); ++i) {
      if (max != Expressions::kUnbounded && std::ssize(prefix) == max) break;
      prefix.push_back(Value(list[i], PathOf(path, "prefixItems", i)));
    }
  }
  const auto fixed = static_cast<int32_t>(prefix.size());
  const bool unbounded = max == Expressions::kUnbounded;
  if (!unbounded && max < min) return e_.Choice({});
  const bool no_more = (has_items && schema["items"] == false) || (!unbounded && max == fixed);
  const Expression item =
      has_items && !no_more ? Value(schema["items"], PathOf(path, "items")) : json_.AnyValue();
  if (no_more && min > fixed) return e_.Choice({});
  if (fixed == 0) {
    return json_.Array(no_more ? e_.Literal("") : json_.List(item, min, max));
  }
  Expression rest = e_.Literal("");
  if (!no_more) {
    rest = e_.Repeat(e_.Sequence({json_.Comma(), item}), std::max(min - fixed, 0),
                     unbounded ? max : max - fixed);
  }
  for (int32_t i = fixed - 1; i >= 0; --i) {
    const Expression one = e_.Sequence({i == 0 ? json_.Space() : json_.Comma(), prefix[i]});
    const Expression more = e_.Sequence({one, rest});
    rest = e_.Rule("items");  // keeps the nesting flat
    e_.Define(rest, i < min ? more : e_.Optional(more));
  }
  return json_.Array(rest);
}

Expression SchemaCompiler::UniqueArray(const OrderedJson& schema, const std::string& path,
                                       int32_t min, int32_t max) {
  const auto refuse = [&] {
    FailAt(PathOf(path, "uniqueItems"),
           "is not supported; allowed: with items of an enum of at most " +
               std::to_string(kMaxUnique) + " texts, numbers, booleans and null");
  };
  const OrderedJson* found = schema.contains("items") ? &schema["items"] : &kAny;
  if (found->is_object() && found->contains("$ref") && SaysNothing(Without(*found, "$ref"))) {
    Value(*found, PathOf(path, "items"));  // checks it
    found = &ResolveReference(root_, (*found)["$ref"].get<std::string>(), path);
  }
  const OrderedJson& items = *found;
  if (!items.is_object() || schema.contains("prefixItems")) refuse();
  for (const char* const key : {"$ref", "allOf", "anyOf", "oneOf"}) {
    if (items.contains(key)) refuse();
  }
  if (!items.contains("enum") && !items.contains("const")) refuse();
  Value(items, PathOf(path, "items"));  // checks it
  std::vector<OrderedJson> values;
  for (OrderedJson& one : ConstantsOf(items, PathOf(path, "items"))) {
    if (one.is_structured()) refuse();
    if (std::find(values.begin(), values.end(), one) == values.end()) {
      values.push_back(std::move(one));
    }
  }
  if (values.size() > kMaxUnique) refuse();
  std::vector<Expression> constants;
  constants.reserve(values.size());
  for (const OrderedJson& one : values) constants.push_back(Constant(one));
  // [u]: what may follow items that are the values of the bits of u.
  std::vector<Expression> rest(size_t{1} << values.size());
  for (size_t used = rest.size(); used-- > 0;) {
    const auto count = static_cast<int32_t>(std::popcount(used));
    std::vector<Expression> choices;
    if (count >= min) choices.push_back(e_.Literal(""));
    for (size_t i = 0; i < values.size(); ++i) {
      if ((used >> i & 1) != 0 || count == max) continue;
      choices.push_back(e_.Sequence(
          {count == 0 ? json_.Space() : json_.Comma(), constants[i], rest[used | size_t{1} << i]}));
    }
    rest[used] = e_.Rule("items");
    e_.Define(rest[used], e_.Choice(std::move(choices)));
  }
  return json_.Array(rest[0]);
}

Expression SchemaCompiler::ObjectOf(const OrderedJson& schema, const std::string& path) {
  std::set<std::string> required = RequiredOf(schema, path);
  const OrderedJson none = OrderedJson::object();
  const OrderedJson& properties = schema.contains("properties") ? schema["properties"] : none;
  if (!properties.is_object()) RefuseKeyword(path, "properties", properties, "an object");
  std::vector<Property> members;
  std::vector<std::string> names;
  const auto add = [&](const std::string& name, const OrderedJson& of, const std::string& where) {
    names.push_back(name);
    const bool is_required = required.erase(name) > 0;
    if (of == false && !is_required) return;
    members.push_back({json_.Member(Key(name), Value(of, where)), is_required});
  };
  for (const auto& [name, of] : properties.items()) {
    add(name, of, PathOf(PathOf(path, "properties"), name));
  }
  if (schema.contains("patternProperties")) return PatternObject(schema, path, members, names);
  const OrderedJson& more =
      schema.contains("additionalProperties") ? schema["additionalProperties"] : kAny;
  const std::string more_path = PathOf(path, "additionalProperties");
  if (!required.empty()) {
    for (const OrderedJson& one : schema["required"]) {
      const auto name = one.get<std::string>();
      if (required.contains(name)) add(name, more, more_path);
    }
  }
  if (members.empty()) return MapOf(schema, path, names, more);
  const Counts counts = CountsOf(schema, path, members, more == false);
  if (schema.contains("propertyNames")) {
    FailAt(PathOf(path, "propertyNames"), "is not supported together with properties");
  }
  std::optional<Expression> others;
  if (more != false) {
    others = json_.Member(json_.KeyExcept(names), Value(more, more_path));
  }
  return json_.Object(Members(members, others, counts));
}

SchemaCompiler::Counts SchemaCompiler::CountsOf(const OrderedJson& schema, const std::string& path,
                                                const std::vector<Property>& members,
                                                bool closed) const {
  const auto required = static_cast<int32_t>(std::count_if(
      members.begin(), members.end(), [](const Property& one) { return one.required; }));
  Counts counts{.min = CountOf(schema, "minProperties", path).value_or(0),
                .max = CountOf(schema, "maxProperties", path).value_or(Expressions::kUnbounded)};
  if (counts.min <= required) counts.min = 0;
  if (closed && counts.max >= std::ssize(members)) counts.max = Expressions::kUnbounded;
  // A repeated key counts once.
  if (!closed && counts.min > required + 1) {
    RefuseKeyword(path, "minProperties", schema["minProperties"],
                  "at most " + std::to_string(required + 1) +
                      ", one more than required, or \"additionalProperties\": false");
  }
  const int64_t counted = std::max(counts.min, counts.max);
  if (counted > 0 && std::min(counted, std::ssize(members)) * std::ssize(members) > kMaxCounted) {
    FailAt(PathOf(path, counts.min > 0 ? "minProperties" : "maxProperties"),
           "needs too many states together with " + std::to_string(members.size()) + " properties");
  }
  return counts;
}

Expression SchemaCompiler::MapOf(const OrderedJson& schema, const std::string& path,
                                 const std::vector<std::string>& names, const OrderedJson& value) {
  const int32_t min = CountOf(schema, "minProperties", path).value_or(0);
  const int32_t max = CountOf(schema, "maxProperties", path).value_or(Expressions::kUnbounded);
  if (max != Expressions::kUnbounded && max < min) return e_.Choice({});
  if (value == false) return min > 0 ? e_.Choice({}) : json_.Object(e_.Literal(""));
  // A repeated key counts once.
  if (min > 1) FailAt(PathOf(path, "minProperties"), "is not supported above 1 without properties");
  Expression key = names.empty() ? json_.String() : json_.KeyExcept(names);
  if (schema.contains("propertyNames")) {
    if (!names.empty()) {
      FailAt(PathOf(path, "propertyNames"), "is not supported together with properties");
    }
    const OrderedJson is_string = {{"type", "string"}};
    const std::string where = PathOf(path, "propertyNames");
    key = Value(Merged(is_string, schema["propertyNames"], where), where);
  }
  const std::string where = PathOf(path, "additionalProperties");
  return json_.Object(json_.List(json_.Member(key, Value(value, where)), min, max));
}

Expression SchemaCompiler::PatternObject(const OrderedJson& schema, const std::string& path,
                                         const std::vector<Property>& members,
                                         const std::vector<std::string>& names) {
  const std::string where = PathOf(path, "patternProperties");
  const OrderedJson& patterns = schema["patternProperties"];
  if (!patterns.is_object() || patterns.empty() || patterns.size() > kMaxPatterns) {
    RefuseKeyword(path, "patternProperties", patterns,
                  "an object with 1 to " + std::to_string(kMaxPatterns) + " patterns");
  }
  if (!schema.contains("additionalProperties") || schema["additionalProperties"] != false) {
    FailAt(where, "is not supported without \"additionalProperties\": false");
  }
  for (const char* const key : {"propertyNames", "minProperties", "maxProperties"}) {
    if (schema.contains(key)) {
      FailAt(PathOf(path, key), "is not supported together with patternProperties");
    }
  }
  for (const std::string& name : RequiredOf(schema, path)) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      FailAt(PathOf(path, "required"), "names " + Quoted(name) + ", which is not in properties");
    }
  }
  std::vector<Expression> matching;
  std::vector<std::shared_ptr<const Grammar>> known;
  for (const auto& [pattern, value] : patterns.items()) {
    std::optional<Expression> content;
    try {
      content = ParsePattern(e_, json_, pattern);
      CheckReadings(e_, *content, readings_);
      known.push_back(std::make_shared<const Grammar>(Compile(e_, *content)));
    } catch (const GrammarError& error) {
      FailAt(PathOf(where, pattern), error.what());
    }
    for (const std::string& name : names) {
      Matcher matcher(known.back());
      if (!matcher.Advance(JsonText::Escaped(name)) || !matcher.MayEnd()) continue;
      FailAt(where, "matches the property " + Quoted(name) + ", too, which is not supported");
    }
    for (size_t i = 0; i + 1 < known.size(); ++i) {
      if (HaveNoCommonText(*known[i], *known.back(), comparisons_)) continue;
      FailAt(PathOf(where, pattern),
             "may match a name that another pattern matches, too, which is not supported");
    }
    matching.push_back(json_.Member(json_.Quoted(*content), Value(value, PathOf(where, pattern))));
  }
  const Expression others = e_.Choice(std::move(matching));
  if (members.empty()) return json_.Object(json_.List(others, 0, Expressions::kUnbounded));
  return json_.Object(Members(members, others, {}));
}

Expression SchemaCompiler::Members(const std::vector<Property>& members,
                                   std::optional<Expression> others, const Counts& counts) {
  const bool bounded = counts.max != Expressions::kUnbounded;
  // The highest number of members that is told apart; without a bound, it stands for more, too.
  const auto most = static_cast<int32_t>(
      std::min<int64_t>(bounded ? counts.max : std::max(counts.min, 1), std::ssize(members)));
  // [c]: the rest after c members.
  std::vector<Expression> rest;
  for (int32_t count = 0; count <= most; ++count) {
    const int32_t min = std::max(counts.min - count, 0);
    const int32_t max = bounded ? counts.max - count : Expressions::kUnbounded;
    if (!others || max == 0) {
      rest.push_back(min > 0 ? e_.Choice({}) : e_.Literal(""));
    } else if (bounded && max < min) {
      rest.push_back(e_.Choice({}));
    } else if (count == 0) {
      rest.push_back(json_.List(*others, min, max));
    } else {
      rest.push_back(e_.Repeat(e_.Sequence({json_.Comma(), *others}), min, max));
    }
  }
  for (size_t i = members.size(); i > 0; --i) {
    const auto& [value, required] = members[i - 1];
    Expression member = value;
    if (most > 1) {  // one copy for all counts
      member = e_.Rule("member");
      e_.Define(member, value);
    }
    for (int32_t count = 0; count <= most; ++count) {
      std::vector<Expression> choices;
      if (count < most || !bounded) {
        choices.push_back(e_.Sequence(
            {count == 0 ? json_.Space() : json_.Comma(), member, rest[std::min(count + 1, most)]}));
      }
      if (!required) choices.push_back(rest[count]);
      rest[count] = e_.Rule("members");  // keeps the nesting flat
      e_.Define(rest[count], e_.Choice(std::move(choices)));
    }
  }
  return rest[0];
}

}  // namespace triptych::grammar
